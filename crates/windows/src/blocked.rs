//! The files that can't be read now, or that a later version has written: they are left as they are, and examined again
//! whenever somebody asks for their content.

use std::io;

use crate::file::directory::Form;
use crate::file::format::Unusable;
use crate::restore;
use crate::windows::Windows;

impl Windows {
    /// Examines again the file of a window that could not be read.
    pub fn look_again(&self, seq: u64) {
        if !self.index.lock().unreadable.contains_key(&seq) {
            return;
        }
        let _turn = self.changes.lock();
        if self.unblock().is_err() {
            // The check has examined all files again.
            return;
        }
        let Some(form) = self.index.lock().unreadable.get(&seq).map(|file| file.form) else { return };
        let path = self.directory.file(seq, form);
        match restore::examine(&self.directory, seq, form, &self.itself) {
            Ok((window, _)) => {
                tracing::info!(path = %path.display(), "the file of a window can be read again");
                let mut index = self.index.lock();
                index.unreadable.remove(&seq);
                if seq > index.state.acknowledged {
                    index.keep(window.into(), form);
                } else if index.newest().is_none_or(|newest| newest.seq() < seq) {
                    index.keep(window.into(), Form::Acked);
                }
                drop(index);
                self.weigh();
            }
            Err(Unusable::Damaged(reason)) => {
                tracing::error!(path = %path.display(), reason, "the file of a window is damaged and set aside");
                let mut index = self.index.lock();
                index.unreadable.remove(&seq);
                index.lose_damaged(seq);
                drop(index);
                // A failed save was logged, and the next change repeats it.
                let _ = self.save();
                self.directory.rename(seq, form, Form::Damaged);
                self.weigh();
            }
            Err(Unusable::Io(_) | Unusable::Newer(..)) => {}
        }
    }

    /// Returns an error while nothing in the directory may be changed; checks first whether that is over.
    pub fn expect_open(&self) -> io::Result<()> {
        let _turn = self.changes.lock();
        self.unblock()
    }

    /// Does the same as [`Self::expect_open`]. The caller holds `changes`.
    pub fn unblock(&self) -> io::Result<()> {
        if self.index.lock().blocked.is_none() {
            return Ok(());
        }
        let mut found = restore::restore(&self.directory, &self.itself);
        let mut index = self.index.lock();
        found.limits = std::mem::take(&mut index.limits);
        found.removed = index.removed;
        (found.saves, found.saved) = (index.saves, index.saved);
        *index = found;
        if let Some(reason) = &index.blocked {
            return Err(io::Error::other(reason.clone()));
        }
        let limits = index.limits.clone();
        let change = index.set_limits(limits);
        let last = index.state.last;
        drop(index);
        // A failed save was logged, and the next change repeats it.
        let _ = self.apply(&change);
        self.newest.send_replace(last);
        Ok(())
    }
}
