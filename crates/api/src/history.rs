//! The documents about the changes of probes: their authors, times and reasons.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twinprobe_ebpf_common::ProbeCost;

/// The answer to `GET /v1/history` and `GET /v1/probes/{name}/history`, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HistoryList {
    pub history: Vec<HistoryEntry>,
}

/// One change of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The time of the change, RFC 3339.
    pub time: String,
    pub probe: String,
    pub change: ChangeKind,
    /// The revision that the change has made, or that has ended with it.
    pub revision: u64,
    /// The id of the probe, which a later probe of its name does not have.
    pub instance: String,
    /// The sender, as in [`crate::ProbeStatus`]; `None` for the end of a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The other end of the connection, or the file, as in the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The sender's reason, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The cost before the change, as a trial has measured it; `None` for a new probe, or without a
    /// trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_before: Option<ProbeCost>,
    /// The cost after it; `None` for a probe that was removed, or without a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_after: Option<ProbeCost>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Created,
    Replaced,
    Removed,
    /// The probe's lease has ended.
    Expired,
}

impl ChangeKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Expired => "expired",
        }
    }
}
