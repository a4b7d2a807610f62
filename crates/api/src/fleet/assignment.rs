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

/// The `spec` of a `ProbeAssignment`: less than 1 KB, the only object that nodes watch. It never says how far a rollout is on other
/// nodes.
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
    /// The names of canaries, where the rollout asks for a number of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<String>,
    /// The share of nodes that run the revision, in hundredths of a per cent: 10000 are all.
    pub share: u16,
    /// The windows after which a node reports what the probe has cost.
    pub windows: u32,
    /// The time for which a node keeps the probe without a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The time of the last renewal, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<String>,
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
}

#[cfg(feature = "schema")]
fn configuration(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
