//! The objects that users write.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use twinprobe_api::{FleetProbeSpec, FleetStatus};

/// The `spec` of a `MonitoringProbe`, which is the document that `twinprobe fleet` reads from a
/// file.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "twinprobe.dev",
    version = "v1alpha1",
    kind = "MonitoringProbe",
    shortname = "mp",
    category = "twinprobe",
    status = "FleetStatus",
    doc = "A probe on many nodes, and its rollout.",
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(
        name = "Rollout",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Progressing\")].reason"
    ),
    printcolumn(
        name = "Selected",
        type_ = "integer",
        json_path = ".status.counts.selected"
    ),
    printcolumn(
        name = "Updated",
        type_ = "integer",
        json_path = ".status.counts.updated"
    ),
    printcolumn(
        name = "Running",
        type_ = "integer",
        json_path = ".status.counts.running"
    ),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.counts.failed"
    ),
    printcolumn(
        name = "Worst ns",
        type_ = "number",
        json_path = ".status.worst.nsPerPacket"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct MonitoringProbeSpec(pub FleetProbeSpec);
