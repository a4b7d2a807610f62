//! The switch of the machine that expedites grace periods, which all daemons share. A daemon holds
//! a lock while it needs the switch, and the kernel releases the lock when the process ends. The
//! note says that a daemon has turned the switch on. A daemon that finds the note without a lock
//! turns the switch off, even if another daemon wrote the note.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use rustix::fs::OFlags;

use twinprobe_faults::crash;
use twinprobe_state_files::private::{self, Lock, PATIENCE, try_lock};

const SWITCH: &str = "kernel/rcu_expedited";
pub const ON: &str = "1";
pub const OFF: &str = "0";
const NOTE: &str = "rcu_expedited";
const TURN: &str = "rcu_expedited.lock";

/// The switch, and the files by which daemons agree about it.
#[derive(Debug)]
pub struct Switch {
    /// `/sys/kernel/rcu_expedited`.
    pub path: PathBuf,
    /// The file with the id of the boot in which a daemon has turned the switch on. A daemon that
    /// needs the switch holds a shared lock on this file.
    pub note: PathBuf,
    /// The file that a daemon locks while it checks and changes the switch.
    turn: PathBuf,
    boot: String,
}

/// A daemon's need of the switch. The need ends with [`Switch::release`], or with the process.
#[derive(Debug)]
pub struct Need(File);

impl Switch {
    /// Makes the switch. `sys` is the path of sysfs, and `run` a directory that does not outlive
    /// the boot.
    pub fn new(sys: &Path, run: &Path, boot: &str) -> Self {
        Self {
            path: sys.join(SWITCH),
            note: run.join(NOTE),
            turn: run.join(TURN),
            boot: boot.to_owned(),
        }
    }

    /// Turns the switch on until the need is released. A switch that another program has turned on
    /// stays on.
    pub fn need(&self) -> io::Result<Need> {
        fs::metadata(&self.path)?;
        self.prepare()?;
        let _turn = self.take_turn()?;
        let note = open(&self.note, true)?;
        note.try_lock_shared()?;
        if fs::read_to_string(&self.path)?.trim() == OFF && !self.is_noted(&note)? {
            note.write_all_at(self.boot.as_bytes(), 0)?;
            note.set_len(self.boot.len() as u64)?;
            fs::write(&self.path, ON).or_else(|error| note.set_len(0).and(Err(error)))?;
        }
        crash::point("expedited");
        Ok(Need(note))
    }

    /// Turns the switch off unless other daemons need it.
    pub fn release(&self, need: &Need) -> io::Result<()> {
        let _turn = self.take_turn()?;
        self.restore(&need.0)
    }

    /// Turns off a switch that a dead daemon has left on. Returns true if there was such a daemon.
    pub fn mend(&self) -> io::Result<bool> {
        let end = Instant::now() + PATIENCE;
        // A process that the dead daemon was starting keeps the lock for a moment, with the
        // descriptors that it inherits. During this time, other daemons can use the switch.
        while let Some(note) = self.left()? {
            let turn = self.take_turn()?;
            if is_free(&note)? {
                self.restore(&note)?;
                return Ok(true);
            }
            drop(turn);
            if Instant::now() >= end {
                break;
            }
            thread::sleep(PATIENCE / 100);
        }
        Ok(false)
    }

    /// Tells whether a dead daemon has left the switch on. Changes nothing.
    pub fn is_left(&self) -> io::Result<bool> {
        let Some(note) = self.left()? else {
            return Ok(false);
        };
        let _turn = self.take_turn()?;
        Ok(self.is_noted(&note)? && is_free(&note)?)
    }

    /// Returns the note, if the note is from this boot.
    fn left(&self) -> io::Result<Option<File>> {
        match open(&self.note, false) {
            Ok(note) => Ok(self.is_noted(&note)?.then_some(note)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn restore(&self, note: &File) -> io::Result<()> {
        if !is_free(note)? {
            return Ok(());
        }
        if self.is_noted(note)? {
            fs::write(&self.path, OFF)?;
            note.set_len(0)?;
        }
        // The descriptor may be open in a process that is being started, so the lock is released
        // explicitly.
        note.unlock()
    }

    fn is_noted(&self, mut note: &File) -> io::Result<bool> {
        let mut text = String::new();
        io::Seek::rewind(&mut note)?;
        note.read_to_string(&mut text)?;
        Ok(text == self.boot)
    }

    fn prepare(&self) -> io::Result<()> {
        let Some(run) = self.note.parent() else {
            return Ok(());
        };
        // A directory that exists already may be open to the group of the daemon's socket.
        if run.exists() {
            private::owned(run)
        } else {
            private::directory(run)
        }
    }

    fn take_turn(&self) -> io::Result<File> {
        let turn = open(&self.turn, true)?;
        match try_lock(&turn)? {
            Lock::Taken => Ok(turn),
            Lock::Held | Lock::Foreign => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is locked", self.turn.display()),
            )),
        }
    }
}

/// Locks the note if no daemon needs the switch. Returns false if a daemon needs it.
fn is_free(note: &File) -> io::Result<bool> {
    match note.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    File::options()
        .read(true)
        .write(true)
        .create(create)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}
