//! A rule of a fleet as people write it: an object with the rule, its scope and its nodes.

use twinprobe_api::{FleetRuleSpec, RuleScope};
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::fleet::rule::FleetRule;
use crate::rule::{FLEET, Rule};

/// Checks everything that needs neither the watched probe nor its windows. The mistakes have their
/// fields below `spec`. `judge` is the reason why nothing judges the windows of many nodes
/// together, if that is so.
pub fn check_fleet_rule(spec: &FleetRuleSpec, judge: Result<(), &str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let checked = match (spec.scope, spec.rule.scope.as_deref(), judge) {
        (RuleScope::Fleet, _, Err(reason)) => {
            findings.push(Finding::config("spec.scope", reason));
            Rule::check(&spec.document())
        }
        (RuleScope::Fleet, Some(scope), Ok(())) if scope != FLEET => {
            let message = format!("{scope:?} contradicts spec.scope, which is fleet; leave it out");
            findings.push(Finding::config("spec.rule.scope", message));
            Ok(())
        }
        (RuleScope::Fleet, _, Ok(())) => FleetRule::check(&spec.document()),
        (RuleScope::Node, Some(FLEET), _) => {
            let message = "an object has `scope: fleet` beside `rule`, as spec.scope";
            findings.push(Finding::config("spec.rule.scope", message));
            Ok(())
        }
        (RuleScope::Node, _, _) => Rule::check(&spec.rule),
    };
    let found = checked
        .err()
        .map(|Rejection { findings, .. }| findings)
        .unwrap_or_default();
    findings.extend(found.into_iter().map(|mut finding| {
        let field = finding.field.take().unwrap_or_default();
        finding.field = Some(format!("spec.rule.{field}"));
        finding
    }));
    findings
}
