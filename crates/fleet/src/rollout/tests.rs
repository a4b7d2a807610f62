use std::time::Duration;

use twinprobe_api::{FleetBudget, OnFailure};

use super::*;

const REVISION: &str = "flows-0a1b";

fn plan(canary: Option<Canary>) -> RolloutPlan {
    RolloutPlan {
        canary,
        steps: Vec::new(),
        windows: 2,
        timeout: Duration::from_mins(5),
        budget: FleetBudget {
            ns_per_packet: Some(100),
            refused: 1,
            ..FleetBudget::default()
        },
        on_failure: OnFailure::Rollback,
    }
}

fn running(windows: u32, ns: f64) -> NodeReport {
    NodeReport {
        state: NodeState::Running,
        windows,
        ns_per_packet: Some(ns),
        ..NodeReport::default()
    }
}

fn refused() -> NodeReport {
    let (stage, reason) = (
        Some("load".to_owned()),
        Some("invalid access to packet".to_owned()),
    );
    NodeReport {
        state: NodeState::Refused,
        stage,
        reason,
        ..NodeReport::default()
    }
}

/// Judges a step with these reports of its nodes, this many seconds after its beginning.
fn judged(reports: &[Option<NodeReport>], seconds: i64) -> StepVerdict {
    let (names, labels) = (["a", "b", "c", "d"], BTreeMap::new());
    let nodes = names.iter().zip(reports);
    let nodes: Vec<_> = nodes
        .map(|(name, report)| NodeView {
            name,
            labels: &labels,
            report: report.as_ref(),
        })
        .collect();
    let began = Timestamp::from_second(1_000_000).unwrap();
    judge(
        &plan(None),
        &nodes,
        began,
        Timestamp::from_second(1_000_000 + seconds).unwrap(),
    )
}

fn failures(verdict: StepVerdict) -> Vec<String> {
    match verdict {
        StepVerdict::Failed(failures) => failures
            .iter()
            .map(|failed| format!("{} {}: {}", failed.node, failed.stage, failed.reason))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_waits_for_answers_and_windows() {
    assert_eq!(
        judged(&[None, Some(running(1, 50.0)), Some(running(2, 50.0))], 10),
        StepVerdict::Wait(2)
    );
    assert_eq!(
        judged(&[Some(running(2, 50.0)), Some(running(3, 99.0))], 10),
        StepVerdict::Good
    );
    assert_eq!(
        judged(&[], 0),
        StepVerdict::Good,
        "a step without nodes is over at once"
    );
}

#[test]
fn silence_is_failure_when_the_time_is_over() {
    assert_eq!(judged(&[None], 299), StepVerdict::Wait(1));
    let said = failures(judged(&[None, Some(running(1, 5.0))], 300));
    assert_eq!(
        said,
        [
            "a silent: no answer within 5m",
            "b silent: not enough windows within 5m"
        ]
    );
    assert_eq!(
        judged(&[None], -5),
        StepVerdict::Wait(1),
        "a clock that was set back is no timeout"
    );
}

#[test]
fn one_node_over_the_budget_stops_a_step_at_once() {
    let said = failures(judged(&[None, Some(running(0, 101.0))], 1));
    assert_eq!(
        said,
        ["b budget: 101 ns per packet in the trial at admission, 100 are in the budget"]
    );
}

#[test]
fn so_many_nodes_may_refuse_as_the_budget_says() {
    assert_eq!(
        judged(&[Some(refused()), Some(running(2, 1.0))], 1),
        StepVerdict::Good
    );
    let said = failures(judged(&[Some(refused()), Some(refused())], 1));
    assert_eq!(
        said,
        [
            "a load: invalid access to packet",
            "b load: invalid access to packet"
        ]
    );
    let failed = NodeReport {
        state: NodeState::Failed,
        ..NodeReport::default()
    };
    assert_eq!(
        failures(judged(&[Some(failed)], 1)),
        ["a daemon: no reason was given"]
    );
}

#[test]
fn nodes_without_an_interface_hold_nothing_up() {
    let excluded = NodeReport {
        state: NodeState::Excluded,
        ..NodeReport::default()
    };
    assert_eq!(judged(&[Some(excluded)], 1), StepVerdict::Good);
}

#[test]
fn members_grow_from_step_to_step() {
    let names: Vec<String> = (0..1000).map(|i| format!("node-{i}")).collect();
    let (plain, canary) = (
        BTreeMap::new(),
        BTreeMap::from([("canary".to_owned(), "yes".to_owned())]),
    );
    let nodes: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(i, name)| NodeView {
            name,
            labels: if i == 7 { &canary } else { &plain },
            report: None,
        })
        .collect();
    let count = |plan: &RolloutPlan, share| {
        let step = RolloutStep {
            name: String::new(),
            share,
        };
        let canaries = canaries(plan, REVISION, &nodes, &[]);
        members(plan, &step, REVISION, &nodes, &canaries)
            .iter()
            .map(|node| node.name)
            .collect::<Vec<_>>()
    };
    let by_labels = plan(Some(Canary::Labels(canary.clone())));
    assert_eq!(count(&by_labels, 0), ["node-7"]);
    let by_number = plan(Some(Canary::Nodes(3)));
    let canaries = count(&by_number, 0);
    assert_eq!(canaries.len(), 3);
    let tenth = count(&by_number, 1000);
    assert!(
        canaries.iter().all(|name| tenth.contains(name)) && (70..130).contains(&tenth.len()),
        "{}",
        tenth.len()
    );
    assert_eq!(count(&by_number, 10_000).len(), 1000);
}
