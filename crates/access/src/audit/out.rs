//! The file of the record: how a line gets there, and the reserved room for changes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fstatvfs};
use rustix::io::ioctl_fionread;

/// The room in bytes on the disk that is only for lines about changes: at most a fortieth of the
/// disk, and less than windows leave free.
const KEPT: u64 = 16 << 20;
const SHARE: u64 = 40;
/// The number of bytes in a pipe above which other lines are left out. A pipe has room for 64 KiB.
const PIPE: u64 = 32 << 10;

/// The largest length of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRoom {
    /// The whole room, for a line about a change.
    All,
    /// The part of the room that lines about other requests may use.
    Rest,
}

/// The open file.
#[derive(Debug)]
pub struct AuditFile {
    file: File,
    is_pipe: bool,
    /// True if the file may end in the middle of a line, because this daemon has not written the
    /// last line, or only a part of it.
    unsure: bool,
    /// True if this daemon has written a part of a line.
    cut: bool,
}

impl AuditFile {
    /// Opens a file, or a pipe. A write to a pipe without a reader fails at once and does not wait.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(path)?;
        let is_pipe = file.metadata()?.file_type().is_fifo();
        Ok(Self {
            file,
            is_pipe,
            unsure: true,
            cut: false,
        })
    }

    /// Writes a line, which has no line break yet.
    pub fn write(&mut self, line: &str, room: LineRoom) -> io::Result<()> {
        if room == LineRoom::Rest && !self.has_rest(line.len() as u64)? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // The rest of a line that was cut off must not become a part of the next line.
        let is_cut = self.cut || self.unsure && ends_within(&self.file);
        let text = if is_cut {
            format!("\n{line}\n")
        } else {
            format!("{line}\n")
        };
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => {
                    return self.failed(rest.len() < text.len(), io::ErrorKind::WriteZero.into());
                }
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.failed(rest.len() < text.len() || is_cut, error),
            }
        }
        (self.unsure, self.cut) = (false, false);
        Ok(())
    }

    fn failed(&mut self, cut: bool, error: io::Error) -> io::Result<()> {
        (self.unsure, self.cut) = (true, cut);
        Err(error)
    }

    /// Tells whether a line has room outside the room for changes.
    fn has_rest(&self, bytes: u64) -> io::Result<bool> {
        if self.is_pipe {
            return Ok(ioctl_fionread(&self.file)?.saturating_add(bytes) <= PIPE);
        }
        let disk = fstatvfs(&self.file)?;
        let (free, all) = (
            disk.f_bavail.saturating_mul(disk.f_frsize),
            disk.f_blocks.saturating_mul(disk.f_frsize),
        );
        // Devices have no disk.
        Ok(all == 0 || free > KEPT.min(all / SHARE).saturating_add(bytes))
    }
}

/// Tells whether a file ends in the middle of a line, as after a full disk or a crash.
fn ends_within(file: &File) -> bool {
    let mut last = *b"\n";
    let length = file.metadata().map_or(0, |file| file.len());
    length > 0 && file.read_at(&mut last, length - 1).is_ok() && last != *b"\n"
}
