//! The outcome of a look at an object: its status, the assignment for nodes, and the time of the
//! next look.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use twinprobe_api::{AssignmentSpec, Canary};

use super::{DecideWalk, FleetDecision, FleetView, seconds};
use crate::decide::conditions::{Standing, conditions};
use crate::share::WHOLE;
use crate::spread::spread;
use crate::steps::RolloutStep;
use crate::tally::tally;

impl DecideWalk<'_> {
    /// Counts the nodes, and reports the progress of the rollout.
    pub(super) fn end(mut self) -> FleetDecision {
        let plan = self.view.plan;
        let current = self.current();
        let members = match current {
            Some(step) => self.members(step),
            None => self.seen(self.status.revision.as_deref().unwrap_or_default()),
        };
        let views = self.seen(self.status.revision.as_deref().unwrap_or_default());
        let (counts, worst, failures) = tally(&plan.rollout, &views, &members);
        (self.status.counts, self.status.worst) = (counts, worst);
        let is_over = self.status.failed_revision.is_some();
        match self.failures.take() {
            Some(failures) => self.status.failures = failures.into_iter().take(10).collect(),
            // Users look for the failures that caused the return here.
            None if is_over => {}
            None => self.status.failures = failures,
        }
        let standing = self.standing(current);
        self.status.conditions = conditions(
            standing.of(),
            counts,
            &self.status.conditions,
            self.view.now,
        );
        let assignment = self.assignment(current);
        let waits = current
            .filter(|_| !is_over && !self.view.is_paused)
            .is_some();
        let renewal = assignment.as_ref().and_then(lease).map(|lease| lease / 3);
        let again = [waits.then_some(self.rest()), renewal]
            .into_iter()
            .flatten()
            .min();
        FleetDecision {
            status: self.status,
            assignment,
            news: self.news,
            again,
        }
    }

    fn standing(&self, current: Option<&RolloutStep>) -> Stand {
        let before = self
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Progressing");
        let reason = self
            .news
            .iter()
            .rfind(|news| news.is_warning)
            .map(|news| news.message.clone());
        let reason = reason
            .or_else(|| before.map(|condition| condition.message.clone()))
            .unwrap_or_default();
        match (current, &self.status.failed_revision) {
            (Some(_), Some(_)) => Stand::Stopped(reason),
            (None, Some(_)) => Stand::RolledBack(reason),
            (Some(step), None) if self.view.is_paused => Stand::Paused(step.name.clone()),
            (Some(step), None) => Stand::Step(step.name.clone()),
            (None, None) => Stand::Complete,
        }
    }

    /// Returns the assignment for nodes. It follows from the status alone, so that a lost write is
    /// repeated.
    fn assignment(&self, current: Option<&RolloutStep>) -> Option<AssignmentSpec> {
        let FleetView {
            plan,
            assignment: before,
            now,
            ..
        } = *self.view;
        let revision = self.status.revision.clone()?;
        let mut assignment = AssignmentSpec {
            probe: plan.name.clone(),
            revision,
            node_selector: plan.node_selector.clone(),
            share: WHOLE,
            windows: plan.rollout.windows,
            lease: plan.config.expires.clone(),
            ..AssignmentSpec::default()
        };
        if let Some(step) = current {
            assignment.share = step.share;
            assignment.previous = self
                .status
                .stable
                .clone()
                .filter(|stable| *stable != assignment.revision);
            assignment.canaries = self.canaries();
            if let Some(Canary::Labels(labels)) = &plan.rollout.canary {
                assignment.canary_labels = Some(labels.clone());
            }
        }
        assignment.renewed = lease(&assignment).map(|lease| {
            let last = before.and_then(|before| before.renewed.as_deref());
            let is_fresh = |last: &&str| {
                last.parse().is_ok_and(|last: Timestamp| {
                    now.duration_since(last).unsigned_abs() < lease / 3
                })
            };
            last.filter(is_fresh)
                .map_or_else(|| seconds(now), str::to_owned)
        });
        // Half of the time remains for the windows of the last node.
        Some(spread(
            assignment,
            before,
            &self.selected,
            plan.rollout.timeout / 2,
        ))
    }

    /// The time until the present step is over.
    fn rest(&self) -> Duration {
        let began: Option<Timestamp> = self
            .status
            .step_began
            .as_deref()
            .and_then(|began| began.parse().ok());
        let spent = began.map(|began| self.view.now.duration_since(began).unsigned_abs());
        let rest = self
            .view
            .plan
            .rollout
            .timeout
            .saturating_sub(spent.unwrap_or_default());
        rest.max(Duration::from_secs(1))
    }
}

/// A [`Standing`] with its own texts.
enum Stand {
    Step(String),
    Paused(String),
    Stopped(String),
    RolledBack(String),
    Complete,
}

impl Stand {
    fn of(&self) -> Standing<'_> {
        match self {
            Self::Step(name) => Standing::Step(name),
            Self::Paused(name) => Standing::Paused(name),
            Self::Stopped(reason) => Standing::Stopped(reason),
            Self::RolledBack(reason) => Standing::RolledBack(reason),
            Self::Complete => Standing::Complete,
        }
    }
}

/// Returns the lease of an assignment.
pub fn lease(assignment: &AssignmentSpec) -> Option<Duration> {
    let lease: SignedDuration = assignment.lease.as_deref()?.parse().ok()?;
    Duration::try_from(lease).ok()
}

/// Tells whether the lease of an assignment has ended, because there was no renewal for its
/// duration.
pub fn is_over(assignment: &AssignmentSpec, now: Timestamp) -> bool {
    let renewed: Option<Timestamp> = assignment
        .renewed
        .as_deref()
        .and_then(|renewed| renewed.parse().ok());
    lease(assignment)
        .zip(renewed)
        .is_some_and(|(lease, renewed)| {
            now.duration_since(renewed)
                > SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX)
        })
}
