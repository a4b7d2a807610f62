//! The overview of a fleet, which the operator serves.

use serde::{Deserialize, Serialize};

use super::status::{FleetCondition, FleetCounts, FleetFailure, WorstCost};

/// The answer of `GET /v1/fleet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetOverview {
    /// The version of the operator.
    pub version: String,
    /// The objects by kind and name.
    pub objects: Vec<FleetObject>,
}

/// One object of the fleet, with a part of its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetObject {
    /// `MonitoringProbe` or `MonitoringRule`.
    pub kind: String,
    pub name: String,
    /// False while the status belongs to an earlier state of the object.
    pub is_current: bool,
    /// True while nodes remove the probe or the rule of the object.
    pub is_leaving: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_began: Option<String>,
    pub counts: FleetCounts,
    /// The number of nodes on which the actions of a rule continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firing: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<WorstCost>,
    pub conditions: Vec<FleetCondition>,
    /// The first ten failures.
    pub failures: Vec<FleetFailure>,
}
