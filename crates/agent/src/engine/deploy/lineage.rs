//! The facts about a probe that are older than its present deployment, and the changes of probes in
//! the form of the history.

use rustix::rand::{GetRandomFlags, getrandom};
use twinprobe_access::Who;
use twinprobe_api::{ChangeKind, HistoryEntry};
use twinprobe_ebpf_common::ProbeCost;
use twinprobe_kernel::clock::rfc3339;
use twinprobe_kernel::{KernelError, clock};

use crate::engine::deploy::cause::ChangeAuthor;
use crate::engine::probe::lease::Lease;
use crate::store::error::hex;
use crate::store::record::StoredProbe;
use crate::store::room::Dropped;

/// The revision of a probe's configuration, the time when the probe was created, and the previous
/// deployment.
pub struct Lineage {
    pub revision: u64,
    pub created: String,
    /// The id that the probe got when it was created.
    pub instance: String,
    /// The lease of the deployment; `None` if the deployment does not end.
    pub lease: Option<Lease>,
    /// The sender of the configuration, if that is known.
    pub pushed_by: Option<String>,
    /// The author of the change; `None` if a start deploys a stored probe anew.
    pub author: Option<ChangeAuthor>,
    /// The cost of the previous deployment, if it is known.
    pub cost_before: Option<ProbeCost>,
    /// The previous deployment, if there was one.
    pub before: Option<EarlierSerial>,
    /// True if a request replaces that deployment with the probe. A start that deploys a stored
    /// probe again replaces nothing, so that `on_replace` does not apply.
    pub replaces: bool,
    /// The revisions that are removed to make room.
    pub dropped: Dropped,
}

impl Lineage {
    /// Returns the lineage of a probe that is created now.
    pub fn new() -> Result<Self, KernelError> {
        let instance = new_instance()?;
        let created = rfc3339(clock::now());
        Ok(Self {
            revision: 1,
            created,
            instance,
            lease: None,
            pushed_by: None,
            author: None,
            cost_before: None,
            before: None,
            replaces: false,
            dropped: Dropped::default(),
        })
    }

    /// Returns the lineage that a stored probe records.
    pub fn of(stored: &StoredProbe) -> Result<Self, KernelError> {
        let before = EarlierSerial(
            stored
                .running
                .as_ref()
                .map(|running| running.deployment.serial),
        );
        Ok(Self {
            revision: stored.revision,
            created: stored.created.clone(),
            instance: stored.instance.clone().map_or_else(new_instance, Ok)?,
            lease: None,
            pushed_by: stored.pushed_by.clone(),
            author: None,
            cost_before: stored
                .running
                .as_ref()
                .and_then(|running| running.cost.clone()),
            before: Some(before),
            replaces: false,
            dropped: Dropped::default(),
        })
    }

    /// Returns the lineage of a deployment that a request asks for, with this lease. A rule that
    /// changes a probe of another sender leaves the sender and the lease unchanged.
    pub fn asked(
        self,
        author: ChangeAuthor,
        lease: Option<Lease>,
        old: Option<&StoredProbe>,
        boot_id: &str,
    ) -> Self {
        let who = author.principal.who.to_string();
        let guest = old.filter(|old| {
            matches!(author.principal.who, Who::Rule(_)) && old.pushed_by.as_ref() != Some(&who)
        });
        let (pushed_by, lease) = match guest {
            Some(old) => (old.pushed_by.clone(), Lease::recorded(old, boot_id)),
            None => (Some(who), lease),
        };
        Self {
            pushed_by,
            lease,
            author: Some(author),
            ..self
        }
    }

    /// Returns the lineage of the next revision. `last` is the newest revision that has a file.
    pub fn next(self, last: u64) -> Self {
        let created = if self.created.is_empty() {
            rfc3339(clock::now())
        } else {
            self.created.clone()
        };
        // A revision that was prepared but not committed is written again.
        let revision = if self.revision == 0 {
            last
        } else {
            self.revision
        } + 1;
        Self {
            revision,
            created,
            replaces: true,
            ..self
        }
    }
}

/// Returns the entry of the history for a deployment; `None` if the deployment was made by neither
/// a request nor a file.
pub fn deployment(name: &str, lineage: &Lineage, cost: &ProbeCost) -> Option<HistoryEntry> {
    let author = lineage.author.as_ref()?;
    Some(HistoryEntry {
        time: rfc3339(clock::now()),
        probe: name.to_owned(),
        change: if lineage.replaces {
            ChangeKind::Replaced
        } else {
            ChangeKind::Created
        },
        revision: lineage.revision,
        instance: lineage.instance.clone(),
        who: Some(author.principal.who.to_string()),
        from: Some(author.from.clone()),
        message: author.message.clone(),
        cost_before: lineage.cost_before.clone(),
        cost_after: Some(cost.clone()),
    })
}

/// Returns the entry of the history for the removal of a stored probe. A removal without an author
/// is the end of a lease.
pub fn removal(name: &str, stored: &StoredProbe, author: Option<ChangeAuthor>) -> HistoryEntry {
    HistoryEntry {
        time: rfc3339(clock::now()),
        probe: name.to_owned(),
        change: if author.is_some() {
            ChangeKind::Removed
        } else {
            ChangeKind::Expired
        },
        revision: stored.revision,
        instance: stored.instance.clone().unwrap_or_default(),
        who: author
            .as_ref()
            .map(|author| author.principal.who.to_string()),
        from: author.as_ref().map(|author| author.from.clone()),
        message: author.and_then(|author| author.message),
        cost_before: stored
            .running
            .as_ref()
            .and_then(|running| running.cost.clone()),
        cost_after: None,
    }
}

/// Returns a random id of 128 bits, which identifies one probe.
fn new_instance() -> Result<String, KernelError> {
    let mut id = [0; 16];
    let filled = getrandom(&mut id, GetRandomFlags::empty());
    filled.map_err(|error| KernelError::new("getrandom", "the id of a new probe", error.into()))?;
    Ok(hex(&id))
}

/// The serial of the previous deployment, which does not run any more; `None` if the serial is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierSerial(pub Option<u64>);
