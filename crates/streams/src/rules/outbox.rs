//! Notifications of a rule on their way. They delay neither windows nor other actions. The stream
//! keeps nothing: daemons keep the windows of a firing until its notifications have arrived, so
//! that the next process sends them again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;
use twinprobe_client::{Notification, NotifyFault, notify};

use super::document::NamedRule;
use super::members::FleetFiring;
use crate::telemetry::rules::FleetRuleMeter;

/// The attempts at a notification. With the pauses between them they take about an hour.
const ATTEMPTS: u32 = 67;
/// The number of attempts when the stream must end.
const ATTEMPTS_ONCE: u32 = 5;
/// The pause after the first attempt. It doubles each time, up to the longest one.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_mins(1);
/// The longest wait for a receiver's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most notifications that wait at the same time. Then the oldest is given up.
const MOST: usize = 64;

/// The period of the firing, and the number of the action.
type MessageKey = (u64, usize);

/// The notifications that have not arrived yet.
#[derive(Debug, Default)]
pub struct FleetOutbox {
    sending: JoinSet<(MessageKey, Result<(), String>)>,
    waiting: BTreeMap<MessageKey, AbortHandle>,
}

/// A notification of a firing.
#[derive(Debug)]
pub struct FleetMessage {
    rule: NamedRule,
    url: String,
    identity: String,
    body: Value,
}

impl FleetMessage {
    pub fn new(url: &str, index: usize, firing: FleetFiring<'_>) -> Self {
        let rule = &firing.rule.name;
        // Streams of other nodes may have a rule of this name, whose periods end at the same times.
        let first = firing.nodes.first().map_or("", String::as_str);
        let identity = format!("{rule}/{first}/{}/{index}", firing.end);
        let time = jiff::Timestamp::from_nanosecond(firing.end.into())
            .unwrap_or_default()
            .to_string();
        let (probe, nodes) = (&firing.rule.document.watch, firing.nodes);
        let body = json!({ "rule": rule, "probe": probe, "nodes": nodes, "time": time, "identity": identity });
        Self {
            rule: firing.rule.clone(),
            url: url.to_owned(),
            identity,
            body,
        }
    }

    /// Sends the message until it arrives, or the attempts are over. Returns the last error.
    async fn deliver(self, attempts: u32) -> Result<(), String> {
        let mut attempt = 1;
        loop {
            let Err(NotifyFault { reason, again }) = self.send().await else {
                return Ok(());
            };
            if !again || attempt >= attempts {
                return Err(format!("attempt {attempt}: {reason}"));
            }
            if attempt == 1 {
                let rule = &self.rule.name;
                tracing::warn!(
                    rule,
                    reason,
                    "a notification did not arrive; it is sent again"
                );
            }
            sleep(
                FIRST
                    .saturating_mul(2_u32.saturating_pow(attempt - 1))
                    .min(LONGEST),
            )
            .await;
            attempt += 1;
        }
    }

    async fn send(&self) -> Result<(), NotifyFault> {
        let keys = self.rule.keys().await.map_err(|reason| NotifyFault {
            reason,
            again: true,
        })?;
        let Self {
            url,
            identity,
            body,
            ..
        } = self;
        notify(&Notification {
            url,
            identity,
            body,
            keys: keys.as_ref(),
            patience: PATIENCE,
        })
        .await
    }
}

impl FleetOutbox {
    /// Begins to send a message.
    pub fn send(
        &mut self,
        key: MessageKey,
        message: FleetMessage,
        counts: &FleetRuleMeter,
        once: bool,
    ) {
        if self.waiting.len() >= MOST
            && let Some((_, oldest)) = self.waiting.pop_first()
        {
            oldest.abort();
            let rule = &message.rule.name;
            tracing::error!(
                rule,
                "a notification is given up: more than {MOST} of the rule wait"
            );
            counts.failures.inc();
        }
        let attempts = if once { ATTEMPTS_ONCE } else { ATTEMPTS };
        let handle = self
            .sending
            .spawn(async move { (key, message.deliver(attempts).await) });
        self.waiting.insert(key, handle);
        self.count(counts);
    }

    /// Shows how many messages wait.
    pub fn count(&self, counts: &FleetRuleMeter) {
        counts
            .waiting
            .set(i64::try_from(self.waiting.len()).unwrap_or(i64::MAX));
    }

    /// The period of the oldest message that has not arrived.
    pub fn oldest(&self) -> Option<u64> {
        self.waiting
            .first_key_value()
            .map(|((period, _), _)| *period)
    }

    /// Waits until a message has arrived, or is given up. Returns the period of its firing.
    pub async fn next(&mut self) -> (u64, Result<(), String>) {
        while let Some(ended) = self.sending.join_next().await {
            match ended {
                Ok((key, arrived)) => {
                    self.waiting.remove(&key);
                    return (key.0, arrived);
                }
                Err(error) if error.is_cancelled() => {}
                Err(error) => tracing::error!(%error, "a notification has failed"),
            }
        }
        // Only a task that has panicked leaves an entry.
        self.waiting.clear();
        std::future::pending().await
    }
}
