//! A disk that forgets: a block device whose power can fail, with a file system on it.
//!
//! The device is a file of a FUSE file system, which a process of its own serves ([`serve`]),
//! behind a loop device. It keeps the flushed data and, apart from it, the writes since. A loss of
//! power keeps only an arbitrary part of the later writes, as on a disk with a volatile cache. So
//! it exposes a program that claims storage without a sync.

mod device;
mod image;
mod journal;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::netns::{output, run};
use crate::room::Room;
use crate::tmpfs;
use crate::wait::wait_for;

pub use self::device::serve;
pub use self::image::Lost;

/// The size of a disk. The store may behave differently with little room. Only written blocks take
/// memory.
const SIZE: u64 = 1 << 30;
/// The time to wait for programs that still use a file system or look for a free loop device.
const PATIENCE: Duration = Duration::from_secs(60);

/// The file system on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

/// The requests to a disk that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Writes outside of the file system's journal: files can't be written, and the file system
    /// survives it. A btrfs has no journal, and does not.
    Data,
    /// Writes and flushes. File systems with a journal give up for good.
    Writes,
    Reads,
}

impl FileSystem {
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Returns options that make only the necessary writes.
    const fn make_options(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &[
                "-q",
                "-J",
                "size=16",
                "-E",
                "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
            ],
            Self::Xfs => &["-q", "-K"],
            Self::Btrfs => &["-q", "-K"],
        }
    }

    const fn mount_options(self) -> &'static str {
        match self {
            Self::Ext4 => "noinit_itable,nodiscard",
            // The disk before the loss of power had the same id, and may still be in use.
            Self::Xfs => "nouuid",
            Self::Btrfs => "nodiscard",
        }
    }
}

/// A mounted disk.
#[derive(Debug)]
pub struct Disk {
    kind: FileSystem,
    at: PathBuf,
    /// The place of the disk's file at the server.
    below: PathBuf,
    server: Mutex<Server>,
    room: Room,
}

impl Disk {
    /// Makes a disk with an empty file system and mounts it at `at`. The server's files are in the
    /// directory `below`.
    pub fn mount(kind: FileSystem, at: &Path, below: &Path) -> Result<Self> {
        fs::create_dir_all(at)?;
        fs::create_dir_all(below)?;
        let server = Mutex::new(Server::start(below)?);
        let disk = Self {
            kind,
            at: at.to_owned(),
            below: below.to_owned(),
            server,
            room: Room::of(at),
        };
        let file = disk.file();
        let mut arguments = kind.make_options().to_vec();
        arguments.push(&file);
        run(&format!("mkfs.{}", kind.name()), &arguments)?;
        disk.attach()?;
        Ok(disk)
    }

    pub const fn kind(&self) -> FileSystem {
        self.kind
    }

    /// Returns the room on the disk, to fill it.
    pub const fn room(&self) -> &Room {
        &self.room
    }

    /// Takes the power away: from now on every request to the disk fails. Kill its users before
    /// [`Disk::power_on`].
    pub fn power_off(&self) -> Result<()> {
        self.ask("fail all").map(drop)
    }

    /// Takes the power away at the write or flush of this number, counted from now. So a test can
    /// stop a program and the file system at any of their writes.
    pub fn power_off_after(&self, writes: u64) -> Result<()> {
        self.ask(format_args!("off-after {writes}")).map(drop)
    }

    /// Makes the kernel write back and flush its cached data. Fails if the disk fails.
    pub fn write_back(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.at)?)?)
    }

    /// Mounts the disk after the power came back. `seed` chooses which writes without a flush have
    /// survived.
    pub fn power_on(&self, seed: u64) -> Result<Lost> {
        self.detach()?;
        let answer = self.ask(format_args!("power {seed}"))?;
        let numbers: Vec<usize> = answer
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [kept, torn, dropped] = numbers[..] else {
            bail!("the disk says {answer:?}")
        };
        self.attach().context("after a loss of power")?;
        Ok(Lost {
            kept,
            torn,
            dropped,
        })
    }

    /// Unmounts the file system properly and mounts it again, as a reboot does.
    pub fn remount(&self) -> Result<()> {
        // Another mount namespace may have a copy of the mount for a moment, so that unmounting
        // would write nothing yet. A file system that has given up can't be written.
        let _ = self.write_back();
        self.detach()?;
        self.ask("next")?;
        self.attach().context("after an orderly end")
    }

    /// Lets requests to the disk fail until [`Disk::heal`].
    pub fn fail(&self, what: Failing) -> Result<()> {
        let what = match what {
            Failing::Data => "data",
            Failing::Writes => "writes",
            Failing::Reads => "reads",
        };
        self.ask(format_args!("fail {what}")).map(drop)
    }

    /// Ends [`Disk::fail`].
    pub fn heal(&self) -> Result<()> {
        self.ask("fail none").map(drop)
    }

    /// Tells whether the file system still works, or has given up because of errors of the disk.
    pub fn is_alive(&self) -> bool {
        let path = self.at.join(".alive");
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(b"yes")?;
            file.sync_all()
        });
        written.and_then(|()| fs::remove_file(&path)).is_ok()
    }

    fn attach(&self) -> Result<()> {
        // Another test may take the device that is free.
        let device = wait_for("a loop device", PATIENCE, || {
            output("losetup", &["--find", "--show", &self.file()])
        })?;
        let device = String::from_utf8(device)?;
        let device = device.trim();
        let at = text(&self.at)?;
        let mounted = run(
            "mount",
            &[
                "-t",
                self.kind.name(),
                "-o",
                self.kind.mount_options(),
                device,
                at,
            ],
        );
        // The kernel detaches a device in use when its last user has ended, even if this process is
        // killed.
        let detached = run("losetup", &["--detach", device]);
        mounted.and(detached)
    }

    fn detach(&self) -> Result<()> {
        let at = text(&self.at)?;
        wait_for("an unused disk", PATIENCE, || run("umount", &[at]))
    }

    /// Returns the path of the disk's file, which is another one after each loss of power.
    fn file(&self) -> String {
        let generation = self
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .generation;
        self.below
            .join(format!("disk-{generation}"))
            .display()
            .to_string()
    }

    fn ask(&self, command: impl Display) -> Result<String> {
        self.server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ask(command)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        tmpfs::unmount(&self.at);
        tmpfs::unmount(&self.below);
    }
}

/// The process that serves the disk.
#[derive(Debug)]
struct Server {
    child: Child,
    /// Closed on drop, which ends the process.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    generation: u64,
}

impl Server {
    fn start(below: &Path) -> Result<Self> {
        let binary = crate::helper("block-device")?;
        let mut child = Command::new(binary)
            .arg(below)
            .arg(SIZE.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the server of a disk")?;
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut server = Self {
            child,
            commands,
            answers,
            generation: 0,
        };
        let line = server.line()?;
        ensure!(line == "ready", "the server of a disk says {line:?}");
        Ok(server)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn ask(&mut self, command: impl Display) -> Result<String> {
        let command = command.to_string();
        let commands = self.commands.as_mut().context("a pipe")?;
        writeln!(commands, "{command}")?;
        let line = self.line()?;
        let answer = line
            .strip_prefix("ok")
            .with_context(|| format!("{command}: {line:?}"))?;
        if command.starts_with("power") || command == "next" {
            self.generation += 1;
        }
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Err(error) = self.child.wait() {
            eprintln!("the server of a disk: {error}");
        }
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path is text")
}
