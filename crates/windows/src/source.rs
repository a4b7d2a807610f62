//! The bodies of windows, as their readers get them.

use std::io;

use twinprobe_store::Durable;

use crate::body::content::Content;
use crate::body::stored::{Source, StoredWindow};
use crate::rows::{self, Table};
use crate::windows::Windows;

impl Source for Windows {
    fn content(&self, window: &StoredWindow) -> io::Result<Content> {
        if window.is_file {
            return self.bodies.open(window.id).map(Content::File);
        }
        let body = rows::body(&self.database, Table::Windows, window.id)?;
        body.map(Content::Bytes).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn set_aside(&self, window: &StoredWindow, reason: &str) {
        let turn = self.turn();
        let index = self.index.lock();
        // With its probe, a window goes while it is read.
        if index.removed {
            return;
        }
        // A window that is not in the index was acknowledged or dropped meanwhile.
        let Some(change) = index.damage(window.id) else { return };
        drop(index);
        tracing::error!(probe = self.name, seq = window.seq(), reason, "a window is damaged and set aside");
        let _ = self.change(turn, change, Durable::Now);
    }

    fn note_readable(&self, window: &StoredWindow, is_readable: bool) {
        let mut index = self.index.lock();
        if is_readable {
            index.unreadable.remove(&window.seq());
        } else {
            index.unreadable.insert(window.seq());
        }
    }
}
