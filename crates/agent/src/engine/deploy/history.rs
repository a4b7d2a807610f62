//! The facts about a probe from before its present deployment.

use rustix::rand::{GetRandomFlags, getrandom};
use twinprobe_kernel::clock::rfc3339;
use twinprobe_kernel::{KernelError, clock};

use crate::engine::probe::lease::Lease;
use crate::store::files::hex;
use crate::store::record::StoredProbe;
use crate::store::room::Dropped;

/// The revision of a probe's configuration, the time when the probe was created, and the deployment before.
pub struct History {
    pub revision: u64,
    pub created: String,
    /// The id that the probe got when it was created.
    pub instance: String,
    /// The lease of the deployment; `None` if it has no end.
    pub lease: Option<Lease>,
    /// The sender of the configuration, if that is known.
    pub pushed_by: Option<String>,
    /// The sender's reason for the configuration. The revision's file has it.
    pub message: Option<String>,
    /// The deployment before, if there was one.
    pub before: Option<Before>,
    /// True if a request puts the probe in the place of that deployment. A start that deploys a stored probe anew
    /// replaces nothing, so `on_replace` does not apply.
    pub replaces: bool,
    /// The revisions that go so that there is room.
    pub dropped: Dropped,
}

impl History {
    /// Returns the history of a probe that is created now.
    pub fn new() -> Result<Self, KernelError> {
        let instance = new_instance()?;
        let created = rfc3339(clock::now());
        Ok(Self {
            revision: 1,
            created,
            instance,
            lease: None,
            pushed_by: None,
            message: None,
            before: None,
            replaces: false,
            dropped: Dropped::default(),
        })
    }

    /// Returns the history that a stored probe records.
    pub fn of(stored: &StoredProbe) -> Result<Self, KernelError> {
        let before = Before(stored.running.as_ref().map(|running| running.deployment.serial));
        Ok(Self {
            revision: stored.revision,
            created: stored.created.clone(),
            instance: stored.instance.clone().map_or_else(new_instance, Ok)?,
            lease: None,
            pushed_by: stored.pushed_by.clone(),
            message: None,
            before: Some(before),
            replaces: false,
            dropped: Dropped::default(),
        })
    }

    /// Returns the history of the next revision. `last` is the newest revision that has a file.
    pub fn next(self, last: u64) -> Self {
        let created = if self.created.is_empty() { rfc3339(clock::now()) } else { self.created.clone() };
        // A revision that was prepared but not committed is written again.
        let revision = if self.revision == 0 { last } else { self.revision } + 1;
        Self { revision, created, replaces: true, ..self }
    }
}

/// Returns a random id of 128 bits, which no other probe has.
fn new_instance() -> Result<String, KernelError> {
    let mut id = [0; 16];
    let filled = getrandom(&mut id, GetRandomFlags::empty());
    filled.map_err(|error| KernelError::new("getrandom", "the id of a new probe", error.into()))?;
    Ok(hex(&id))
}

/// The serial of the deployment before this one, if that deployment does not run any more; `None` if the serial is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before(pub Option<u64>);
