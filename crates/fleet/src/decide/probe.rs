//! The next step of a rollout: it follows from an object's status, its assignment and the reports
//! of nodes alone, so that any order of restarts leads to the same end.

pub mod outcome;

use std::time::Duration;

use jiff::Timestamp;
use twinprobe_api::{AssignmentSpec, FleetFailure, FleetStatus, OnFailure};

use crate::assign::matches;
use crate::decide::conditions::{Standing, conditions};
use crate::plan::FleetPlan;
use crate::rollout::{NodeView, StepVerdict, canaries, judge, members};
use crate::steps::RolloutStep;

/// The word for a rollout that has reached every node.
pub const COMPLETE: &str = "complete";
/// The word for a rollout whose nodes have returned to the earlier revision.
pub const ROLLED_BACK: &str = "rolled back";

/// The known facts about an object.
#[derive(Clone, Copy, Debug)]
pub struct FleetView<'a> {
    pub plan: &'a FleetPlan,
    /// The generation of the object, which counts its changes.
    pub generation: i64,
    /// True if people have stopped the rollout in its present step.
    pub is_paused: bool,
    /// The step, as `REVISION/STEP`, that people have declared good.
    pub promoted: Option<&'a str>,
    pub status: &'a FleetStatus,
    pub assignment: Option<&'a AssignmentSpec>,
    /// All nodes, with their last report about any revision.
    pub nodes: &'a [NodeView<'a>],
    pub now: Timestamp,
}

/// The result of a look: the objects to write, and the news for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetDecision {
    /// The status to write, before the assignment.
    pub status: FleetStatus,
    /// The assignment; without it, no node has the probe.
    pub assignment: Option<AssignmentSpec>,
    pub news: Vec<FleetNews>,
    /// The time after which to look again even if nothing changes.
    pub again: Option<Duration>,
}

/// A step, failure or return, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNews {
    pub is_warning: bool,
    /// The step of the approval, as `REVISION/STEP`.
    pub about: String,
    /// One word in camel case.
    pub reason: &'static str,
    pub message: String,
}

/// Decides for an object whose spec obeys every rule.
pub fn decide(view: &FleetView<'_>) -> FleetDecision {
    let mut selected: Vec<NodeView<'_>> = view.nodes.to_vec();
    selected.retain(|node| matches(&view.plan.node_selector, node.labels));
    let mut walk = DecideWalk {
        view,
        selected,
        status: view.status.clone(),
        news: Vec::new(),
        failures: None,
    };
    walk.begin();
    walk.promote();
    walk.step();
    walk.end()
}

