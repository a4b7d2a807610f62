//! The desired state: a probe or a rule on many nodes, and the steps of its rollout.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rule::RuleDocument;

/// The `spec` of a `MonitoringProbe`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetProbeSpec {
    /// The monitoring configuration, as the body of `PUT /v1/probes/{name}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::any_object"))]
    pub config: Option<Value>,
    /// The name of a probe of the library, instead of `config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Definitions for the library's source, as `--define` sets them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defines: BTreeMap<String, String>,
    /// Initial values of the library's global variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::any_object"))]
    pub variables: BTreeMap<String, Value>,
    /// The interval of the library probe's windows, as `window.interval` of a configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// With true, nodes compile the sources and need clang. Rules can change definitions of such a
    /// probe.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compile_on_nodes: bool,
    /// The labels that a node must have. Without labels, each node is selected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub attach: FleetAttach,
    #[serde(default)]
    pub rollout: FleetRollout,
    /// The time for which a node keeps the probe without a renewal, such as `10m`. Without it, the
    /// probe stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// With true the rollout stops at its present step.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// The place of a probe on a node. The fields here replace those of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetAttach {
    /// Names or patterns of interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Names or patterns of interfaces that the probe leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The labels of pods. The probe follows their interfaces on the host's side, as pods start and
    /// end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<BTreeMap<String, String>>,
    /// The labels of the pods' namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<BTreeMap<String, String>>,
}

/// How a new revision reaches the nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetRollout {
    /// The nodes that come first: a number of nodes, or their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::anything"))]
    pub canary: Option<Canary>,
    /// The shares of nodes of the steps after the canaries, such as `10%`. The last is `100%`.
    pub steps: Vec<String>,
    /// The windows that each node of a step closes before the step is judged.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::small_number"))]
    pub windows: u32,
    /// The time after which a node that has not answered or not closed its windows counts as
    /// failed, such as `5m`.
    pub timeout: String,
    pub budget: FleetBudget,
    pub on_failure: OnFailure,
}

impl Default for FleetRollout {
    fn default() -> Self {
        Self {
            canary: None,
            steps: ["1%", "10%", "50%", "100%"].map(str::to_owned).to_vec(),
            windows: 2,
            timeout: "5m".to_owned(),
            budget: FleetBudget::default(),
            on_failure: OnFailure::default(),
        }
    }
}

/// The first nodes of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Canary {
    /// This number of nodes.
    Nodes(u32),
    /// The nodes with these labels.
    Labels(BTreeMap<String, String>),
}

/// The highest cost of a probe on each node. A rollout stops at a node where the cost is higher. A
/// field that is left out has no limit, except `refused`, which is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetBudget {
    /// Nanoseconds per packet: the measured cost, or that of the trial at admission until there is
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::number"))]
    pub ns_per_packet: Option<u64>,
    /// Insertions into full maps, in the judged windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::number"))]
    pub failed_inserts: Option<u64>,
    /// Windows that the node has lost among the judged ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::number"))]
    pub lost_windows: Option<u64>,
    /// Events that the kernel had no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::number"))]
    pub lost_events: Option<u64>,
    /// The number of selected nodes that may refuse the probe, for example because of their kernel.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::number"))]
    pub refused: u64,
}

/// What a rollout does after a step fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OnFailure {
    /// Nodes return to their earlier revision.
    #[default]
    Rollback,
    /// The rollout stops, and people decide.
    Pause,
}

/// The `spec` of a `MonitoringRule`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetRuleSpec {
    /// Where windows are judged: on each node, or those of the whole fleet together.
    #[serde(default)]
    pub scope: RuleScope,
    /// The labels of nodes that the rule is for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The rule, as the body of `PUT /v1/rules/{name}`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::rule"))]
    pub rule: RuleDocument,
}

/// Where the windows of a rule are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RuleScope {
    /// Each node judges its own.
    #[default]
    Node,
    /// The windows of all nodes count together.
    Fleet,
}

impl FleetRuleSpec {
    /// Returns the rule with the scope of the object.
    #[must_use]
    pub fn document(&self) -> RuleDocument {
        let scope = match self.scope {
            RuleScope::Fleet => Some(RuleDocument::FLEET.to_owned()),
            RuleScope::Node => self.rule.scope.clone(),
        };
        RuleDocument {
            scope,
            ..self.rule.clone()
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Schemas that an API server can use: they have no unknown formats, and they keep all fields of
/// configurations.
#[cfg(feature = "schema")]
mod schema {
    use schemars::{Schema, SchemaGenerator, json_schema};

    pub fn any_object(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }

    pub fn anything(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-preserve-unknown-fields": true,
            "description": "The nodes that come first: a number of nodes, or their labels."
        })
    }

    pub fn number(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "nullable": true })
    }

    pub fn small_number(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 1000 })
    }

    pub fn rule(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "required": ["watch", "when", "do"],
            "properties": {
                "watch": { "type": "string", "description": "The probe whose windows the rule judges." },
                "when": { "type": "string", "maxLength": 1024, "description": "The condition, in CEL." },
                "for": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 1000,
                    "description": "The number of windows in a row for which the condition must hold."
                },
                "until": {
                    "type": "string",
                    "maxLength": 1024,
                    "description": "The condition that ends the actions of the rule, in CEL."
                },
                "do": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 8,
                    "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "description": "The actions."
                },
                "cooldown": {
                    "type": "string",
                    "description": "The time after a firing in which the rule does not fire again, such as 1m."
                },
                "max_actions_per_hour": { "type": "integer", "minimum": 1, "maximum": 1000 }
            },
            "x-kubernetes-preserve-unknown-fields": true
        })
    }
}
