//! The attempts to send the notifications of one rule, and the times of the next attempts.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use twinprobe_client::NotifyFault;

use crate::rules::actions::RuleActions;
use crate::store::rules::StoredNotification;

/// The number of attempts for a notification. With the pauses between them, they take about an
/// hour.
pub const ATTEMPTS: u32 = 67;
/// The pause after the first attempt. It doubles after each attempt, up to the longest pause.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_mins(1);
/// The most attempts for one rule at the same time.
const AT_ONCE: usize = 8;

/// The identity of a notification: the instance of the probe, the number of the window, and the
/// number of the action.
pub type NotificationKey = (String, u64, usize);

/// The outcome of an attempt.
pub type DeliveryOutcome = (NotificationKey, Result<(), NotifyFault>);

/// The running attempts, and the times of the next attempts.
#[derive(Debug, Default)]
pub struct Courier {
    running: JoinSet<DeliveryOutcome>,
    /// The outcomes that the rule has not taken yet.
    ended: Vec<DeliveryOutcome>,
    /// The time of the next attempt for each notification; `None` while an attempt runs.
    next: BTreeMap<NotificationKey, Option<Instant>>,
}

impl StoredNotification {
    pub fn key(&self) -> NotificationKey {
        (self.instance.clone(), self.window, self.index)
    }
}

impl Courier {
    /// Begins the attempts that are due.
    pub fn send(&mut self, actions: &RuleActions, outbox: &[StoredNotification]) {
        let now = Instant::now();
        for notification in outbox {
            let key = notification.key();
            let is_due = self
                .next
                .get(&key)
                .is_none_or(|next| next.is_some_and(|next| next <= now));
            if !is_due {
                continue;
            }
            if self.running.len() == AT_ONCE {
                self.next.insert(key, Some(now));
                continue;
            }
            let sent = actions.notify(notification.clone());
            self.next.insert(key.clone(), None);
            self.running.spawn(async move { (key, sent.await) });
        }
    }

    /// Takes the outcome of an attempt that has ended.
    pub fn take(&mut self) -> Option<DeliveryOutcome> {
        let ended = self.ended.pop();
        // An attempt that has panicked has no outcome; the next start of the daemon repeats it.
        ended.or_else(|| self.running.try_join_next()?.ok())
    }

    /// Forgets a notification, or plans its next attempt.
    pub fn plan(&mut self, key: NotificationKey, attempts: Option<u32>) {
        match attempts {
            Some(attempts) => {
                _ = self
                    .next
                    .insert(key, Some(Instant::now() + pause(attempts)));
            }
            None => _ = self.next.remove(&key),
        }
    }

    /// Waits until an attempt has ended, or until an attempt is due.
    pub async fn wait(&mut self) {
        let is_full = self.running.len() == AT_ONCE;
        let due = self
            .next
            .values()
            .flatten()
            .min()
            .copied()
            .filter(|_| !is_full);
        tokio::select! {
            Some(ended) = self.running.join_next() => self.ended.extend(ended),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            else => std::future::pending().await,
        }
    }
}

/// Returns the pause after this number of failed attempts.
fn pause(attempts: u32) -> Duration {
    FIRST
        .saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1)))
        .min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_take_about_an_hour() {
        assert_eq!(
            [pause(1), pause(2), pause(5)].map(|pause| pause.as_millis()),
            [500, 1000, 8000]
        );
        let whole: Duration = (1..ATTEMPTS).map(pause).sum();
        assert!((55..=65).contains(&(whole.as_secs() / 60)), "{whole:?}");
        assert_eq!(pause(u32::MAX), LONGEST);
    }
}
