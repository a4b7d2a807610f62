//! The objects that the operator and the nodes exchange.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use twinprobe_api::{AssignmentSpec, NodeReport, RevisionSpec};

/// The `spec` of a `ProbeAssignment`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "twinprobe.dev",
    version = "v1alpha1",
    kind = "ProbeAssignment",
    category = "twinprobe",
    doc = "An assignment of a probe to nodes. The operator writes it.",
    printcolumn(name = "Revision", type_ = "string", json_path = ".spec.revision"),
    printcolumn(name = "Previous", type_ = "string", json_path = ".spec.previous"),
    printcolumn(name = "Share", type_ = "integer", json_path = ".spec.share"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ProbeAssignmentSpec(pub AssignmentSpec);

/// The `spec` of a `ProbeRevision`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "twinprobe.dev",
    version = "v1alpha1",
    kind = "ProbeRevision",
    category = "twinprobe",
    doc = "A configuration that nodes run. It never changes. The operator writes it.",
    printcolumn(name = "Probe", type_ = "string", json_path = ".spec.probe"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ProbeRevisionSpec(pub RevisionSpec);

/// The `spec` of a `ProbeReport`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "twinprobe.dev",
    version = "v1alpha1",
    kind = "ProbeReport",
    shortname = "pr",
    category = "twinprobe",
    selectable = ".spec.node",
    doc = "The report of a node about a probe. Each node writes only its own reports.",
    printcolumn(name = "Probe", type_ = "string", json_path = ".spec.probe"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".spec.revision"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "ns", type_ = "number", json_path = ".spec.nsPerPacket"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ProbeReportSpec(pub NodeReport);
