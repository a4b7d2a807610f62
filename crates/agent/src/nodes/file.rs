//! The file of nodes, which the daemon reads again while it runs.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::nodes::book::{NodeBook, PLACES};
use crate::nodes::options::NodesOptions;

/// The nodes in the file, as it was last read. A running request keeps the nodes with which it
/// began.
#[derive(Debug)]
pub struct NodesFile {
    options: NodesOptions,
    current: RwLock<Arc<NodeBook>>,
}

impl NodesFile {
    /// Reads the file; `None` without the option. An error names the option, the line and what is
    /// wrong.
    pub fn open(options: NodesOptions) -> Result<Option<Self>, String> {
        if options.nodes.is_none() {
            return Ok(None);
        }
        let book = NodeBook::open(&options, Arc::new(Semaphore::new(PLACES)))?;
        Ok(Some(Self {
            options,
            current: RwLock::new(Arc::new(book)),
        }))
    }

    /// Reads the file again, for new requests. A file with a mistake changes nothing.
    pub fn reload(&self) {
        let places = Arc::clone(&self.book().places);
        match NodeBook::open(&self.options, places) {
            Ok(book) => {
                let nodes = book.nodes.len();
                *self.current.write() = Arc::new(book);
                tracing::info!(nodes, "the nodes were read again");
            }
            Err(error) => tracing::error!(error, "the nodes stay as they are"),
        }
    }

    pub fn book(&self) -> Arc<NodeBook> {
        Arc::clone(&self.current.read())
    }
}
