//! The store, which all parts of the daemon share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::Connection;

use crate::commit::{Change, Durable, Ticket, Waiting};
use crate::connection;
use crate::error::{OpenError, io_error, is_lasting};
use crate::reserve::Reserve;

/// The name of the store's file in the state directory.
pub const FILE: &str = "store.sqlite";

/// The store. Connections are opened on demand, and dropped after errors of the disk.
pub struct Database {
    path: PathBuf,
    is_read_only: bool,
    queue: Mutex<CommitQueue>,
    /// The condition variable that signals the end of a commit.
    committed: Condvar,
    files: Mutex<DatabaseFiles>,
}

#[derive(Default)]
struct CommitQueue {
    waiting: Vec<Waiting>,
    /// True while a thread commits.
    is_busy: bool,
}

struct DatabaseFiles {
    writer: Option<Connection>,
    /// The connection for reads while the store can't be written.
    reader: Option<Connection>,
    durable: Durable,
    reserve: Reserve,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Database")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the store in a directory; creates the store if it is missing. If the store can't be
    /// written, this opens it for reading, and changes fail until writes succeed.
    pub fn open(directory: &Path) -> Result<Arc<Self>, OpenError> {
        let path = directory.join(FILE);
        connection::check_head(&path)?;
        let (writer, reader) = match connection::writer(&path) {
            Ok(writer) => (Some(writer), None),
            Err(OpenError::Io { source, .. }) if path.try_exists().unwrap_or(true) => {
                tracing::error!(path = %path.display(), error = %source, "the store is now read-only");
                (None, Some(connection::reader(&path)?))
            }
            Err(error) => return Err(error),
        };
        let mut reserve = Reserve::new(directory);
        if writer.is_some() {
            reserve.keep();
        }
        Ok(Arc::new(Self {
            path,
            is_read_only: false,
            queue: Mutex::default(),
            committed: Condvar::new(),
            files: Mutex::new(DatabaseFiles {
                writer,
                reader,
                durable: Durable::Now,
                reserve,
            }),
        }))
    }

    /// Opens the store in a directory only for reading, even while a daemon uses it.
    pub fn open_to_read(directory: &Path) -> Result<Arc<Self>, OpenError> {
        let path = directory.join(FILE);
        connection::check_head(&path)?;
        let (reader, reserve) = (Some(connection::reader(&path)?), Reserve::new(directory));
        Ok(Arc::new(Self {
            path,
            is_read_only: true,
            queue: Mutex::default(),
            committed: Condvar::new(),
            files: Mutex::new(DatabaseFiles {
                writer: None,
                reader,
                durable: Durable::Now,
                reserve,
            }),
        }))
    }

    /// Tells whether the store was opened only for reading.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns the path of the file with the changes that are not yet in the store's file.
    pub fn log(&self) -> PathBuf {
        connection::beside(&self.path, "-wal")
    }

    /// Returns the path of the store's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a change, alone or together with waiting changes. After an error, the store is
    /// unchanged. `frees` is true if the change makes room.
    pub fn commit(&self, durable: Durable, frees: bool, change: Change) -> io::Result<()> {
        self.wait(&self.submit(durable, frees, change))
    }

    /// Queues a change for the next commit.
    pub fn submit(&self, durable: Durable, frees: bool, change: Change) -> Ticket {
        let outcome = Arc::new(OnceLock::new());
        self.queue.lock().waiting.push(Waiting {
            change,
            durable,
            frees,
            outcome: Arc::clone(&outcome),
        });
        Ticket(outcome)
    }

