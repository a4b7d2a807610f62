//! Rules for the nodes of a fleet: an object's demands on nodes, and the nodes' reports about the
//! object. A rule alone changes no packet path, so all nodes get it in one step.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::to_value;
use twinprobe_api::{
    AssignmentSpec, FleetBudget, FleetRuleStatus, OnFailure, RevisionKind, RevisionSpec,
    RuleDocument,
};
use twinprobe_config::is_probe_name;
use twinprobe_ebpf_common::finding::Finding;

use crate::assign::matches;
use crate::decide::conditions::{Standing, conditions};
use crate::revision::{rule_digest, short};
use crate::rollout::NodeView;
use crate::share::WHOLE;
use crate::spread::spread;
use crate::steps::RolloutPlan;
use crate::tally::tally;

/// The prefix of the names of assignments for rules. Names of probes of a fleet can't have this
/// prefix.
const RULE: &str = "rule.";

/// Returns the name of the assignment of a rule.
pub fn rule_key(rule: &str) -> String {
    format!("{RULE}{rule}")
}

/// Returns the name of the rule that an assignment is for; none if it is for a probe.
pub fn rule_of(assignment: &str) -> Option<&str> {
    assignment.strip_prefix(RULE)
}

/// Returns the name of the revision of a rule with this document.
pub fn rule_revision(rule: &str, document: &RuleDocument) -> String {
    format!("{}-{}", rule_key(rule), short(&rule_digest(document)))
}

/// Returns the mistake in the name of a rule, if there is one: nodes must take the name, and labels
/// that of its assignment.
pub fn misnamed_rule(name: &str) -> Option<Finding> {
    /// The longest value of a label.
    const LONGEST: usize = 63;
    let is_good = is_probe_name(name) && rule_key(name).len() <= LONGEST;
    let message =
        || format!("{name:?} is not a name of a rule; use a name of a probe with up to 58 letters");
    (!is_good).then(|| Finding::config("metadata.name", message()))
}

/// The known facts about a rule's object.
#[derive(Clone, Copy, Debug)]
pub struct FleetRuleView<'a> {
    pub name: &'a str,
    pub rule: &'a RuleDocument,
    pub node_selector: &'a BTreeMap<String, String>,
    /// The generation of the object, which counts its changes.
    pub generation: i64,
    pub status: &'a FleetRuleStatus,
    pub assignment: Option<&'a AssignmentSpec>,
    /// All nodes, with their last report about the rule.
    pub nodes: &'a [NodeView<'a>],
    pub now: Timestamp,
}

/// The result of a look: the objects to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetRuleDecision {
    pub status: FleetRuleStatus,
    /// The name of the revision.
    pub name: String,
    pub revision: RevisionSpec,
    pub assignment: AssignmentSpec,
}

/// Decides what to do for a rule object that is valid by itself.
pub fn decide_rule(view: &FleetRuleView<'_>) -> FleetRuleDecision {
    let FleetRuleView {
        name,
        rule,
        node_selector,
        generation,
        status: before,
        assignment: assigned,
        nodes,
        now,
    } = *view;
    let revision = rule_revision(name, rule);
    let selected: Vec<NodeView<'_>> = nodes
        .iter()
        .filter(|node| matches(node_selector, node.labels))
        .map(|node| NodeView {
            report: node.report.filter(|report| report.revision == revision),
            ..*node
        })
        .collect();
    let (counts, _, failures) = tally(&at_once(), &selected, &selected);
    let firing = selected
        .iter()
        .filter(|node| node.report.is_some_and(|report| report.firing))
        .count();
    let standing = if counts.silent == 0 {
        Standing::Complete
    } else {
        Standing::Step("100%")
    };
    let assignment = AssignmentSpec {
        probe: name.to_owned(),
        kind: RevisionKind::Rule,
        revision: revision.clone(),
        node_selector: node_selector.clone(),
        share: WHOLE,
        ..AssignmentSpec::default()
    };
    FleetRuleDecision {
        status: FleetRuleStatus {
            observed_generation: Some(generation),
            revision: Some(revision.clone()),
            counts,
            firing: u64::try_from(firing).unwrap_or(u64::MAX),
            conditions: conditions(standing, counts, &before.conditions, now),
            failures,
            ..FleetRuleStatus::default()
        },
        revision: RevisionSpec {
            probe: name.to_owned(),
            kind: RevisionKind::Rule,
            digest: rule_digest(rule),
            // A document that was read can also be written.
            config: to_value(rule).unwrap_or_default(),
            compiled: None,
        },
        assignment: spread(assignment, assigned, nodes, Duration::MAX),
        name: revision,
    }
}

