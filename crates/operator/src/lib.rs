//! Probes as Kubernetes objects: the kinds, the operator's commands, and the agent beside each
//! daemon.

#![forbid(unsafe_code)]

mod args;
mod control;
mod judge;
mod node;
mod objects;
mod overview;

pub use self::args::main;
pub use self::node::agent::run_node;
pub use self::node::options::{ApiServerOptions, NodeOptions};
pub use self::objects::definitions::{definitions, definitions_yaml};
pub use self::objects::nodes::{
    ProbeAssignment, ProbeAssignmentSpec, ProbeReport, ProbeReportSpec, ProbeRevision,
    ProbeRevisionSpec,
};
pub use self::objects::probe::{MonitoringProbe, MonitoringProbeSpec};
pub use self::objects::rule::{MonitoringRule, MonitoringRuleSpec};