    /// Waits until the store has made a change. The first waiting caller commits all waiting
    /// changes.
    pub fn wait(&self, ticket: &Ticket) -> io::Result<()> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(outcome) = ticket.outcome() {
                return outcome;
            }
            if queue.is_busy {
                self.committed.wait(&mut queue);
                continue;
            }
            queue.is_busy = true;
            let waiting = std::mem::take(&mut queue.waiting);
            MutexGuard::unlocked(&mut queue, || self.commit_all(&waiting));
            queue.is_busy = false;
            self.committed.notify_all();
        }
    }

    fn commit_all(&self, waiting: &[Waiting]) {
        let mut files = self.files.lock();
        let all = self.transaction(&mut files, waiting);
        if all.is_err() && waiting.len() > 1 {
            // One bad change must not prevent the others.
            for one in waiting {
                let _ = one
                    .outcome
                    .set(self.transaction(&mut files, std::slice::from_ref(one)));
            }
            return;
        }
        for one in waiting {
            let _ = one.outcome.set(all.clone());
        }
    }

    /// Makes changes in one transaction. After an error, the store has made none of them.
    fn transaction(
        &self,
        files: &mut DatabaseFiles,
        changes: &[Waiting],
    ) -> Result<(), (io::ErrorKind, String)> {
        let frees = changes.iter().all(|one| one.frees);
        let made = self.try_transaction(files, changes).or_else(|error| {
            if frees && error.kind() == io::ErrorKind::StorageFull && files.reserve.give_up() {
                return self.try_transaction(files, changes);
            }
            Err(error)
        });
        if made.is_ok() {
            files.reserve.keep();
        }
        made.map_err(|error| (error.kind(), error.to_string()))
    }

    fn try_transaction(&self, files: &mut DatabaseFiles, changes: &[Waiting]) -> io::Result<()> {
        let durable = if changes.iter().any(|one| one.durable == Durable::Now) {
            Durable::Now
        } else {
            Durable::Soon
        };
        if self.is_read_only {
            return Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                "the store is open for reading only",
            ));
        }
        if files.writer.is_none() {
            // The reader is closed first: a reader may keep this process from writing the file, or
            // assume that the file never changes.
            files.reader = None;
            let opened = connection::writer(&self.path).map_err(|error| match error {
                OpenError::Io { source, .. } => source,
                error => io::Error::other(error.to_string()),
            })?;
            (files.writer, files.durable) = (Some(opened), Durable::Now);
            tracing::info!(path = %self.path.display(), "the store can be written again");
        }
        let DatabaseFiles {
            writer: slot,
            durable: is,
            ..
        } = files;
        let Some(connection) = slot.as_ref() else {
            return Ok(());
        };
        let made = set_durable(connection, is, durable).and_then(|()| {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            changes
                .iter()
                .try_for_each(|one| (one.change)(connection))?;
            connection.prepare_cached("COMMIT")?.execute([]).map(drop)
        });
        let Err(error) = made else { return Ok(()) };
        // Some errors have ended the transaction already.
        let is_back = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        let reported = io_error(&error, &self.path);
        if is_lasting(&error) || !is_back {
            tracing::error!(path = %self.path.display(), %error, "the store can't be written");
            *slot = None;
        }
        Err(reported)
    }

    /// Reads the committed state of the store.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> io::Result<T> {
        let DatabaseFiles { writer, reader, .. } = &mut *self.files.lock();
        if writer.is_none() && reader.is_none() {
            let opened = connection::reader(&self.path).map_err(|error| match error {
                // To callers `NotFound` means a missing row, but here the whole store is missing.
                OpenError::Io { source, .. } if source.kind() != io::ErrorKind::NotFound => source,
                error => io::Error::other(error),
            })?;
            *reader = Some(opened);
        }
        let slot = if writer.is_some() { writer } else { reader };
        let Some(connection) = slot.as_ref() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        read(connection).map_err(|error| {
            if is_lasting(&error) {
                *slot = None;
            }
            let error = io_error(&error, &self.path);
            match error.kind() {
                io::ErrorKind::InvalidData => {
                    io::Error::new(error.kind(), OpenError::of(&self.path, error))
                }
                _ => error,
            }
        })
    }

    /// Returns the free room inside the file, in bytes. New rows fill this room before the file
    /// grows.
    pub fn unused(&self) -> u64 {
        let count = |connection: &Connection| {
            connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, u64>(0))
        };
        self.read(count)
            .map_or(0, |pages| pages.saturating_mul(connection::PAGE))
    }

    /// Closes the file. Later changes and reads open the store again.
    pub fn close(&self) {
        let mut files = self.files.lock();
        (files.writer, files.reader) = (None, None);
    }
}

fn set_durable(connection: &Connection, is: &mut Durable, wanted: Durable) -> rusqlite::Result<()> {
    if *is != wanted {
        let mode = if wanted == Durable::Now {
            "full"
        } else {
            "normal"
        };
        connection.pragma_update(None, "synchronous", mode)?;
        *is = wanted;
    }
    Ok(())
}

impl Database {
    /// Examines every page. Returns the errors.
    pub fn check(&self) -> io::Result<Vec<String>> {
        self.read(|connection| {
            let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
            let found = statement.query_map([], |row| row.get::<_, String>(0))?;
            let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(found.into_iter().filter(|line| line != "ok").collect())
        })
    }
}
