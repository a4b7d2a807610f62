//! Turns: changes of the same probe wait for each other, while changes of different probes do not.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::time::timeout;

/// The turns that tasks hold or wait for, by the name of the probe.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, Weak<Turn<()>>>>);

/// The number of requests that may wait for the turn of one probe.
const WAITING: usize = 16;
/// The longest time for which a request waits. Most changes take less time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The error for a request that got no turn in time. Another attempt may succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many changes of probe {0} are waiting; try again later")]
pub struct Crowded(String);

impl Turns {
    /// Waits for the turn like [`Self::take`], but only for a limited time, and not if too many
    /// requests already wait.
    pub async fn request(&self, name: &str) -> Result<OwnedMutexGuard<()>, Crowded> {
        let turn = self.turn(name);
        // Two references do not belong to waiting requests: the reference of the request that has
        // the turn, and the reference of this request.
        let others = Arc::strong_count(&turn).saturating_sub(2);
        let taken = timeout(PATIENCE, turn.lock_owned());
        let taken = if others < WAITING {
            taken.await.ok()
        } else {
            None
        };
        taken.ok_or_else(|| Crowded(name.to_owned()))
    }

    /// Waits for the turn to change the probe called `name`. The turn lasts until the guard is
    /// dropped.
    pub async fn take(&self, name: &str) -> OwnedMutexGuard<()> {
        self.turn(name).lock_owned().await
    }

    fn turn(&self, name: &str) -> Arc<Turn<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        let known = turns.get(name).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::new(Turn::new(()));
            turns.insert(name.to_owned(), Arc::downgrade(&turn));
            turn
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_of_one_probe_wait_and_others_do_not() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let _other = turns.take("b").await;
        let waits = timeout(Duration::from_millis(20), turns.take("a"));
        assert!(waits.await.is_err());
        drop(first);
        turns.take("a").await;
    }

    #[tokio::test(start_paused = true)]
    async fn some_wait_for_a_while_and_others_are_sent_away() {
        let turns = Arc::new(Turns::default());
        let first = turns.request("a").await.unwrap();
        let ask = || {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.request("a").await.map(drop) })
        };
        let waiting: Vec<_> = (0..WAITING).map(|_| ask()).collect();
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        assert_eq!(
            turns.request("a").await.unwrap_err(),
            Crowded("a".to_owned())
        );
        assert!(
            begun.elapsed().is_zero(),
            "it has waited before it was sent away"
        );
        turns.request("b").await.unwrap();
        drop(first);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        let _first = turns.request("a").await.unwrap();
        let begun = tokio::time::Instant::now();
        turns.request("a").await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
