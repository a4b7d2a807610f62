//! The bodies of windows for their readers.

use std::io;
use std::sync::Arc;

use twinprobe_store::Durable;

use crate::body::content::Content;
use crate::body::draft::BodyDraft;
use crate::body::format::Unusable;
use crate::body::head::WindowHead;
use crate::body::stored::{BodySource, StoredWindow, WindowError, WindowReader};
use crate::body::verified::VerifiedBodies;
use crate::rows::{self, SqlTable};
use crate::windows::Windows;

impl Windows {
    /// Opens several windows. The store gives small ones at once.
    pub fn open_all(
        &self,
        windows: &[Arc<StoredWindow>],
    ) -> Vec<Result<WindowReader, WindowError>> {
        let small = windows.iter().filter(|window| !window.is_file);
        let ids: Vec<i64> = small.map(|window| window.id).collect();
        // A window whose body is missing from this list gives its own reason for that.
        let mut bodies = rows::window_bodies(&self.database, &ids).unwrap_or_default();
        let open = |window: &Arc<StoredWindow>| match bodies.remove(&window.id) {
            Some(body) => window.open_with(self, Ok(Content::Bytes(body))),
            None => window.open(),
        };
        windows.iter().map(open).collect()
    }
}

impl BodySource for Windows {
    fn content(&self, window: &StoredWindow) -> io::Result<Content> {
        if window.is_file {
            return self.bodies.open(window.id).map(Content::File);
        }
        let body = rows::body(&self.database, SqlTable::Windows, window.id)?;
        body.map(Content::Bytes)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn below(&self, window: &StoredWindow) -> Vec<Arc<StoredWindow>> {
        self.index.lock().below(window)
    }

    fn whole_head(&self, window: &StoredWindow) -> Result<Arc<WindowHead>, Unusable> {
        let first = self.below(window).into_iter().next();
        let Some(whole) = first.filter(|first| first.seq() == window.from) else {
            return Err(Unusable::Damaged(format!(
                "it builds on window {}, which is missing",
                window.from
            )));
        };
        if let Some(head) = self.whole_heads.get(whole.id) {
            return Ok(head);
        }
        let head = whole
            .read_alone(self)
            .map_err(|error| whole.is_built_on(error))?
            .head;
        self.whole_heads.insert(whole.id, Arc::clone(&head));
        Ok(head)
    }

    fn verified(&self) -> &VerifiedBodies {
        &self.bodies.verified
    }

    fn copy(&self) -> BodyDraft {
        self.bodies.copy(!self.database.is_read_only())
    }

    fn set_aside(&self, window: &StoredWindow, reason: &str) {
        self.begin_anew();
        let turn = self.turn();
        let index = self.index.lock();
        // The window may be removed together with its probe during a reading.
        if index.removed {
            return;
        }
        // A window that is not in the index any more was acknowledged or dropped.
        let Some(change) = index.damage(window.id) else {
            return;
        };
        drop(index);
        tracing::error!(
            probe = self.name,
            seq = window.seq(),
            reason,
            "a window is damaged and set aside"
        );
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