/// Returns the status of a rule that nodes can't get, and why. Nodes keep the revision that they
/// have.
pub fn invalid_rule(
    status: &FleetRuleStatus,
    generation: i64,
    reason: &str,
    now: Timestamp,
) -> FleetRuleStatus {
    FleetRuleStatus {
        observed_generation: Some(generation),
        conditions: conditions(
            Standing::Invalid(reason),
            status.counts,
            &status.conditions,
            now,
        ),
        ..status.clone()
    }
}

fn at_once() -> RolloutPlan {
    RolloutPlan {
        canary: None,
        steps: Vec::new(),
        windows: 0,
        timeout: Duration::MAX,
        budget: FleetBudget::default(),
        on_failure: OnFailure::Pause,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use twinprobe_api::{NodeReport, NodeState};

    use super::*;

    /// Returns the labels of the nodes that the rule selects.
    fn edge() -> BTreeMap<String, String> {
        BTreeMap::from([("role".to_owned(), "edge".to_owned())])
    }

    fn node<'a>(
        name: &'a str,
        labels: &'a BTreeMap<String, String>,
        report: Option<&'a NodeReport>,
    ) -> NodeView<'a> {
        NodeView {
            name,
            labels,
            report,
        }
    }

    fn decide(nodes: &[NodeView<'_>]) -> FleetRuleDecision {
        let rule: RuleDocument = serde_json::from_value(
            json!({ "watch": "dns", "when": "true", "do": [{ "mark": "x" }] }),
        )
        .unwrap();
        decide_rule(&FleetRuleView {
            name: "flood",
            rule: &rule,
            node_selector: &edge(),
            generation: 3,
            status: &FleetRuleStatus::default(),
            assignment: None,
            nodes,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Returns the status of a condition of this kind.
    fn said(decision: &FleetRuleDecision, kind: &str) -> String {
        let found = decision
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind);
        found.map(|condition| condition.status.clone()).unwrap()
    }

    #[test]
    fn all_selected_nodes_get_a_rule() {
        let (edge, other) = (edge(), BTreeMap::new());
        let first = decide(&[node("a", &edge, None), node("b", &other, None)]);
        assert_eq!(
            (first.assignment.share, first.assignment.revision.as_str()),
            (WHOLE, &*first.name)
        );
        assert!(
            first.name.starts_with("rule.flood-") && rule_of(&first.name).is_some(),
            "{}",
            first.name
        );
        assert_eq!(
            (first.status.counts.selected, first.status.counts.silent),
            (1, 1)
        );
        assert_eq!(
            (said(&first, "Progressing"), said(&first, "Available")),
            ("True".into(), "False".into())
        );
    }

    #[test]
    fn nodes_are_counted_by_the_present_revision_of_the_rule() {
        let (edge, present) = (edge(), decide(&[]).name);
        let report = |revision: &str, state, firing| NodeReport {
            revision: revision.to_owned(),
            state,
            firing,
            stage: (state != NodeState::Running).then(|| "config".to_owned()),
            ..NodeReport::default()
        };
        let (old, fires, refuses) = (
            report("rule.flood-before", NodeState::Running, true),
            report(&present, NodeState::Running, true),
            report(&present, NodeState::Refused, false),
        );
        let later = decide(&[
            node("a", &edge, Some(&old)),
            node("b", &edge, Some(&fires)),
            node("c", &edge, Some(&refuses)),
        ]);
        let counts = later.status.counts;
        assert_eq!(
            (
                counts.running,
                counts.failed,
                counts.silent,
                later.status.firing
            ),
            (1, 1, 1, 1)
        );
        assert_eq!(later.status.failures[0].node, "c");
        assert_eq!(
            said(&decide(&[node("b", &edge, Some(&fires))]), "Available"),
            "True"
        );
    }
}
