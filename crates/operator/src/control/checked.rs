//! The checks of an object that need no kernel.

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_fleet::{FleetPlan, is_rule_name};
use twinprobe_library::fleet_probe;
use twinprobe_rules::Rule;

use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::{MonitoringRule, RuleScope};

/// Returns the plan of an object.
pub fn plan(name: &str, object: &MonitoringProbe) -> Result<FleetPlan, Rejection> {
    FleetPlan::new(name, &object.spec.0, fleet_probe)
}

/// Checks a rule without the probe that it watches, which each node has in its own revision.
pub fn check_rule(name: &str, object: &MonitoringRule) -> Result<(), Rejection> {
    let mut findings = Vec::new();
    if !is_rule_name(name) {
        let message =
            format!("{name:?} is not a name of a rule; names of probes with at most 58 letters are possible");
        findings.push(Finding::config("metadata.name", message));
    }
    if object.spec.scope == RuleScope::Fleet {
        let message =
            "the operator does not judge windows: `twinprobe stream --rules` does, for a fleet; use node";
        findings.push(Finding::config("spec.scope", message));
    }
    if let Err(rejection) = Rule::check(&object.spec.rule) {
        findings.extend(rejection.findings.into_iter().map(|mut finding| {
            let field = finding.field.take().unwrap_or_default();
            finding.field = Some(format!("spec.rule.{field}"));
            finding
        }));
    }
    if findings.is_empty() { Ok(()) } else { Err(findings.into()) }
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
    // The line of a condition is in its message.
    let line_of = |finding: &Finding| finding.line.filter(|_| finding.stage == Stage::Compile);
    let line = |finding: &Finding| match (&finding.field, line_of(finding)) {
        (Some(field), Some(line)) => format!("{field}:{line}: {}", finding.message),
        (Some(field), None) => format!("{field}: {}", finding.message),
        (None, _) => finding.message.clone(),
    };
    rejection.findings.iter().map(line).collect::<Vec<_>>().join("; ")
}
