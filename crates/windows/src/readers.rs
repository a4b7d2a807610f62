//! The windows that clients are reading. If such a window is removed during the reading, its file
//! takes room until all readers close it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::body::stored::WindowReader;

/// The windows that clients are reading, in the order of their opening.
#[derive(Debug, Default)]
pub struct Readers(Mutex<Vec<Weak<WindowReader>>>);

impl Readers {
    /// Notes a window that a client is about to take.
    pub fn add(&self, reader: &Arc<WindowReader>) {
        let mut readers = self.0.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(reader));
    }

    /// Tells whether no window is being read.
    pub fn is_empty(&self) -> bool {
        let mut readers = self.0.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.is_empty()
    }

    /// Closes files that were removed, until the remaining ones take at most `bytes`. The files
    /// that were opened first are closed first.
    pub fn limit(&self, bytes: u64) {
        let readers: Vec<Arc<WindowReader>> =
            self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let mut held: u64 = readers.iter().map(|reader| reader.held()).sum();
        for reader in readers {
            if held <= bytes {
                return;
            }
            let size = reader.held();
            if size > 0 {
                held -= size;
                reader.close();
                tracing::warn!(
                    probe = reader.head.probe,
                    seq = reader.head.window.seq,
                    "a window was removed before a slow client had read it"
                );
            }
        }
    }
}
