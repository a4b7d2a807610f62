//! The choice of pods as a configuration contains it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::present::present_map;

/// The pods whose interfaces a probe uses. Without labels it is attached at all pods of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PodsDocument {
    /// The labels that a pod has.
    #[serde(
        deserialize_with = "present_map",
        skip_serializing_if = "Option::is_none"
    )]
    pub labels: Option<BTreeMap<String, String>>,
    /// The labels that the pod's namespace has.
    #[serde(
        deserialize_with = "present_map",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace_labels: Option<BTreeMap<String, String>>,
}
