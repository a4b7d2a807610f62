//! Files of windows that are on disk to stay: by the log, or each by itself.
//!
//! With the log the content is on disk before the file has its name, so that no loss of power leaves the name of a window
//! or of the state with a content that nobody knows.

use std::fs;
use std::io::{self, Write as _};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::NamedTempFile;

use crate::file::directory::{Directory, Form, Step, sync};
use crate::log::log::{Ahead, Ticket};
use crate::log::record::{Change, LONGEST};

/// A file of a window that may not be on disk to stay.
#[derive(Debug)]
pub enum Durable {
    /// The file has its name, and was synced.
    Synced,
    /// The file gets its name once the log has its content.
    Noted { file: NamedTempFile, ahead: Ahead },
}

impl Directory {
    /// Notes a change of files that was made in the log, if there is one.
    pub fn note(&self, change: Change<'_>) -> Option<Ticket> {
        self.log.as_ref()?.append(self.probe()?, change)
    }

    /// Notes changes that are to be made in the log, if there is one that can take them.
    pub fn note_ahead(&self, changes: &[Change<'_>]) -> Option<Ahead> {
        let log = self.log.as_ref()?;
        let fits = |change: &Change<'_>| match change {
            Change::Written { content, .. } | Change::State { content } => content.len() <= LONGEST,
            _ => true,
        };
        if changes.iter().all(fits) { log.append_ahead(self.probe()?, changes) } else { None }
    }

    fn probe(&self) -> Option<&str> {
        self.path().file_name()?.to_str()
    }

    /// Brings the file of a window to the disk. `content` is all of the file; `None` if it is too long for the log. `state`
    /// is what the state will be with the window, as far as that is known. The window is on disk to stay, and has its
    /// name, once [`Self::publish`] returns; after an error there is no such file.
    pub fn file_window(
        &self,
        file: NamedTempFile,
        seq: u64,
        content: Option<&[u8]>,
        state: Option<&[u8]>,
    ) -> io::Result<Durable> {
        self.step(Step::Write)?;
        if let Some(content) = content {
            let (written, state) =
                (Change::Written { seq, content }, state.map(|content| Change::State { content }));
            let changes = [Some(written), state];
            if let Some(ahead) = self.note_ahead(&changes.into_iter().flatten().collect::<Vec<_>>()) {
                return Ok(Durable::Noted { file, ahead });
            }
        }
        self.publish_synced(file, seq)?;
        Ok(Durable::Synced)
    }

    /// Syncs the file of a window, and gives it its name.
    fn publish_synced(&self, file: NamedTempFile, seq: u64) -> io::Result<()> {
        // The file is synced before it has its name: a file of a window is never found half written.
        file.as_file().sync_all()?;
        file.persist_noclobber(self.file(seq, Form::Window)).map_err(|error| error.error)?;
        let published = self.step(Step::Rename).and_then(|()| sync(self.path()));
        // The caller will write the window again, and there must not be two files.
        published.inspect_err(|_| self.remove(seq, Form::Window))?;
        // The log is older than a file that it does not know.
        self.note(Change::Renamed { seq, form: Form::Window });
        Ok(())
    }

    /// Gives the file of a window its name. `is_logged` says whether the log has its content. After an error there is no
    /// such file.
    pub fn publish(&self, file: NamedTempFile, seq: u64, is_logged: bool) -> io::Result<()> {
        if !is_logged {
            // A window that the log can't take is synced by itself.
            return self.publish_synced(file, seq);
        }
        let named = file.persist_noclobber(self.file(seq, Form::Window)).map_err(|error| error.error);
        named?;
        self.step(Step::Rename).inspect_err(|_| self.remove(seq, Form::Window))
    }

    /// Replaces `state.json`. `is_logged` says whether the log has its content, else it is on disk to stay by itself.
    pub fn write_state(&self, bytes: &[u8], is_logged: bool) -> io::Result<()> {
        let spares = self.spares.as_ref().filter(|_| is_logged);
        let (mut file, before) = match spares.and_then(|spares| spares.for_state()) {
            Some(spare) => self.step(Step::Write).map(|()| spare)?,
            None => (self.create()?, 0),
        };
        file.write_all(bytes)?;
        if before > bytes.len() as u64 {
            file.as_file().set_len(bytes.len() as u64)?;
        }
        if !is_logged {
            file.as_file().sync_all()?;
        }
        self.step(Step::Rename)?;
        let state = self.state();
        if let Some(spares) = spares
            && renameat_with(CWD, file.path(), CWD, &state, RenameFlags::EXCHANGE).is_ok()
        {
            let spare = file.into_temp_path().keep().map_err(|error| error.error)?;
            spares.keep_state(spare);
            return Ok(());
        }
        file.persist(state).map_err(|error| error.error)?;
        if is_logged { Ok(()) } else { sync(self.path()) }
    }

    /// Removes a file that was set aside. `removal` is the record of it; without one the file can't be written again.
    pub fn set_aside(&self, spare: std::path::PathBuf, removal: Option<Ticket>) -> io::Result<()> {
        match (&self.spares, removal) {
            (Some(spares), Some(removal)) => {
                spares.keep(spare, removal);
                Ok(())
            }
            _ => fs::remove_file(spare),
        }
    }
}
