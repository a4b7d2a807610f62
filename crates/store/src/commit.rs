//! One transaction for all waiting changes: the first thread commits the changes of all waiting
//! threads, and one sync of the disk makes all changes durable.

use std::io;
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;

/// A change of the store. The store may repeat the change after a failure, so the change has no
/// other effect.
pub type Change = Box<dyn Fn(&Connection) -> rusqlite::Result<()> + Send>;

/// The failures that a change must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// The change survives a power failure as soon as the commit returns.
    Now,
    /// The change survives the end of the process as soon as the commit returns. It survives a
    /// power failure only after the next commit.
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

/// The result of a commit; `None` until the commit has ended.
pub type CommitEnd = Arc<OnceLock<Result<(), (io::ErrorKind, String)>>>;

/// A change that was given to the store. The store has made the change once
/// [`Database::wait`](crate::Database::wait) returns.
#[derive(Debug)]
#[must_use]
pub struct Ticket(pub(crate) CommitEnd);

impl Ticket {
    pub(crate) fn outcome(&self) -> Option<io::Result<()>> {
        let outcome = self.0.get()?;
        Some(
            outcome
                .clone()
                .map_err(|(kind, reason)| io::Error::new(kind, reason)),
        )
    }
}
