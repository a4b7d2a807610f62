//! The opening of windows. Readers get whole sums, from every form of a window.

use std::io;

use crate::body::content::Content;
use crate::body::format::{BodyDigest, Unusable};
use crate::body::rebuilt::rebuilt;
use crate::body::stored::{BodySource, StoredWindow, WindowError, WindowReader, unread};

impl StoredWindow {
    /// Does the same as [`Self::open`], and changes nothing.
    pub fn examine(&self) -> io::Result<WindowReader> {
        let source = self.source.upgrade().ok_or(io::ErrorKind::NotFound)?;
        self.read(&*source, source.content(self)).map_err(unread)
    }

    /// Reads the whole body once and checks its digest. A damaged window is set aside.
    pub fn open(&self) -> Result<WindowReader, WindowError> {
        let source = self.source.upgrade().ok_or(WindowError::Gone)?;
        self.open_with(&*source, source.content(self))
    }

    /// Opens a fetched body.
    pub fn open_with(
        &self,
        source: &dyn BodySource,
        content: io::Result<Content>,
    ) -> Result<WindowReader, WindowError> {
        let opened = self.read(source, content);
        source.note_readable(self, !matches!(opened, Err(Unusable::Newer(..))));
        match opened {
            Ok(reader) => Ok(reader),
            Err(Unusable::Damaged(reason)) => {
                source.set_aside(self, &reason);
                Err(WindowError::Damaged(reason))
            }
            Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                // The window was neither acknowledged nor dropped, so somebody else has removed the
                // file.
                source.set_aside(self, "its body is no longer there");
                Err(WindowError::Gone)
            }
            Err(Unusable::Io(error)) => {
                source.note_readable(self, false);
                Err(WindowError::Io(error))
            }
            Err(newer @ Unusable::Newer(..)) => Err(WindowError::Newer(newer.to_string())),
        }
    }

    /// Examines the window, and computes its sums if it holds only changes.
    fn read(
        &self,
        source: &dyn BodySource,
        content: io::Result<Content>,
    ) -> Result<WindowReader, Unusable> {
        let reader = self.read_content(source, content, BodyDigest::Unknown)?;
        if reader.head.changes.is_some() {
            rebuilt(source, self, &reader)
        } else {
            Ok(reader)
        }
    }
}
