//! Connections to the store's file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{OpenError, io_error, is_read_only};

const SCHEMA: &str = include_str!("schema.sql");
/// The SQL of tables that later versions have added.
const LATER: &str = include_str!("later.sql");
/// The mark that distinguishes this store from other databases: `tpst`.
const APPLICATION: i32 = i32::from_be_bytes(*b"tpst");
/// The version of the tables, and of the meaning of their columns. Version 1 had no windows that
/// depend on others.
pub const VERSION: u32 = 2;
/// The memory for cached pages of the file, in KiB.
const CACHE: i64 = 2048;
/// The number of pages after which the write-ahead log is copied into the file; smaller on a small
/// file system.
const LOG_PAGES: u64 = 1000;
const LOG_PART: u64 = 64;
/// The size of a page of the file in bytes.
pub const PAGE: u64 = 4096;
/// The number of free pages from which on the file is shrunk, if most of its pages are free.
const VACUUM_PAGES: u64 = 4096;
/// The longest time for which a change waits while another process has locked the file, such as a
/// check of the store.
const BUSY: Duration = Duration::from_secs(10);

/// Opens the store for changes; creates the store if it is missing.
pub fn writer(path: &Path) -> Result<Connection, OpenError> {
    let open = || -> io::Result<Connection> {
        if !path.try_exists()? {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)?;
            sync_parent(path)?;
        }
        forget_unwritten(path);
        open_writer(path).map_err(|error| io_error(&error, path))
    };
    open().map_err(|source| OpenError::of(path, source))
}

/// Drops the kernel's cached pages of the files, so that reads see the content of the disk. After a
/// failed write the cache has pages that the disk lacks, and no later sync reports this
/// (`mm/filemap.c`). On ext4 a repeated write of such a page is also lost, because its block still
/// counts as unwritten. Call this while this process has no connection to the files.
fn forget_unwritten(path: &Path) {
    for path in [path, &beside(path, "-wal")] {
        let Ok(file) = File::open(path) else { continue };
        // The kernel drops only clean pages, so this writes them first. A page whose write has
        // failed also counts as clean.
        if let Err(error) = file.sync_all() {
            tracing::warn!(path = %path.display(), %error, "unwritten pages are dropped");
        }
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY)?;
    if copies_on_write(path) {
        keep_alone(&connection)?;
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "cache_size", -CACHE)?;
    connection.pragma_update(None, "wal_autocheckpoint", log_pages(path))?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        ))?;
    } else if version < VERSION {
        // Data of an earlier version keeps its meaning. The earlier version must not read data from
        // the time after this.
        connection.pragma_update(None, "user_version", VERSION)?;
    }
    connection.execute_batch(LATER)?;
    let free: u64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let pages: u64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if free > VACUUM_PAGES && free > pages / 2 {
        // Without room for a copy, the file keeps its size.
        let _ = connection.execute_batch("VACUUM");
    }
    // The log must be in the file before this connection writes: an earlier connection may have
    // left writes without a sync.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(connection)
}

/// Tells whether each write to a page in mapped memory needs new room in the file system. Without
/// room, the kernel ends the process (SIGBUS).
fn copies_on_write(path: &Path) -> bool {
    const BCACHEFS: u64 = 0xca45_1a4e;
    const BTRFS: u64 = 0x9123_683e;
    const F2FS: u64 = 0xf2f5_2010;
    const NILFS: u64 = 0x3434;
    const ZFS: u64 = 0x2fc1_2fc1;
    let system = path
        .parent()
        .and_then(|parent| rustix::fs::statfs(parent).ok());
    system
        .is_some_and(|system| [BCACHEFS, BTRFS, F2FS, NILFS, ZFS].contains(&(system.f_type as u64)))
}

/// Prevents other connections to the file. Without these, the engine needs no memory-mapped file.
fn keep_alone(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "locking_mode", "exclusive")
}

/// Opens the store for reading, even if nothing can be written to its file system.
pub fn reader(path: &Path) -> Result<Connection, OpenError> {
    let exists = path
        .try_exists()
        .map_err(|source| OpenError::of(path, source))?;
    if !exists {
        return Err(OpenError::of(
            path,
            io::Error::new(io::ErrorKind::NotFound, "there is no such file"),
        ));
    }
    let open = |uri: &str, alone: bool| {
        let access = if alone {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        } else {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        };
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(uri, flags)?;
        connection.busy_timeout(BUSY)?;
        if alone {
            keep_alone(&connection)?;
            connection.pragma_update(None, "query_only", true)?;
        }
        connection.pragma_update(None, "cache_size", -CACHE)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    };
    let uri = uri(path);
    open(&uri, copies_on_write(path))
        .or_else(|error: rusqlite::Error| match is_read_only(path) {
            // Nothing changes the files, so connections need neither locks nor a shared file.
            true => open(&format!("{uri}?vfs=unix-none"), true),
            false => Err(error),
        })
        .or_else(|error| {
            // A store that was closed properly has no log, and is readable without the files beside
            // it.
            let log = fs::metadata(beside(path, "-wal"));
            let has_log = log.map_or_else(
                |error| error.kind() != io::ErrorKind::NotFound,
                |file| file.len() > 0,
            );
            if !has_log {
                open(&format!("{uri}?immutable=1"), false)
            } else {
                Err(error)
            }
        })
        .map_err(|error| OpenError::of(path, io_error(&error, path)))
}

/// Fails if the head of the store's file does not belong to this version of the store or to an
/// earlier one. Call this while this process has no connection to the file: the close of the file
/// would release the connection's locks.
pub fn check_head(path: &Path) -> Result<(), OpenError> {
    let damaged = |reason: &str| OpenError::Damaged {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let mut head = Vec::new();
    match File::open(path).and_then(|file| file.take(100).read_to_end(&mut head)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|source| OpenError::of(path, source))?,
    };
    // A power failure may have left an empty file.
    if head.is_empty() {
        return Ok(());
    }
    if head.len() < 100 || !head.starts_with(b"SQLite format 3\0") {
        return Err(damaged("its head is not that of a store"));
    }
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (found, application) = (number(60), number(68));
    match application {
        // The tables of the store are in the log only.
        0 if found == 0 => Ok(()),
        _ if application != APPLICATION.cast_unsigned() => {
            Err(damaged("its head is not that of a store"))
        }
        _ if found > VERSION => Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: VERSION,
        }),
        _ => Ok(()),
    }
}

fn log_pages(path: &Path) -> u64 {
    let system = path
        .parent()
        .and_then(|parent| rustix::fs::statvfs(parent).ok());
    let size = system.map_or(u64::MAX, |system| {
        system.f_blocks.saturating_mul(system.f_frsize)
    });
    (size / LOG_PART / PAGE).clamp(16, LOG_PAGES)
}

/// Returns the path of the file beside the store that has this ending.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn uri(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!(
        "file:{}",
        text.replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23")
    )
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}
