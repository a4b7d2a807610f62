//! The steps of a rollout: the nodes that belong to a step, and the consequence of their reports.

use std::collections::BTreeMap;

use jiff::Timestamp;
use twinprobe_api::{Canary, FleetFailure, NodeReport, NodeState};

use crate::assign::matches;
use crate::budget::over;
use crate::share::{first, part};
use crate::steps::{RolloutPlan, RolloutStep};

/// A selected node as a rollout sees it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    /// The node's last report about the revision of this rollout.
    pub report: Option<&'a NodeReport>,
}

/// The consequence of the reports of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepVerdict {
    /// The step waits for this number of nodes, which have not answered or not closed their
    /// windows.
    Wait(usize),
    /// The cost on every node of the step is known, and nothing prevents the next step.
    Good,
    /// The step has failed at these nodes.
    Failed(Vec<FleetFailure>),
}

/// Returns the names of the canaries where a rollout asks for a number of them. Canaries in
/// `before` stay as long as they are among the nodes: a new node displaces none of them.
pub fn canaries(
    plan: &RolloutPlan,
    revision: &str,
    nodes: &[NodeView<'_>],
    before: &[String],
) -> Vec<String> {
    let Some(Canary::Nodes(count)) = plan.canary else {
        return Vec::new();
    };
    let count = usize::try_from(count).unwrap_or_default();
    let names = || nodes.iter().map(|node| node.name);
    let mut canaries: Vec<String> = before
        .iter()
        .filter(|name| names().any(|node| node == *name))
        .cloned()
        .collect();
    let others = names().filter(|name| !before.iter().any(|known| known == name));
    let missing = count.saturating_sub(canaries.len());
    canaries.extend(
        first(others, revision, missing)
            .into_iter()
            .map(str::to_owned),
    );
    canaries.truncate(count);
    canaries
}

/// Returns the nodes that run the revision in this step, including the nodes of earlier steps.
pub fn members<'a>(
    plan: &RolloutPlan,
    step: &RolloutStep,
    revision: &str,
    nodes: &[NodeView<'a>],
    canaries: &[String],
) -> Vec<NodeView<'a>> {
    let is_member = |node: &&NodeView<'a>| {
        let by_labels = match &plan.canary {
            Some(Canary::Labels(labels)) => matches(labels, node.labels),
            _ => false,
        };
        let is_named = canaries.iter().any(|canary| canary == node.name);
        by_labels || is_named || part(node.name, revision) < step.share
    };
    nodes.iter().filter(is_member).copied().collect()
}

/// Judges a step by the reports of its nodes. A node that has not answered `timeout` after the step
/// has begun counts as failed.
pub fn judge(
    plan: &RolloutPlan,
    members: &[NodeView<'_>],
    began: Timestamp,
    now: Timestamp,
) -> StepVerdict {
    let waited = now.duration_since(began).unsigned_abs();
    let is_over = now >= began && waited >= plan.timeout;
    let (mut refused, mut failures, mut waiting) = (Vec::new(), Vec::new(), 0);
    for node in members {
        match standing(plan, node) {
            NodeStanding::Good => {}
            NodeStanding::Refused(failure) => refused.push(failure),
            NodeStanding::Failed(failure) => failures.push(failure),
            NodeStanding::Waiting(reason) if is_over => {
                let stage = "silent".to_owned();
                let reason = format!("{reason} within {}", duration(plan.timeout));
                failures.push(FleetFailure {
                    node: node.name.to_owned(),
                    stage,
                    reason,
                });
            }
            NodeStanding::Waiting(_) => waiting += 1,
        }
    }
    let may_refuse = usize::try_from(plan.budget.refused).unwrap_or(usize::MAX);
    if refused.len() > may_refuse {
        failures.append(&mut refused);
    }
    match (failures.is_empty(), waiting) {
        (false, _) => StepVerdict::Failed(failures),
        (true, 0) => StepVerdict::Good,
        (true, waiting) => StepVerdict::Wait(waiting),
    }
}

enum NodeStanding {
    Good,
    Waiting(&'static str),
    Refused(FleetFailure),
    Failed(FleetFailure),
}

fn standing(plan: &RolloutPlan, node: &NodeView<'_>) -> NodeStanding {
    let Some(report) = node.report else {
        return NodeStanding::Waiting("no answer");
    };
    let failure = |stage: &str, reason: Option<&str>| FleetFailure {
        node: node.name.to_owned(),
        stage: report.stage.as_deref().unwrap_or(stage).to_owned(),
        reason: reason.unwrap_or("no reason was given").to_owned(),
    };
    match report.state {
        NodeState::Refused => NodeStanding::Refused(failure("daemon", report.reason.as_deref())),
        NodeState::Failed => NodeStanding::Failed(failure("daemon", report.reason.as_deref())),
        NodeState::Excluded => NodeStanding::Good,
        NodeState::Running => match over(report, &plan.budget) {
            Some(reason) => NodeStanding::Failed(failure("budget", Some(&reason))),
            None if report.windows < plan.windows => NodeStanding::Waiting("not enough windows"),
            None => NodeStanding::Good,
        },
    }
}

/// Returns a duration in words: `5m`, `90s`.
fn duration(time: std::time::Duration) -> String {
    let seconds = time.as_secs();
    if seconds > 0 && seconds.is_multiple_of(60) {
        format!("{}m", seconds / 60)
    } else {
        format!("{seconds}s")
    }
}

#[cfg(test)]
mod tests;
