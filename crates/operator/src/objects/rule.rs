//! Rules as objects.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use twinprobe_api::{FleetRuleStatus, RuleDocument};
use twinprobe_rules::FLEET;

/// The `spec` of a `MonitoringRule`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "twinprobe.dev",
    version = "v1alpha1",
    kind = "MonitoringRule",
    shortname = "mr",
    category = "twinprobe",
    status = "FleetRuleStatus",
    doc = "A rule: actions that follow when the windows of a probe fulfil a condition.",
    printcolumn(name = "Watch", type_ = "string", json_path = ".spec.rule.watch"),
    printcolumn(name = "Selected", type_ = "integer", json_path = ".status.counts.selected"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.counts.running"),
    printcolumn(name = "Firing", type_ = "integer", json_path = ".status.firing"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.counts.failed"),
    printcolumn(name = "Scope", type_ = "string", json_path = ".spec.scope", priority = 1),
    printcolumn(name = "Fired", type_ = "date", json_path = ".status.fired", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MonitoringRuleSpec {
    /// Where windows are judged: on each node, or those of the whole fleet together.
    #[serde(default)]
    pub scope: RuleScope,
    /// The labels of nodes that the rule is for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The rule, as the body of `PUT /v1/rules/{name}`.
    #[schemars(schema_with = "rule")]
    pub rule: RuleDocument,
}

impl MonitoringRuleSpec {
    /// The rule with the scope of the object.
    #[must_use]
    pub fn document(&self) -> RuleDocument {
        let scope = match self.scope {
            RuleScope::Fleet => Some(FLEET.to_owned()),
            RuleScope::Node => self.rule.scope.clone(),
        };
        RuleDocument { scope, ..self.rule.clone() }
    }
}

/// Where the windows of a rule are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleScope {
    /// Each node judges its own.
    #[default]
    Node,
    /// The windows of all nodes count together.
    Fleet,
}

fn rule(_: &mut SchemaGenerator) -> Schema {
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
