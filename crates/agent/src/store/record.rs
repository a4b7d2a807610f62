//! The record of a probe.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::{DocumentOrigin, ProbeCost};
use twinprobe_kernel::Deployment;

/// The stored state of a probe: its configuration, and the deployment that runs it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredProbe {
    pub revision: u64,
    /// The time when the probe was first deployed, RFC 3339.
    pub created: String,
    /// The id that the probe got when it was created; `None` if its file can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The sender of the configuration; `None` if an earlier version, which had no senders, has
    /// written the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed_by: Option<String>,
    pub config: ConfigDocument,
    /// The lease, at whose end the probe is removed; `None` if the probe has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<StoredLease>,
    /// The deployment; `None` if this version has never deployed the probe.
    pub running: Option<StoredDeployment>,
}

impl StoredProbe {
    /// Returns the origin of the probe's documents on the machine `node`.
    pub fn origin(&self, node: &str) -> Arc<DocumentOrigin> {
        Arc::new(DocumentOrigin {
            node: node.to_owned(),
            instance: self.instance.clone().unwrap_or_default(),
            labels: self.config.labels.clone().unwrap_or_default(),
        })
    }
}

/// The lease of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// The time when the lease was granted, by the wall clock, RFC 3339.
    pub granted: String,
    /// The same time by CLOCK_BOOTTIME, in nanoseconds, for the boot with the id `boot_id`; 0 if it
    /// is unknown.
    pub boot_ns: u64,
    pub boot_id: String,
    pub duration_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDeployment {
    pub deployment: Deployment,
    /// The digest of each direction's object, by the direction's name.
    pub objects: BTreeMap<String, String>,
    /// The cost that a trial has found before the deployment; `None` if an earlier version has
    /// deployed the probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<ProbeCost>,
}

/// A present or earlier configuration of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRevision {
    /// The time when the configuration was deployed, RFC 3339.
    pub created: String,
    /// The sender of the configuration, as in [`StoredProbe`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed_by: Option<String>,
    /// The sender's reason for the configuration, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub config: ConfigDocument,
}
