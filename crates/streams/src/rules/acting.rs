//! Consequences of a fleet rule's decision: its actions, their end, its notifications.

use twinprobe_api::RuleAction;
use twinprobe_rules::{Decision, PeriodDecision, end_of};

use super::lane::{PeriodProgress, RuleLane};
use super::members::{ActionFaults, FleetFiring};
use super::outbox::FleetMessage;
use super::standing::{RuleStanding, change};

impl RuleLane {
    pub(super) async fn act(
        &self,
        progress: &mut PeriodProgress,
        period: u64,
        decided: PeriodDecision,
    ) {
        let PeriodDecision {
            decision,
            actions,
            values,
            nodes,
            ..
        } = decided;
        let end = end_of(period, progress.length);
        let rule = &self.rule;
        match (decision, actions) {
            (Some(Decision::Fire { .. }), Ok(actions)) => {
                tracing::info!(rule = rule.name, period, ?nodes, "fires");
                self.counts.firings.inc();
                let firing = FleetFiring {
                    rule,
                    end,
                    nodes: &nodes,
                    values: values.as_ref(),
                };
                let failed = self.take_all(progress, period, &actions, firing).await;
                self.acted(failed, |standing| {
                    (standing.fired, standing.acting) = (Some(end), nodes);
                });
            }
            (Some(Decision::Fire { .. }), Err(error)) => {
                tracing::error!(rule = rule.name, period, error, "the actions can't be made");
                let failed = vec![(String::new(), format!("the actions can't be made: {error}"))];
                self.acted(failed, |standing| standing.fired = Some(end));
            }
            (Some(Decision::End { .. }), _) => {
                tracing::info!(
                    rule = rule.name,
                    period,
                    "the condition of the rule has ended"
                );
                let failed = if is_past(progress, end) {
                    Vec::new()
                } else {
                    progress.members.end(rule, end).await
                };
                self.acted(failed, |standing| {
                    standing.ended = Some(end);
                    standing.acting.clear();
                });
            }
            (None, _) => {}
        }
    }

    /// Takes the actions of a firing, and begins to send its notifications. Returns the failures.
    async fn take_all(
        &self,
        progress: &mut PeriodProgress,
        period: u64,
        actions: &[RuleAction],
        firing: FleetFiring<'_>,
    ) -> ActionFaults {
        let is_past = is_past(progress, firing.end);
        let mut failed = ActionFaults::new();
        for (index, action) in actions.iter().enumerate() {
            if let RuleAction::Notify(url) = action {
                let message = FleetMessage::new(url, index, firing);
                progress
                    .outbox
                    .send((period, index), message, &self.counts, self.once);
            } else if !is_past {
                failed.extend(progress.members.take(action, firing).await);
            }
        }
        failed
    }

    /// Shows that a notification has arrived, or is given up.
    pub(super) fn note_arrival(
        &self,
        progress: &mut PeriodProgress,
        period: u64,
        arrived: Result<(), String>,
    ) {
        progress.outbox.count(&self.counts);
        let Err(error) = arrived else { return };
        if self.once {
            progress.unsent = progress.unsent.into_iter().chain([period]).min();
        }
        tracing::error!(
            rule = self.rule.name,
            period,
            error,
            "a notification is given up"
        );
        self.counts.failures.inc();
        let failed = format!("a notification did not arrive: {error}");
        change(&self.rule.standing, |standing| {
            _ = standing.failed.insert(String::new(), failed);
        });
    }

    /// Waits for the notifications at the end of the stream. Returns false if one did not arrive:
    /// the next process sends it.
    pub(super) async fn arrived(&self, progress: &mut PeriodProgress) -> bool {
        while progress.outbox.oldest().is_some() {
            tokio::select! {
                (period, arrived) = progress.outbox.next() => self.note_arrival(progress, period, arrived),
                () = self.stopping.stopped() => return true,
            }
        }
        self.release(progress);
        progress.unsent.is_none()
    }

    /// Shows the outcome of actions.
    fn acted(&self, failed: ActionFaults, with: impl FnOnce(&mut RuleStanding)) {
        self.counts
            .failures
            .inc_by(u64::try_from(failed.len()).unwrap_or(u64::MAX));
        change(&self.rule.standing, |standing| {
            standing.failed = failed.into_iter().collect();
            with(standing);
        });
    }
}

/// Tells whether an earlier process has acted at the end of this period, and has decided again
/// since. Then only its notifications may be missing.
fn is_past(progress: &PeriodProgress, end: i64) -> bool {
    progress.members.events.iter().any(|event| event.end > end)
}
