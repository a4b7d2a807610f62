//! What is known of a probe from before its present deployment.

use super::reading::{Before, timestamp};
use crate::kernel::clock;
use crate::store::StoredProbe;

/// Which of a probe's configurations it is, and since when there is one.
pub(super) struct History {
    pub revision: u64,
    pub created: String,
    /// The deployment before, if there was one.
    pub before: Option<Before>,
    /// Whether a request puts the probe in the place of that deployment. A start that deploys a stored probe anew
    /// replaces nothing: what `on_replace` says is not meant.
    pub replaces: bool,
}

impl History {
    pub fn new() -> Self {
        Self { revision: 1, created: timestamp(clock::now()), before: None, replaces: false }
    }

    /// Of what is stored.
    pub fn of(stored: &StoredProbe) -> Self {
        let before = Before(stored.running.as_ref().map(|running| running.deployment.serial));
        Self {
            revision: stored.revision,
            created: stored.created.clone(),
            before: Some(before),
            replaces: false,
        }
    }

    /// `last` is the last revision that there is a file of.
    pub fn next(self, last: u64) -> Self {
        let created = if self.created.is_empty() { Self::new().created } else { self.created.clone() };
        // A revision that was prepared and not committed is written again.
        let revision = if self.revision == 0 { last } else { self.revision } + 1;
        Self { revision, created, replaces: true, ..self }
    }
}
