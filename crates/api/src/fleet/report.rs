//! The report of a node about a probe.

use serde::{Deserialize, Serialize};

/// The `spec` of a `ProbeReport`: one for each probe and node, written when something has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeReport {
    /// The name of the assignment: that of the probe, or `rule.` with the name of the rule.
    pub probe: String,
    pub node: String,
    /// The name of the revision that this report is about.
    pub revision: String,
    pub state: NodeState,
    /// The step at which the node failed: `fetch`, or the stage of the daemon's refusal, such as
    /// `compile` or `verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The reason for the state; for a program that the verifier refuses, the verifier's own line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The release of the node's kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The windows that the probe has closed with this revision, up to the number that the rollout
    /// asks for.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub windows: u32,
    /// The nanoseconds per packet at the interface where the probe takes the most time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_per_packet: Option<f64>,
    /// That interface and direction, such as `eth0 ingress`. Absent if the number is from the
    /// trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Insertions into full maps, in the judged windows.
    #[serde(default)]
    pub failed_inserts: u64,
    /// Windows that the node has lost among the judged ones.
    #[serde(default)]
    pub lost_windows: u64,
    /// Events that the kernel had no room for.
    #[serde(default)]
    pub lost_events: u64,
    /// True while actions of the rule continue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub firing: bool,
}

/// The state of a probe on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum NodeState {
    /// The probe runs.
    Running,
    /// The daemon refused the probe: it does not compile, the verifier refuses it, or it costs too
    /// much.
    Refused,
    /// The daemon accepted the probe, but it does not run; or the daemon does not answer.
    #[default]
    Failed,
    /// The node is selected, but has no interface for the probe.
    Excluded,
}

impl NodeState {
    /// The word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Excluded => "excluded",
        }
    }
}
