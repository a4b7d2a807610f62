//! Files of windows that are on disk to stay: by the log, or each by itself.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;

use tempfile::NamedTempFile;

use crate::file::directory::{Directory, Form, Step, sync};
use crate::log::log::{Log, Ticket};
use crate::log::record::{Change, LONGEST};

/// A file of a window that has its name.
#[derive(Debug)]
pub struct Durable {
    file: File,
    /// The record of the window; `None` if the file is synced.
    noted: Option<(Arc<Log>, Ticket)>,
}

/// A `state.json` that has its name, and its record in the log.
#[derive(Debug)]
pub struct Saving {
    file: File,
    noted: (Arc<Log>, Ticket),
}

impl Directory {
    /// Notes a change of files in the log, if there is one. Returns the ticket to wait for.
    pub fn note(&self, change: Change<'_>) -> Option<(Arc<Log>, Ticket)> {
        let log = self.log.as_ref()?;
        let probe = self.path().file_name()?.to_str()?;
        Some((Arc::clone(log), log.append(probe, change)?))
    }

    /// Gives the file of a window its name. `content` is all of the file; `None` if it is too long for the log. The window
    /// is on disk to stay once [`Self::wait`] returns; after an error there is no such file.
    pub fn publish(&self, file: NamedTempFile, seq: u64, content: Option<&[u8]>) -> io::Result<Durable> {
        self.step(Step::Write)?;
        let content = content.filter(|content| self.log.is_some() && content.len() <= LONGEST);
        if content.is_none() {
            // The file is synced before it has its name: a file of a window is never found half written.
            file.as_file().sync_all()?;
        }
        let path = self.file(seq, Form::Window);
        let file = file.persist_noclobber(&path).map_err(|error| error.error)?;
        // The caller will write the window again, and there must not be two files.
        let published = self.step(Step::Rename).and_then(|()| {
            match content.and_then(|content| self.note(Change::Written { seq, content })) {
                Some(noted) => Ok(Durable { file, noted: Some(noted) }),
                None => {
                    if content.is_some() {
                        file.sync_all()?;
                    }
                    sync(self.path())?;
                    // The log is older than a file that it does not know.
                    self.note(Change::Renamed { seq, form: Form::Window });
                    Ok(Durable { file, noted: None })
                }
            }
        });
        published.inspect_err(|_| self.remove(seq, Form::Window))
    }

    /// Waits until a file that was published is on disk to stay. After an error there is no such file.
    pub fn wait(&self, seq: u64, durable: Durable) -> io::Result<()> {
        let Durable { file, noted } = durable;
        let waited = noted.map_or(Ok(()), |(log, ticket)| {
            self.step(Step::Write)?;
            // A window that the log can't take is synced by itself.
            log.wait(ticket).or_else(|_| file.sync_all().and_then(|()| sync(self.path())))
        });
        waited.inspect_err(|_| self.remove(seq, Form::Window))
    }

    /// Replaces `state.json`, which is on disk to stay once the ticket was waited for, if there is one.
    pub fn write_state(&self, bytes: &[u8]) -> io::Result<Option<Saving>> {
        let mut file = self.create()?;
        file.write_all(bytes)?;
        let is_logged = self.log.is_some() && bytes.len() <= LONGEST;
        if !is_logged {
            file.as_file().sync_all()?;
        }
        self.step(Step::Rename)?;
        let file = file.persist(self.state()).map_err(|error| error.error)?;
        if is_logged {
            if let Some(noted) = self.note(Change::State { content: bytes }) {
                return Ok(Some(Saving { file, noted }));
            }
            file.sync_all()?;
        }
        sync(self.path())?;
        Ok(None)
    }

    /// Waits until a state is on disk to stay.
    pub fn wait_for_state(&self, saving: Saving) -> io::Result<()> {
        let Saving { file, noted: (log, ticket) } = saving;
        log.wait(ticket).or_else(|_| file.sync_all().and_then(|()| sync(self.path())))
    }
}
