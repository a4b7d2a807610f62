//! The time over which nodes spread their answers to a change, so that the API server has time for
//! all of them.

use std::time::Duration;

use twinprobe_api::AssignmentSpec;

use crate::assign::{Wanted, wanted};
use crate::rollout::NodeView;

/// The share of each node in the spread: an API server on two processors answers a read and a
/// report in this time.
const EACH: Duration = Duration::from_millis(5);
/// The least number of nodes whose answers are spread.
const FEWEST: usize = 100;
/// The longest spread.
const LONGEST: Duration = Duration::from_mins(1);

/// Returns the assignment with its spread, which depends on the number of nodes that it gives
/// another revision. `longest` limits the spread. An assignment that is otherwise as before keeps
/// its spread: nodes that come and go cause no write.
pub fn spread(
    mut assignment: AssignmentSpec,
    before: Option<&AssignmentSpec>,
    nodes: &[NodeView<'_>],
    longest: Duration,
) -> AssignmentSpec {
    assignment.spread_ms = before.map_or(0, |before| before.spread_ms);
    if before == Some(&assignment) {
        return assignment;
    }
    let changes =
        |node: &&NodeView<'_>| revision(before, node) != revision(Some(&assignment), node);
    let count = nodes.iter().filter(changes).count();
    let spread = EACH
        .saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
        .min(LONGEST)
        .min(longest);
    let milliseconds = u32::try_from(spread.as_millis()).unwrap_or(u32::MAX);
    assignment.spread_ms = if count < FEWEST { 0 } else { milliseconds };
    assignment
}

/// Returns the revision that a node gets.
fn revision<'a>(assignment: Option<&'a AssignmentSpec>, node: &NodeView<'_>) -> Option<&'a str> {
    match wanted(assignment?, node.name, node.labels) {
        Wanted::Revision(revision) => Some(revision),
        Wanted::Nothing | Wanted::NotSelected => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::share::WHOLE;

    const ALL: Duration = Duration::MAX;

    fn assignment(revision: &str, previous: Option<&str>, share: u16) -> AssignmentSpec {
        AssignmentSpec {
            revision: revision.to_owned(),
            previous: previous.map(str::to_owned),
            share,
            ..AssignmentSpec::default()
        }
    }

    #[test]
    fn the_nodes_that_a_change_concerns_spread_their_answers() {
        let labels = BTreeMap::new();
        let names: Vec<String> = (0..2000).map(|at| format!("n{at}")).collect();
        let nodes: Vec<_> = names
            .iter()
            .map(|name| NodeView {
                name,
                labels: &labels,
                report: None,
            })
            .collect();
        let first = spread(assignment("a", None, WHOLE), None, &nodes, ALL);
        assert_eq!(first.spread_ms, 10_000);
        assert_eq!(
            spread(assignment("a", None, WHOLE), Some(&first), &nodes[..9], ALL),
            first,
            "no write"
        );

        let one = AssignmentSpec {
            canaries: vec!["n7".to_owned()],
            ..assignment("b", Some("a"), 0)
        };
        let one = spread(one, Some(&first), &nodes, ALL);
        assert_eq!(one.spread_ms, 0, "a canary answers at once");
        let half = spread(
            assignment("b", Some("a"), WHOLE / 2),
            Some(&one),
            &nodes,
            ALL,
        );
        assert!((4000..6000).contains(&half.spread_ms), "{}", half.spread_ms);
        let back = spread(assignment("a", None, WHOLE), Some(&half), &nodes, ALL);
        assert_eq!(
            back.spread_ms,
            half.spread_ms + 5,
            "these nodes return, and the canary"
        );
        let whole = spread(assignment("b", Some("a"), WHOLE), Some(&half), &nodes, ALL);
        assert_eq!(whole.spread_ms, 10_000 - back.spread_ms);
        let complete = spread(assignment("b", None, WHOLE), Some(&whole), &nodes, ALL);
        assert_eq!(complete.spread_ms, 0, "all nodes have it");
        assert_eq!(
            spread(assignment("a", None, WHOLE), None, &nodes, EACH * 7).spread_ms,
            35
        );
    }
}
