//! The attempts to send notifications. A notification stays in the record of its rule until it
//! arrives, or until the attempts end.

use twinprobe_client::NotifyFault;
use twinprobe_faults::crash;
use twinprobe_store::Durable;

use super::courier::{ATTEMPTS, NotificationKey};
use crate::engine::error::EngineError;
use crate::rules::actions::FiringContext;
use crate::rules::runner::RuleRunner;
use crate::store::rules::{StoredNotification, StoredRule};

/// The most unsent notifications of a rule.
const MOST: usize = 64;

impl StoredRule {
    /// Puts a notification into the outbox. If there are too many notifications, the oldest one is
    /// dropped.
    pub fn send(&mut self, window: u64, index: usize, url: &str) {
        let notification = StoredNotification {
            probe: self.document.watch.clone(),
            instance: self.instance.clone(),
            window,
            time: self.time_of(window),
            index,
            url: url.to_owned(),
            attempts: 0,
            error: None,
        };
        self.outbox.push(notification);
    }

    fn settle_notification(&mut self, at: usize, failed: Option<&str>) {
        let StoredNotification { window, time, .. } = self.outbox.remove(at);
        if let Some(reason) = failed {
            self.last_error = Some(reason.to_owned());
            self.mark(window, &time, |firing| {
                firing.error = Some(reason.to_owned());
            });
        }
        self.settle(window, &time);
    }
}

impl RuleRunner {
    /// Records the outcomes of attempts, and sends the notifications that are due.
    pub(in crate::rules) async fn deliver(&mut self) -> Result<(), EngineError> {
        while let Some((key, sent)) = self.courier.take() {
            crash::point("rule_notified");
            // If the store fails, the next attempt reports this outcome again.
            self.courier.plan(key.clone(), Some(1));
            self.note_attempt(key, sent).await?;
        }
        while self.stored.lock().outbox.len() > MOST {
            let oldest = self.stored.lock().outbox[0].clone();
            self.give_up(
                &oldest,
                &format!("more than {MOST} notifications of the rule wait"),
            )
            .await?;
        }
        let outbox = self.stored.lock().outbox.clone();
        self.actions
            .engine
            .telemetry
            .rules
            .set_waiting(&self.actions.rule, outbox.len());
        self.courier.send(&self.actions, &outbox);
        Ok(())
    }

    async fn note_attempt(
        &mut self,
        key: NotificationKey,
        sent: Result<(), NotifyFault>,
    ) -> Result<(), EngineError> {
        self.actions
            .engine
            .telemetry
            .rules
            .acted(&self.actions.rule, sent.is_ok());
        let found = self
            .stored
            .lock()
            .outbox
            .iter()
            .find(|waiting| waiting.key() == key)
            .cloned();
        let Some(waiting) = found else {
            self.courier.plan(key, None);
            return Ok(());
        };
        let NotifyFault { reason, again } = match sent {
            Ok(()) => {
                let arrived = |stored: &mut StoredRule, at| stored.settle_notification(at, None);
                self.change(&key, Durable::Now, arrived).await?;
                self.courier.plan(key, None);
                return Ok(());
            }
            Err(fault) => fault,
        };
        let attempts = waiting.attempts + 1;
        if !again || attempts >= ATTEMPTS {
            return self
                .give_up(&waiting, &format!("attempt {attempts}: {reason}"))
                .await;
        }
        let (rule, window, index) = (&self.actions.rule, waiting.window, waiting.index);
        if waiting.attempts == 0 {
            tracing::warn!(
                rule,
                window,
                index,
                reason,
                "a notification did not arrive; it is sent again"
            );
        }
        let failed = |stored: &mut StoredRule, at: usize| {
            stored.last_error = Some(format!("do[{index}] of window {window}: {reason}"));
            (stored.outbox[at].attempts, stored.outbox[at].error) =
                (attempts, Some(reason.clone()));
        };
        self.change(&key, Durable::Soon, failed).await?;
        self.courier.plan(key, Some(attempts));
        Ok(())
    }

    /// Ends the attempts to send a notification. The log, the audit log, the record of the firing
    /// and a counter show this.
    async fn give_up(
        &mut self,
        waiting: &StoredNotification,
        reason: &str,
    ) -> Result<(), EngineError> {
        let (window, index) = (waiting.window, waiting.index);
        let told =
            format!("do[{index}] of window {window}: the notification is given up: {reason}");
        let given_up =
            |stored: &mut StoredRule, at: usize| stored.settle_notification(at, Some(&told));
        self.change(&waiting.key(), Durable::Now, given_up).await?;
        self.courier.plan(waiting.key(), None);
        let rule = &self.actions.rule;
        tracing::error!(rule, window, index, reason, "a notification is given up");
        self.actions
            .note("GIVE UP", &told, &FiringContext { window });
        self.actions.engine.telemetry.rules.given_up(rule);
        Ok(())
    }

    /// Changes the record of a notification, if the notification still exists.
    async fn change(
        &self,
        key: &NotificationKey,
        durable: Durable,
        with: impl FnOnce(&mut StoredRule, usize),
    ) -> Result<(), EngineError> {
        self.commit(durable, |stored| {
            let at = stored
                .outbox
                .iter()
                .position(|waiting| waiting.key() == *key);
            if let Some(at) = at {
                with(stored, at);
            }
        })
        .await
    }
}
