//! The status of a rule over the fleet, judged by the operator.

use std::collections::BTreeSet;

use jiff::Timestamp;
use twinprobe_api::{FleetCounts, FleetFailure, FleetRuleStatus};

use crate::decide::conditions::{Standing, conditions};
use crate::tally::FAILURES;

/// The state of a rule at the operator that judges it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JudgedRule {
    pub revision: String,
    /// The number of nodes that the selector selects.
    pub selected: u64,
    /// The nodes whose windows count.
    pub running: u64,
    /// The nodes whose windows do not count, and those at which an action failed.
    pub failures: Vec<FleetFailure>,
    /// The number of nodes at which actions continue.
    pub firing: u64,
    pub since: String,
    pub fired: Option<String>,
    pub ended: Option<String>,
    /// The reason why the rule has no window.
    pub waits: Option<String>,
    pub stopped: Option<String>,
}

/// Returns the status.
pub fn judged_rule(
    judged: JudgedRule,
    generation: i64,
    before: &FleetRuleStatus,
    now: Timestamp,
) -> FleetRuleStatus {
    let JudgedRule {
        selected,
        running,
        mut failures,
        ..
    } = judged;
    let absent = nodes(
        failures
            .iter()
            .filter(|failure| failure.stage != JudgedRule::ACTION),
    );
    // A notification has no node.
    let failed = nodes(failures.iter().filter(|failure| !failure.node.is_empty()));
    let answered = running.saturating_add(absent);
    let silent = selected.saturating_sub(answered);
    // Nodes may have answered although the rule still waits. The rule then runs on none of them.
    let (standing, running, silent) = match (&judged.stopped, &judged.waits) {
        (Some(reason), _) => (Standing::Stopped(reason), 0, 0),
        (None, Some(reason)) => (Standing::Waiting(reason), 0, silent),
        (None, None) => (Standing::Judging, running, silent),
    };
    let counts = FleetCounts {
        selected,
        updated: judged.running,
        running,
        failed,
        excluded: 0,
        silent,
    };
    let conditions = conditions(standing, counts, &before.conditions, now);
    failures.truncate(FAILURES);
    FleetRuleStatus {
        observed_generation: Some(generation),
        revision: Some(judged.revision),
        counts,
        firing: judged.firing,
        since: Some(judged.since),
        fired: judged.fired,
        ended: judged.ended,
        stopped: judged.stopped,
        conditions,
        failures,
    }
}

/// Counts the nodes in failures.
fn nodes<'a>(failures: impl Iterator<Item = &'a FleetFailure>) -> u64 {
    let nodes: BTreeSet<&str> = failures.map(|failure| failure.node.as_str()).collect();
    u64::try_from(nodes.len()).unwrap_or(u64::MAX)
}

impl JudgedRule {
    /// The stage of a failed action.
    pub const ACTION: &str = "action";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(node: &str, stage: &str) -> FleetFailure {
        FleetFailure {
            node: node.to_owned(),
            stage: stage.to_owned(),
            reason: "a reason".to_owned(),
        }
    }

    fn said(status: &FleetRuleStatus) -> Vec<String> {
        let all = status.conditions.iter();
        all.map(|it| format!("{}={} {}", it.kind, it.status, it.reason))
            .collect()
    }

    /// Returns a rule that fires, with failures at nodes and of a notification.
    fn failing() -> JudgedRule {
        JudgedRule {
            selected: 5,
            running: 3,
            failures: vec![
                failure("a", JudgedRule::ACTION),
                failure("d", "daemon"),
                failure("d", JudgedRule::ACTION),
                failure("", JudgedRule::ACTION),
            ],
            firing: 2,
            since: "1970-01-01T00:00:00Z".to_owned(),
            ..JudgedRule::default()
        }
    }

    /// Returns the first status of a rule.
    fn status_of(judged: JudgedRule) -> FleetRuleStatus {
        let before = FleetRuleStatus::default();
        judged_rule(judged, 4, &before, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn each_node_is_counted_once() {
        let status = status_of(failing());
        let expected = FleetCounts {
            selected: 5,
            updated: 3,
            running: 3,
            failed: 2,
            excluded: 0,
            silent: 1,
        };
        assert_eq!(
            (status.counts, status.firing, status.observed_generation),
            (expected, 2, Some(4))
        );
        let judging = [
            "Accepted=True Valid",
            "Progressing=False Judging",
            "Available=False NotOnEveryNode",
            "Degraded=True Failures",
        ];
        assert_eq!(said(&status), judging);
        let all = JudgedRule {
            selected: 2,
            running: 2,
            ..JudgedRule::default()
        };
        assert_eq!(said(&status_of(all))[2], "Available=True Running");
    }

    #[test]
    fn a_rule_that_is_stopped_or_waits_runs_on_no_node() {
        let stopped = status_of(JudgedRule {
            stopped: Some("too often".to_owned()),
            ..failing()
        });
        assert_eq!(said(&stopped)[1], "Progressing=False Stopped");
        assert_eq!(
            (stopped.counts.running, stopped.counts.silent),
            (0, 0),
            "the operator asks no node"
        );
        let waits = status_of(JudgedRule {
            waits: Some("no windows".to_owned()),
            ..failing()
        });
        assert_eq!(
            said(&waits)[1..3],
            ["Progressing=True Waiting", "Available=False NotOnEveryNode"]
        );
        assert_eq!(waits.conditions[2].message, "it runs on 0 of 5 nodes");
        assert_eq!(
            waits.counts,
            FleetCounts {
                running: 0,
                ..status_of(failing()).counts
            }
        );
    }
}
