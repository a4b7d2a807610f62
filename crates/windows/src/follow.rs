//! The changes of files that follow a decision of the index, in an order that a crash may interrupt anywhere.

use std::fs::File;
use std::io;

use crate::file::directory::Form;
use crate::file::stored::WindowFiles;
use crate::index::Change;
use crate::restore;
use crate::windows::Windows;

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
        let directory = &self.directory;
        // Windows that were served need no entry in the state, and go first: no newer window may be lost while they
        // exist.
        change.served.iter().for_each(|&(seq, form)| directory.remove(seq, form));
        let mut known = self.save();
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
        change.damaged.iter().for_each(|name| directory.remove_damaged(name));
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
        let index = self.index.lock();
        if !index.unsaved {
            return Ok(());
        }
        let state = index.state.clone();
        drop(index);
        restore::save(&self.directory, &state)?;
        let mut index = self.index.lock();
        index.unsaved = false;
        let marked = std::mem::take(&mut index.marked);
        drop(index);
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
