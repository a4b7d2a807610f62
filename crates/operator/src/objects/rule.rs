//! Rules as objects.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use twinprobe_api::{FleetRuleSpec, FleetRuleStatus};

/// The `spec` of a `MonitoringRule`, which is the document that `twinprobe fleet` reads from a
/// file.
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
    printcolumn(
        name = "Selected",
        type_ = "integer",
        json_path = ".status.counts.selected"
    ),
    printcolumn(
        name = "Running",
        type_ = "integer",
        json_path = ".status.counts.running"
    ),
    printcolumn(name = "Firing", type_ = "integer", json_path = ".status.firing"),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.counts.failed"
    ),
    printcolumn(
        name = "Scope",
        type_ = "string",
        json_path = ".spec.scope",
        priority = 1
    ),
    printcolumn(
        name = "Fired",
        type_ = "date",
        json_path = ".status.fired",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct MonitoringRuleSpec(pub FleetRuleSpec);
