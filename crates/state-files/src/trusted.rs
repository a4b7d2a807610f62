//! Files that an operator may exchange while the daemon runs.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::private;
use rustix::fs::OFlags;

/// The largest size of a file in bytes.
const LIMIT: u64 = 16 << 20;

/// Reads the file of a command line's option. The error names the option and the file.
pub fn of_option(option: &str, path: &Path) -> Result<Vec<u8>, String> {
    read(path).map_err(|error| wrong(option, path, &error))
}

/// Returns the error about the file of an option.
pub fn wrong(option: &str, path: &Path, error: &dyn std::error::Error) -> String {
    format!("the file {} of {option}: {error}", path.display())
}

/// Reads a whole file that gives rights. Fails if other users could change it, or if it is a pipe:
/// the daemon would wait for a writer, and read no file again.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    private::trusted(path)?;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe and not a file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if read as u64 > LIMIT {
        return Err(io::Error::other(format!("it has more than {LIMIT} bytes")));
    }
    Ok(bytes)
}
