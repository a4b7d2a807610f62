//! The checks of an object that need no kernel.

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_fleet::{FleetPlan, misnamed_rule};
use twinprobe_library::fleet_probe;
use twinprobe_rules::check_fleet_rule;

use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::MonitoringRule;

const NO_DAEMONS: &str = "the operator may not reach the daemons; start it with --daemons-token-file (fleet.rules.enabled of the \
                          chart), or let `twinprobe stream --rules` judge the windows";

/// Returns the plan of an object.
pub fn plan(name: &str, object: &MonitoringProbe) -> Result<FleetPlan, Rejection> {
    FleetPlan::new(name, &object.spec.0, fleet_probe)
}

/// Checks a rule without the probe that it watches, since each node has its own revision of that
/// probe. `judges` is true if the operator may reach the daemons.
pub fn check_rule(name: &str, object: &MonitoringRule, judges: bool) -> Result<(), Rejection> {
    let mut findings: Vec<Finding> = misnamed_rule(name).into_iter().collect();
    findings.extend(check_fleet_rule(
        &object.spec.0,
        if judges { Ok(()) } else { Err(NO_DAEMONS) },
    ));
    if findings.is_empty() {
        Ok(())
    } else {
        Err(findings.into())
    }
}

/// Returns a refusal by the compiler with the names of the object's fields.
pub fn of_the_object(object: &MonitoringProbe, mut rejection: Rejection) -> Rejection {
    for finding in &mut rejection.findings {
        let field = finding.field.take().unwrap_or_default();
        finding.field = Some(match object.spec.0.library {
            Some(_) => format!("spec.library, {field}"),
            None => format!("spec.config.{field}"),
        });
    }
    rejection
}

/// Returns the mistakes of an object, each with its field.
pub fn mistakes(rejection: &Rejection) -> String {
    // The message of a condition contains its line.
    let line_of = |finding: &Finding| finding.line.filter(|_| finding.stage == Stage::Compile);
    let line = |finding: &Finding| match (&finding.field, line_of(finding)) {
        (Some(field), Some(line)) => format!("{field}:{line}: {}", finding.message),
        (Some(field), None) => format!("{field}: {}", finding.message),
        (None, _) => finding.message.clone(),
    };
    rejection
        .findings
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("; ")
}
