//! The server of a disk: a FUSE file system with one file, the disk, and commands that let it fail
//! or lose power.
//!
//! The server is a separate process ([`serve`] in `src/bin/block-device.rs`) that never touches
//! files on the disk: a process that served a disk to itself could not be killed while one of its
//! threads waits for the disk. When the test ends, however it ends, the pipe of commands closes and
//! the server ends; a disk that is still mounted gets errors then.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, Write as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use parking_lot::Mutex;

use super::image::Image;
use super::journal;

const TTL: Duration = Duration::from_secs(3600);

/// The requests that fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Failing {
    #[default]
    None,
    /// Writes outside of the file system's journal.
    Data,
    /// Writes and flushes.
    Writes,
    Reads,
    /// All requests fail, because the power is off.
    All,
}

#[derive(Debug)]
struct State {
    image: Image,
    /// The number of the disk's file. After a loss of power or an unmount another file takes its
    /// place, so that a program that still has the earlier one can do nothing to the disk.
    generation: u64,
    failing: Failing,
    /// The number of writes and flushes until the power fails.
    left: Option<u64>,
    /// The ranges of the disk in which writes succeed in spite of [`Failing::Data`].
    journal: Vec<Range<u64>>,
}

/// The file system. The inode of the file of generation N is N + 2.
#[derive(Clone, Debug)]
struct Device(Arc<Mutex<State>>);

/// Serves a disk of `size` bytes below `at` until the commands end.
pub fn serve(at: &Path, size: u64) -> Result<()> {
    let state = State {
        image: Image::new(size),
        generation: 0,
        failing: Failing::None,
        left: None,
        journal: Vec::new(),
    };
    let device = Device(Arc::new(Mutex::new(state)));
    let mut options = fuser::Config::default();
    options.mount_options = vec![fuser::MountOption::FSName("twinprobe-test".to_owned())];
    // The session stays until the end: an unmount would wait for programs that still use the disk,
    // but the end of the process does not.
    let session = fuser::spawn_mount(device.clone(), at, &options).context("mount the disk")?;
    println!("ready");
    for line in io::stdin().lock().lines() {
        let answer = device.command(&line?);
        let mut out = io::stdout().lock();
        match answer {
            Ok(answer) => writeln!(out, "ok {answer}")?,
            Err(error) => writeln!(out, "error {error:#}")?,
        }
    }
    std::mem::forget(session);
    Ok(())
}

impl Device {
    fn command(&self, line: &str) -> Result<String> {
        let mut state = self.0.lock();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["fail", what] => {
                state.failing = match what {
                    "none" => Failing::None,
                    "data" => Failing::Data,
                    "writes" => Failing::Writes,
                    "reads" => Failing::Reads,
                    "all" => Failing::All,
                    _ => bail!("no {what} that can fail"),
                };
                state.journal = journal::places(&state.image);
                Ok(String::new())
            }
            ["off-after", writes] => {
                state.left = Some(writes.parse()?);
                Ok(String::new())
            }
            ["power", seed] => {
                let lost = state.image.lose_power(seed.parse()?);
                state.generation += 1;
                (state.failing, state.left) = (Failing::None, None);
                Ok(format!("{} {} {}", lost.kept, lost.torn, lost.dropped))
            }
            ["next"] => {
                state.generation += 1;
                Ok(state.generation.to_string())
            }
            _ => bail!("no command {line}"),
        }
    }
}

fn name(generation: u64) -> String {
    format!("disk-{generation}")
}

impl State {
    fn attributes(&self, inode: u64) -> FileAttr {
        let is_root = inode == 1;
        FileAttr {
            ino: INodeNo(inode),
            size: if is_root { 0 } else { self.image.size() },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if is_root { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Counts a write or flush.
    fn count(&mut self) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.failing = Failing::All;
            }
        }
    }

    /// Tells whether a request of this kind fails. `Failing::Data` stands for a write at `range`.
    fn fails(&self, inode: INodeNo, kind: Failing, range: &Range<u64>) -> bool {
        let in_journal = || {
            self.journal
                .iter()
                .any(|place| place.start < range.end && range.start < place.end)
        };
        inode.0 != self.generation + 2
            || match self.failing {
                Failing::None => false,
                Failing::Data => kind == Failing::Data && !in_journal(),
                Failing::Writes => matches!(kind, Failing::Data | Failing::Writes),
                Failing::Reads => kind == Failing::Reads,
                Failing::All => true,
            }
    }
}

impl Filesystem for Device {
    fn lookup(&self, _: &Request, _: INodeNo, wanted: &OsStr, reply: ReplyEntry) {
        let state = self.0.lock();
        if wanted == OsStr::new(&name(state.generation)) {
            reply.entry(&TTL, &state.attributes(state.generation + 2), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.0.lock().attributes(inode.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without a cache of this file every request of the file system on it comes here.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.0.lock();
        if state.fails(inode, Failing::Reads, &(offset..offset)) {
            reply.error(Errno::EIO);
        } else {
            reply.data(&state.image.read(offset, size as usize));
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.0.lock();
        let range = offset..offset + data.len() as u64;
        state.count();
        if state.fails(inode, Failing::Data, &range) || !state.image.write(offset, data) {
            reply.error(Errno::EIO);
        } else {
            reply.written(data.len() as u32);
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel calls this at the close of a descriptor, which does not concern the disk's
        // cache.
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.0.lock();
        state.count();
        if state.fails(inode, Failing::Writes, &(0..0)) {
            reply.error(Errno::EIO);
        } else {
            state.image.flush();
            reply.ok();
        }
    }
}
