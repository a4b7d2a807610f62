//! The documents that nodes get: assignments and revisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The kind of a revision, which tells what nodes do with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RevisionKind {
    /// A monitoring configuration.
    #[default]
    Probe,
    /// A rule over the windows of a probe.
    Rule,
}

impl RevisionKind {
    pub fn is_probe(&self) -> bool {
        *self == Self::Probe
    }
}

/// The `spec` of a `ProbeAssignment`: less than 1 KB, the only object that nodes watch. It does not
/// contain the progress of a rollout on other nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AssignmentSpec {
    /// The name that the probe or rule has on nodes.
    pub probe: String,
    #[serde(default, skip_serializing_if = "RevisionKind::is_probe")]
    pub kind: RevisionKind,
    /// The name of the revision that canaries and the share run.
    pub revision: String,
    /// The name of the revision that the other nodes run; without it they run none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The labels of nodes that the probe is for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The labels of canaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary_labels: Option<BTreeMap<String, String>>,
    /// The names of canaries, if the rollout asks for a number of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<String>,
    /// The share of nodes that run the revision, in hundredths of a per cent: 10000 are all.
    pub share: u16,
    /// The windows after which a node reports the cost of the probe.
    pub windows: u32,
    /// The time for which a node keeps the probe without a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The time of the last renewal, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<String>,
    /// The longest time in milliseconds after which a node follows this change. Each node takes a
    /// random part of the time, so that not all nodes call the API server at the same moment.
    #[serde(default, skip_serializing_if = "is_at_once")]
    pub spread_ms: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_at_once(spread_ms: &u32) -> bool {
    *spread_ms == 0
}

/// The `spec` of a `ProbeRevision`, which never changes. Its name ends with its digest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RevisionSpec {
    /// The name that the probe or rule has on nodes.
    pub probe: String,
    #[serde(default, skip_serializing_if = "RevisionKind::is_probe")]
    pub kind: RevisionKind,
    /// SHA-256 of `config`, in hexadecimal digits.
    pub digest: String,
    /// The configuration, or the rule, that nodes put into their daemon.
    #[cfg_attr(feature = "schema", schemars(schema_with = "configuration"))]
    pub config: Value,
    /// The programs, compiled once for all nodes. Without them each node compiles the sources
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled: Option<CompiledRevision>,
}

/// The programs of a revision, which the operator has compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompiledRevision {
    /// The first line of `clang --version`.
    pub compiler: String,
    /// The architecture of the nodes that the programs are for, such as `x86_64`. Others compile
    /// the sources themselves.
    pub architecture: String,
    /// The programs, for one sort of kernels each.
    #[cfg_attr(feature = "schema", schemars(length(max = 2)))]
    pub objects: Vec<RevisionObjects>,
}

/// The programs of a revision for one sort of kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RevisionObjects {
    /// True for kernels that have XDP programs for packets of several buffers (Linux 5.18), false
    /// for others; absent if that makes no difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frags: Option<bool>,
    /// The object of the ingress, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1_048_576)))]
    pub ingress: Option<String>,
    /// The object of the egress, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1_048_576)))]
    pub egress: Option<String>,
    /// The maps that both directions use, according to the sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 64), inner(length(max = 128)))
    )]
    pub shared_maps: Vec<String>,
}

#[cfg(feature = "schema")]
fn configuration(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
