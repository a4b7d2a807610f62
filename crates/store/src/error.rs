//! The reasons why the store is unusable.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::StatVfsMountFlags;

/// The number of bytes that must be free: twice the step by which the shared file of the engine
/// grows.
const ENOUGH: usize = 64 << 10;

/// The reason why the store can't be opened. The store stays unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the store {path} has format {found}, and this version of twinprobe knows formats up to {known}; use a later one"
    )]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error(
        "the store {path} is damaged and stays as it is: {reason}; `twinprobe store export` saves what can be read, then \
         move the file away to begin anew"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("the store {path} can't be used")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Makes the error, and distinguishes damaged content from other failures.
    pub fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::InvalidData {
            return Self::Damaged {
                path,
                reason: source.to_string(),
            };
        }
        Self::Io { path, source }
    }
}

/// Tells whether the file system of a file is read-only, which it may become after an error.
pub fn is_read_only(path: &Path) -> bool {
    let system = path
        .parent()
        .and_then(|parent| rustix::fs::statvfs(parent).ok());
    system.is_some_and(|system| system.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Converts an error of the engine. `path` is the store, whose file system may add a reason.
pub fn io_error(error: &rusqlite::Error, path: &Path) -> io::Error {
    // A column has an unexpected type, or the tables do not fit the statements.
    let is_foreign = matches!(
        error,
        rusqlite::Error::SqlInputError { .. }
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    );
    match error.sqlite_error_code() {
        _ if is_foreign => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        Some(ErrorCode::DiskFull) => io::Error::new(
            io::ErrorKind::StorageFull,
            "No space left on device: the store can't grow",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::SystemIoFailure)
            if is_read_only(path) =>
        {
            io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "Read-only file system")
        }
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => {
            full(path).unwrap_or_else(|| io::Error::other(error.to_string()))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process uses the store; on this file system only one process can use it at a time: end \
                that process, or ask the daemon",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            io::Error::new(io::ErrorKind::InvalidData, error.to_string())
        }
        _ => io::Error::other(error.to_string()),
    }
}

/// Returns the error of a full disk if the disk or its quota lacks the room for one step of the
/// engine. The engine itself does not report that it failed to create or enlarge its shared file.
fn full(path: &Path) -> Option<io::Error> {
    let tried =
        tempfile::tempfile_in(path.parent()?).and_then(|mut file| file.write_all(&[0; ENOUGH]));
    let kind = tried.err()?.kind();
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
    .then(|| io::Error::new(kind, "No space left on device: the store can't be used"))
}

/// Returns the error of a full disk, for tests of other crates.
#[must_use]
pub fn disk_full() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None)
}

/// Returns the error for rows with an impossible content.
pub fn damaged(reason: &str) -> rusqlite::Error {
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(corrupt, Some(reason.to_owned()))
}

/// Tells whether the connection must be closed after an error, because the engine's knowledge about
/// the files may be wrong.
pub fn is_lasting(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
        )
    )
}
