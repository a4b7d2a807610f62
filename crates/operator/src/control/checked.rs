//! The checks of an object that need no kernel.

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_fleet::{FleetPlan, is_rule_name};
use twinprobe_library::fleet_probe;
use twinprobe_rules::{FLEET, FleetRule, Rule};

use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::{MonitoringRule, RuleScope};

const NO_DAEMONS: &str = "the operator may not reach the daemons; start it with --daemons-token-file (fleet.rules.enabled of the \
                          chart), or let `twinprobe stream --rules` judge the windows";

/// Returns the plan of an object.
pub fn plan(name: &str, object: &MonitoringProbe) -> Result<FleetPlan, Rejection> {
    FleetPlan::new(name, &object.spec.0, fleet_probe)
}

/// Checks a rule without the probe that it watches, which each node has in its own revision.
/// `judges` is true if the operator may reach the daemons.
pub fn check_rule(name: &str, object: &MonitoringRule, judges: bool) -> Result<(), Rejection> {
    let mut findings = Vec::new();
    if !is_rule_name(name) {
        let message =
            format!("{name:?} is not a name of a rule; names of probes with at most 58 letters are possible");
        findings.push(Finding::config("metadata.name", message));
    }
    let checked = match (object.spec.scope, object.spec.rule.scope.as_deref()) {
        (RuleScope::Fleet, _) if !judges => {
            findings.push(Finding::config("spec.scope", NO_DAEMONS));
            Rule::check(&object.spec.document())
        }
        (RuleScope::Fleet, Some(scope)) if scope != FLEET => {
            let message = format!("{scope:?} contradicts spec.scope, which is fleet; leave it out");
            findings.push(Finding::config("spec.rule.scope", message));
            Ok(())
        }
        (RuleScope::Fleet, _) => FleetRule::check(&object.spec.document()),
        (RuleScope::Node, Some(FLEET)) => {
            let message = "an object has `scope: fleet` beside `rule`, as spec.scope";
            findings.push(Finding::config("spec.rule.scope", message));
            Ok(())
        }
        (RuleScope::Node, _) => Rule::check(&object.spec.rule),
    };
    if let Err(rejection) = checked {
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