/// Returns the status of an object that can't be rolled out, and why. Nodes keep the revision that
/// they have.
pub fn invalid(status: &FleetStatus, generation: i64, reason: &str, now: Timestamp) -> FleetStatus {
    FleetStatus {
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

struct DecideWalk<'a> {
    view: &'a FleetView<'a>,
    selected: Vec<NodeView<'a>>,
    status: FleetStatus,
    news: Vec<FleetNews>,
    /// The failures that have ended the rollout now.
    failures: Option<Vec<FleetFailure>>,
}

impl<'a> DecideWalk<'a> {
    /// Begins a rollout if the object asks for another revision.
    fn begin(&mut self) {
        let FleetView {
            plan,
            generation,
            now,
            ..
        } = *self.view;
        if self.status.observed_generation != Some(generation) {
            // A change of the object demands another attempt.
            self.status.failed_revision = None;
            self.status.observed_generation = Some(generation);
        }
        let is_over = self.status.failed_revision.as_ref() == Some(&plan.revision);
        if is_over || self.status.revision.as_ref() == Some(&plan.revision) {
            return;
        }
        self.status.revision = Some(plan.revision.clone());
        self.status.step_began = Some(seconds(now));
        if self.status.stable.as_ref() == Some(&plan.revision) {
            self.status.step = Some(COMPLETE.to_owned());
            self.say(
                "Reverted",
                format!(
                    "{} is the earlier revision of the nodes; all have it again",
                    plan.revision
                ),
            );
        } else {
            let first = plan
                .rollout
                .steps
                .first()
                .map_or(COMPLETE, |step| &step.name);
            self.status.step = Some(first.to_owned());
            self.say("Started", format!("{}: step {first}", plan.revision));
        }
    }

    /// Continues if people have declared the present step good.
    fn promote(&mut self) {
        let Some(current) = self.current() else {
            return;
        };
        let name = format!("{}/{}", self.view.plan.revision, current.name);
        if self.view.promoted == Some(&*name) {
            self.status.failed_revision = None;
            self.say(
                "Promoted",
                format!("{name} is good: somebody has promoted it"),
            );
            self.advance(current);
        }
    }

    /// Takes steps as long as nodes have shown that the present one is good.
    fn step(&mut self) {
        while let Some(current) = self.current() {
            let is_stopped = self.status.failed_revision.is_some();
            if self.view.is_paused || is_stopped {
                return;
            }
            let began = self
                .status
                .step_began
                .as_deref()
                .and_then(|began| began.parse().ok());
            let members = self.members(current);
            match judge(
                &self.view.plan.rollout,
                &members,
                began.unwrap_or(self.view.now),
                self.view.now,
            ) {
                StepVerdict::Wait(_) => return,
                StepVerdict::Good => {
                    let count = members.len();
                    let (name, all) = (&current.name, self.selected.len());
                    self.say(
                        "StepGood",
                        format!("{name}: good on {count} of {all} nodes"),
                    );
                    self.advance(current);
                }
                StepVerdict::Failed(failures) => self.fail(current, failures),
            }
        }
    }

    fn advance(&mut self, current: &RolloutStep) {
        let plan = self.view.plan;
        self.status.step_began = Some(seconds(self.view.now));
        let next = plan
            .rollout
            .steps
            .iter()
            .find(|step| step.share > current.share);
        if let Some(next) = next {
            self.status.step = Some(next.name.clone());
            return;
        }
        self.status.step = Some(COMPLETE.to_owned());
        self.status.stable = Some(plan.revision.clone());
        self.say("Complete", format!("{} is on every node", plan.revision));
    }

    fn fail(&mut self, current: &RolloutStep, failures: Vec<FleetFailure>) {
        let plan = self.view.plan;
        let first = failures.first();
        let first =
            first.map(|failed| format!("{}: {}: {}", failed.node, failed.stage, failed.reason));
        let (name, count) = (&current.name, failures.len());
        let nodes = if count == 1 {
            "1 node".to_owned()
        } else {
            format!("{count} nodes")
        };
        let text = format!(
            "{}: step {name} failed at {nodes}, {}",
            plan.revision,
            first.unwrap_or_default()
        );
        self.status.failed_revision = Some(plan.revision.clone());
        let (reason, then) = match (plan.rollout.on_failure, &self.status.stable) {
            (OnFailure::Pause, _) => ("Stopped", "nodes keep their configurations".to_owned()),
            (OnFailure::Rollback, Some(stable)) => {
                ("RolledBack", format!("nodes go back to {stable}"))
            }
            (OnFailure::Rollback, None) => {
                ("RolledBack", "the probe is removed from nodes".to_owned())
            }
        };
        if plan.rollout.on_failure == OnFailure::Rollback {
            self.status.revision = self.status.stable.clone();
            self.status.step = Some(ROLLED_BACK.to_owned());
        }
        let about = format!("{}/{name}", plan.revision);
        self.news.push(FleetNews {
            is_warning: true,
            about,
            reason,
            message: format!("{text}; {then}"),
        });
        self.failures = Some(failures);
    }

    /// Returns the present step, if the rollout continues. If the spec no longer has the old step,
    /// returns the first step with at least the reached share.
    fn current(&self) -> Option<&'a RolloutStep> {
        let name = self
            .status
            .step
            .as_deref()
            .filter(|name| ![COMPLETE, ROLLED_BACK].contains(name))?;
        let steps = &self.view.plan.rollout.steps;
        let reached = self
            .view
            .assignment
            .map_or(0, |assignment| assignment.share);
        let exact = steps.iter().find(|step| step.name == name);
        exact
            .or_else(|| steps.iter().find(|step| step.share >= reached))
            .or(steps.last())
    }

    fn canaries(&self) -> Vec<String> {
        let plan = self.view.plan;
        let before = self
            .view
            .assignment
            .filter(|before| before.revision == plan.revision);
        let before = before.map_or(&[][..], |before| &before.canaries);
        canaries(&plan.rollout, &plan.revision, &self.selected, before)
    }

    fn members(&self, step: &RolloutStep) -> Vec<NodeView<'a>> {
        let plan = self.view.plan;
        let views = self.seen(&plan.revision);
        members(
            &plan.rollout,
            step,
            &plan.revision,
            &views,
            &self.canaries(),
        )
    }

    /// The selected nodes with their reports about this revision.
    fn seen(&self, revision: &str) -> Vec<NodeView<'a>> {
        let view = |node: &NodeView<'a>| NodeView {
            report: node.report.filter(|report| report.revision == revision),
            ..*node
        };
        self.selected.iter().map(view).collect()
    }

    fn say(&mut self, reason: &'static str, message: String) {
        let step = self.status.step.as_deref().unwrap_or_default();
        let about = format!("{}/{step}", self.view.plan.revision);
        self.news.push(FleetNews {
            is_warning: false,
            about,
            reason,
            message,
        });
    }
}

fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

#[cfg(test)]
mod tests;
