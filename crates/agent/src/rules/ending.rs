//! The end of a rule's actions: the rule's probes are removed, and its changes are reverted.

use jiff::Timestamp;
use twinprobe_faults::crash;
use twinprobe_store::Durable;

use crate::engine::error::EngineError;
use crate::rules::actions::FiringContext;
use crate::rules::runner::RuleRunner;

impl RuleRunner {
    /// Ends the actions of the rule.
    pub(super) async fn end(&self) -> Result<(), EngineError> {
        let stored = self.stored.lock().clone();
        let (made, firing) = (
            &stored.made,
            FiringContext {
                window: stored.state.window,
            },
        );
        let mut failed = self.actions.change_back(&stored).await?;
        for name in made {
            if let Err(error) = self.actions.delete(name, &firing, true).await {
                failed = Some(format!("probe {name} can't be removed: {}", error.reason));
            }
        }
        crash::point("rule_ended");
        // The lease removes a probe that could not be removed here.
        self.commit(Durable::Now, |stored| {
            stored.made.clear();
            stored.changed.clear();
            stored.is_ending = false;
            let ended = Timestamp::now().to_string();
            if let Some(firing) = stored.firings.last_mut() {
                firing.ended.get_or_insert(ended);
            }
            stored.last_error = failed.or(stored.last_error.take());
        })
        .await?;
        let stopped = self.stored.lock().state.stopped.clone();
        if let Some(reason) = stopped {
            tracing::error!(
                rule = self.actions.rule,
                reason,
                "the rule has stopped; PUT it again to start it"
            );
            self.actions
                .engine
                .telemetry
                .rules
                .set_stopped(&self.actions.rule, true);
            self.actions.note("STOP", &reason, &firing);
        }
        Ok(())
    }

    /// Ends the actions of a firing after the watched probe was removed, because no window can end
    /// them any more. Returns false if the rule has no such actions.
    pub(super) async fn end_without_probe(&self) -> Result<bool, EngineError> {
        let firing = self.stored.lock().state.firing;
        let Some(window) = firing else {
            return Ok(false);
        };
        let (rule, probe) = (&self.actions.rule, &self.actions.watched);
        tracing::warn!(
            rule,
            probe,
            window,
            "the watched probe was removed; the actions of the rule end"
        );
        self.commit(Durable::Now, |stored| {
            (stored.state.firing, stored.state.holds, stored.is_ending) = (None, 0, true);
            stored.last_error = Some(format!(
                "the probe {probe} was removed while the actions of window {window} went on"
            ));
        })
        .await?;
        Ok(true)
    }
}
