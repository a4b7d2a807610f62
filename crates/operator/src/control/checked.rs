//! The checks of an object that need no kernel.

use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_fleet::FleetPlan;
use twinprobe_library::fleet_probe;

use crate::objects::probe::MonitoringProbe;

/// Returns the plan of an object.
pub fn plan(name: &str, object: &MonitoringProbe) -> Result<FleetPlan, Rejection> {
    let spec = &object.spec.0;
    if spec.attach.pod_selector.is_some() {
        let message = "pods can't be selected by this version; give interfaces";
        return Err(Finding::config("spec.attach.podSelector", message).into());
    }
    FleetPlan::new(name, spec, fleet_probe)
}

/// Returns the mistakes of an object, each with its field.
pub fn mistakes(rejection: &Rejection) -> String {
    let line = |finding: &Finding| match &finding.field {
        Some(field) => format!("{field}: {}", finding.message),
        None => finding.message.clone(),
    };
    rejection.findings.iter().map(line).collect::<Vec<_>>().join("; ")
}
