//! One transaction for all waiting changes: the first thread also commits the changes of the others, and one
//! sync of the disk makes all of them last.

use std::io;
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;

/// A change of the store. The store may repeat the change after a failure, so the change has no other effect.
pub type Change = Box<dyn Fn(&Connection) -> rusqlite::Result<()> + Send>;

/// The events that a change must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// A power failure, from the moment when the commit returns.
    Now,
    /// The end of the process, from the moment when the commit returns; a power failure, from the next commit
    /// on.
    Soon,
}

/// A change that waits for its commit.
pub struct Waiting {
    pub change: Change,
    pub durable: Durable,
    /// True if the change makes room, and may use the reserve for that.
    pub frees: bool,
    pub outcome: CommitEnd,
}

/// The end of a commit: `None` until then.
pub type CommitEnd = Arc<OnceLock<Result<(), (io::ErrorKind, String)>>>;

/// A change that was handed over. It is made once [`Database::wait`](crate::Database::wait) returns.
#[derive(Debug)]
#[must_use]
pub struct Ticket(pub(crate) CommitEnd);

impl Ticket {
    pub(crate) fn outcome(&self) -> Option<io::Result<()>> {
        let outcome = self.0.get()?;
        Some(outcome.clone().map_err(|(kind, reason)| io::Error::new(kind, reason)))
    }
}
