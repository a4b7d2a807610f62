//! The probes and rules that a node must run.

use std::collections::BTreeMap;

use twinprobe_api::AssignmentSpec;

use crate::share::part;

/// The demand of an assignment on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// The probe in this revision.
    Revision(&'a str),
    /// No probe, because the rollout has not reached this node yet.
    Nothing,
    /// The node gets no probe, because the assignment is not for this node.
    NotSelected,
}

/// Tells whether labels have all labels of a selector.
pub fn matches(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// Returns the demand of an assignment on the node with this name and these labels.
pub fn wanted<'a>(
    assignment: &'a AssignmentSpec,
    node: &str,
    labels: &BTreeMap<String, String>,
) -> Wanted<'a> {
    if !matches(&assignment.node_selector, labels) {
        return Wanted::NotSelected;
    }
    let is_in =
        is_canary(assignment, node, labels) || part(node, &assignment.revision) < assignment.share;
    match (is_in, &assignment.previous) {
        (true, _) => Wanted::Revision(&assignment.revision),
        (false, Some(previous)) => Wanted::Revision(previous),
        (false, None) => Wanted::Nothing,
    }
}

/// Tells whether a node comes first.
pub fn is_canary(
    assignment: &AssignmentSpec,
    node: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let by_labels = assignment
        .canary_labels
        .as_ref()
        .is_some_and(|canaries| matches(canaries, labels));
    by_labels || assignment.canaries.iter().any(|canary| canary == node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::WHOLE;

    fn labels(text: &str) -> BTreeMap<String, String> {
        text.split_terminator(',')
            .filter_map(|label| label.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    #[test]
    fn a_node_runs_the_revision_of_its_step() {
        let mut assignment = AssignmentSpec {
            revision: "flows-b".to_owned(),
            node_selector: labels("role=edge"),
            canary_labels: Some(labels("canary=yes")),
            ..AssignmentSpec::default()
        };
        let (edge, canary) = (labels("role=edge,zone=a"), labels("role=edge,canary=yes"));
        assert_eq!(
            wanted(&assignment, "n", &labels("canary=yes")),
            Wanted::NotSelected
        );
        assert_eq!(wanted(&assignment, "n", &edge), Wanted::Nothing);
        assert_eq!(
            wanted(&assignment, "n", &canary),
            Wanted::Revision("flows-b")
        );
        assignment.previous = Some("flows-a".to_owned());
        assert_eq!(wanted(&assignment, "n", &edge), Wanted::Revision("flows-a"));
        assignment.canaries = vec!["n".to_owned()];
        assert_eq!(wanted(&assignment, "n", &edge), Wanted::Revision("flows-b"));
        assert_eq!(wanted(&assignment, "m", &edge), Wanted::Revision("flows-a"));
        assignment.share = WHOLE;
        assert_eq!(wanted(&assignment, "m", &edge), Wanted::Revision("flows-b"));
    }
}
