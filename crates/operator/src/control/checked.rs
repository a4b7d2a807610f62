//! The checks of an object that need no kernel.

use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_fleet::FleetPlan;
use twinprobe_library::fleet_probe;

use crate::objects::probe::MonitoringProbe;

/// Returns the plan of an object.
pub fn plan(name: &str, object: &MonitoringProbe) -> Result<FleetPlan, Rejection> {
    FleetPlan::new(name, &object.spec.0, fleet_probe)
}

/// Returns the mistakes of an object, each with its field.
pub fn mistakes(rejection: &Rejection) -> String {
    let line = |finding: &Finding| match &finding.field {
        Some(field) => format!("{field}: {}", finding.message),
        None => finding.message.clone(),
    };
    rejection.findings.iter().map(line).collect::<Vec<_>>().join("; ")
}
