//! The numbers of nodes, the worst cost and the first failures of a probe.

use twinprobe_api::{FleetCounts, FleetFailure, NodeState, WorstCost};

use crate::budget::over;
use crate::rollout::NodeView;
use crate::steps::RolloutPlan;

/// The most failures that a status names.
pub const FAILURES: usize = 10;

/// Counts the nodes of a probe: all selected nodes, and the nodes that should have the revision by
/// now.
pub fn tally(
    plan: &RolloutPlan,
    selected: &[NodeView<'_>],
    members: &[NodeView<'_>],
) -> (FleetCounts, Option<WorstCost>, Vec<FleetFailure>) {
    let mut counts = FleetCounts {
        selected: number(selected.len()),
        ..FleetCounts::default()
    };
    let silent = members.iter().filter(|node| node.report.is_none()).count();
    counts.silent = number(silent);
    let (mut worst, mut failures): (Option<WorstCost>, _) = (None, Vec::new());
    for (node, report) in selected
        .iter()
        .filter_map(|node| Some((node.name, node.report?)))
    {
        counts.updated += 1;
        let excess = over(report, &plan.budget).filter(|_| report.state == NodeState::Running);
        match (report.state, &excess) {
            (NodeState::Excluded, _) => counts.excluded += 1,
            (NodeState::Running, excess) => {
                counts.running += 1;
                counts.failed += u64::from(excess.is_some());
            }
            (NodeState::Refused | NodeState::Failed, _) => counts.failed += 1,
        }
        let has_failed =
            matches!(report.state, NodeState::Refused | NodeState::Failed) || excess.is_some();
        if has_failed && failures.len() < FAILURES {
            let stage = report.stage.clone().unwrap_or_else(|| "budget".to_owned());
            let reason = excess.or_else(|| report.reason.clone()).unwrap_or_default();
            failures.push(FleetFailure {
                node: node.to_owned(),
                stage,
                reason,
            });
        }
        let is_worse = |ns: &f64| worst.as_ref().is_none_or(|worst| *ns > worst.ns_per_packet);
        if let Some(ns_per_packet) = report.ns_per_packet.filter(is_worse) {
            worst = Some(WorstCost {
                ns_per_packet,
                node: node.to_owned(),
                at: report.at.clone(),
            });
        }
    }
    (counts, worst, failures)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use twinprobe_api::{FleetBudget, NodeReport, OnFailure};

    use super::*;

    #[test]
    fn each_node_is_counted_by_its_last_report() {
        let report = |state, ns: f64| NodeReport {
            state,
            ns_per_packet: Some(ns),
            stage: (state == NodeState::Refused).then(|| "load".to_owned()),
            reason: (state == NodeState::Refused).then(|| "R1 invalid".to_owned()),
            ..NodeReport::default()
        };
        let reports = [
            Some(report(NodeState::Running, 40.0)),
            Some(report(NodeState::Running, 400.0)),
            Some(report(NodeState::Refused, 0.0)),
            Some(report(NodeState::Excluded, 0.0)),
            None,
            None,
        ];
        let (names, labels) = (["a", "b", "c", "d", "e", "f"], BTreeMap::new());
        let nodes: Vec<_> = names
            .iter()
            .zip(&reports)
            .map(|(name, report)| NodeView {
                name,
                labels: &labels,
                report: report.as_ref(),
            })
            .collect();
        let plan = RolloutPlan {
            canary: None,
            steps: Vec::new(),
            windows: 1,
            timeout: Duration::from_secs(1),
            budget: FleetBudget {
                ns_per_packet: Some(100),
                ..FleetBudget::default()
            },
            on_failure: OnFailure::Rollback,
        };
        let (counts, worst, failures) = tally(&plan, &nodes, &nodes[..5]);
        let expected = FleetCounts {
            selected: 6,
            updated: 4,
            running: 2,
            failed: 2,
            excluded: 1,
            silent: 1,
        };
        assert_eq!(counts, expected);
        let worst = worst.unwrap();
        assert_eq!((worst.node.as_str(), worst.ns_per_packet), ("b", 400.0));
        let failures: Vec<_> = failures
            .iter()
            .map(|failed| (failed.node.as_str(), failed.stage.as_str()))
            .collect();
        assert_eq!(failures, [("b", "budget"), ("c", "load")]);
    }
}
