//! The changes of files that follow a decision of the index, in an order that a crash may interrupt anywhere.

use std::fs::File;
use std::io;

use crate::file::directory::{Directory, Form};
use crate::file::stored::WindowFiles;
use crate::index::Change;
use crate::log::record as log;
use crate::restore::{self, Saving};
use crate::state::State;
use crate::windows::Windows;

/// A state that is to be written.
#[derive(Debug, Default)]
pub struct Begun {
    saving: Option<Saving>,
    /// Lost windows whose `SEQ.lost` files the state makes needless.
    marked: Vec<u64>,
    /// The number of this state among all that were to be written.
    number: u64,
}

impl WindowFiles for Windows {
    fn file(&self, seq: u64) -> io::Result<File> {
        self.directory.open(seq)
    }

    /// Sets a damaged file aside, unless nothing in the directory may be changed now.
    fn set_aside(&self, seq: u64, reason: &str) {
        let _turn = self.changes.lock();
        if self.unblock().is_err() {
            return;
        }
        // A window that is not in the index was acknowledged or dropped while it was read.
        let damaged = self.index.lock().damage(seq);
        let Some(form) = damaged else { return };
        let path = self.directory.file(seq, form);
        tracing::error!(path = %path.display(), reason, "the file of a window is damaged and set aside");
        let saved = self.save();
        if saved.is_err() && form != Form::Acked {
            // A later acknowledgement would hide that this window was lost before.
            self.directory.mark_lost(seq);
            self.index.lock().marked.push(seq);
        }
        self.directory.rename(seq, form, Form::Damaged);
        if saved.is_ok() {
            restore::forget_damaged(&self.directory);
        }
        self.weigh();
    }
}

impl Windows {
    /// Changes the files as decided. An error says that the next start would not know of the change. The caller holds
    /// `changes`.
    pub fn apply(&self, change: &Change) -> Result<(), io::ErrorKind> {
        let begun = self.begin(change, None);
        self.follow(change, begun)
    }

    /// Notes the state that a decision has changed in the log. [`Self::follow`] waits until it is on disk. `noted` is a
    /// state that was noted before, and whether it is on disk. The caller holds `changes`.
    pub fn begin(&self, change: &Change, noted: Option<(&State, bool)>) -> Result<Begun, io::ErrorKind> {
        // Windows that were served need no entry in the state, and go first: no newer window may be lost while they
        // exist.
        change.served.iter().for_each(|&(seq, form)| self.directory.remove(seq, form));
        self.begin_save(noted)
    }

    /// Takes back what the log has of a window that could not be published, and of the state with it. The caller holds
    /// `changes`.
    pub fn take_back(&self, seq: u64, has_state: bool) {
        self.directory.note(log::Change::Removed { seq });
        if has_state {
            self.index.lock().unsaved = true;
            // A failed save was logged, and the next change repeats it.
            let _ = self.save();
        }
    }

    /// Changes the files as decided, after the state is on disk.
    pub fn follow(&self, change: &Change, begun: Result<Begun, io::ErrorKind>) -> Result<(), io::ErrorKind> {
        let directory = &self.directory;
        let mut known = begun.and_then(|begun| self.end_save(begun));
        let saved = known.is_ok();
        if !saved {
            change.lost.iter().for_each(|&(seq, _)| directory.mark_lost(seq));
            self.index.lock().marked.extend(change.lost.iter().map(|&(seq, _)| seq));
        }
        let (others, last) = change.acknowledged.split_at(change.acknowledged.len().saturating_sub(1));
        let mut last = last.first().copied();
        // The name of the last acknowledged file says that all windows before it are acknowledged, too, in case the
        // state does not.
        if let Some((seq, form)) = &mut last
            && (change.newest_acknowledged || !saved)
            && directory.rename(*seq, *form, Form::Acked)
        {
            *form = Form::Acked;
            known = Ok(());
        }
        let gone = [others, &change.lost].concat();
        gone.iter().for_each(|&(seq, form)| directory.remove(seq, form));
        // Without a saved state the name may be all that tells of the damage.
        let discard = if saved { Directory::remove_damaged } else { Directory::empty_damaged };
        change.damaged.iter().for_each(|name| discard(directory, name));
        change.superseded.iter().for_each(|&seq| directory.remove(seq, Form::Acked));
        if !saved && !gone.is_empty() {
            // The removals may have made room for the state.
            known = self.save().or(known);
        }
        if let Some((seq, form)) = last.filter(|_| !change.newest_acknowledged) {
            directory.remove(seq, form);
        }
        known
    }

    /// Notes the sizes of the files that are no windows. To be called after such a file has come or gone, by a caller
    /// that holds `changes`.
    pub fn weigh(&self) {
        let files = self.directory.sizes();
        self.index.lock().weigh(files);
    }

    /// Writes the state to disk if it has changed.
    pub fn save(&self) -> Result<(), io::ErrorKind> {
        self.begin_save(None).and_then(|begun| self.end_save(begun))
    }

    fn begin_save(&self, noted: Option<(&State, bool)>) -> Result<Begun, io::ErrorKind> {
        let index = self.index.lock();
        let is_as_noted = noted.is_some_and(|(state, _)| *state == index.state);
        // The state in the log must not stay if the state is another one meanwhile.
        if !index.unsaved && (noted.is_none() || is_as_noted) {
            return Ok(Begun::default());
        }
        let state = index.state.clone();
        drop(index);
        let is_logged = is_as_noted && noted.is_some_and(|(_, is_logged)| is_logged);
        let saving = restore::begin_save(&self.directory, &state, is_logged)?;
        let mut index = self.index.lock();
        index.unsaved = false;
        index.saves += 1;
        Ok(Begun { saving: Some(saving), marked: std::mem::take(&mut index.marked), number: index.saves })
    }

    fn end_save(&self, Begun { saving, marked, number }: Begun) -> Result<(), io::ErrorKind> {
        // A later state may have been written meanwhile.
        let saving = saving.filter(|_| self.index.lock().saved < number);
        let ended = saving.map_or(Ok(()), |saving| {
            restore::end_save(&self.directory, saving)?;
            self.index.lock().saved = number;
            Ok(())
        });
        if let Err(kind) = ended {
            let mut index = self.index.lock();
            index.unsaved = true;
            index.marked.extend(marked);
            return Err(kind);
        }
        marked.into_iter().for_each(|seq| self.directory.remove(seq, Form::Lost));
        Ok(())
    }

    /// Removes all windows together with their probe.
    pub fn remove(&self) -> io::Result<()> {
        let _turn = self.changes.lock();
        self.index.lock().removed = true;
        self.directory.remove_all()
    }
}
