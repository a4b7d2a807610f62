//! The record of a probe.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use twinprobe_client::ConfigDocument;
use twinprobe_ebpf_common::ProbeCost;
use twinprobe_kernel::Deployment;

/// The stored state of a probe: its configuration, and the deployment that runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredProbe {
    pub revision: u64,
    /// The time when the probe was first deployed, RFC 3339.
    pub created: String,
    /// The sender of the configuration; `None` if a version that did not ask has written the file.
    pub pushed_by: Option<String>,
    pub config: ConfigDocument,
    /// `None` for a probe that was never deployed by this version.
    pub running: Option<StoredDeployment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDeployment {
    pub deployment: Deployment,
    /// The digest of each direction's object, by the direction's name.
    pub objects: BTreeMap<String, String>,
    /// The cost that a trial found before the deployment; `None` if an earlier version has deployed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<ProbeCost>,
}

/// A configuration that a probe has or had.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRevision {
    /// The time when the configuration was deployed, RFC 3339.
    pub created: String,
    /// The sender of the configuration, as in [`StoredProbe`].
    pub pushed_by: Option<String>,
    pub config: ConfigDocument,
}
