//! Pauses between attempts: each twice as long as the one before, with a random part so that many
//! streams do not try at the same time.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use tokio::time::sleep;

use super::stopping::Stopping;

/// The number of failures in a row after which a stream with `--once` ends.
pub const TRIES: u32 = 6;
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// The longest pause that a receiver gets if it asks for one.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// The pauses after failures in a row.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// Begins again with the shortest pause, after a success.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Returns the next pause: a random time between half of the full pause and the full pause.
    pub fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = (2 * full).min(LONGEST);
        // A fresh `RandomState` is as random as jitter must be.
        let share = RandomState::new().build_hasher().finish() % 1024;
        full / 2 + full.mul_f64(share as f64 / 2048.0)
    }

    /// Waits for the next pause. Returns false if the stream must stop.
    pub async fn wait(&mut self, stopping: &Stopping) -> bool {
        self.wait_between(Duration::ZERO, LONGEST, stopping).await
    }

    /// Waits for the next pause, within these bounds. `least` has a bound as well, because
    /// receivers choose it.
    pub async fn wait_between(
        &mut self,
        least: Duration,
        most: Duration,
        stopping: &Stopping,
    ) -> bool {
        let pause = self.pause().min(most).max(least.min(LONGEST_ASKED));
        tokio::select! {
            () = sleep(pause) => true,
            () = stopping.stopped() => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_differ() {
        let mut backoff = Backoff::default();
        let mut full = FIRST;
        for _ in 0..20 {
            let pause = backoff.pause();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
            full = (2 * full).min(LONGEST);
        }
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
        let pauses: std::collections::BTreeSet<_> =
            (0..20).map(|_| Backoff::default().pause()).collect();
        assert!(pauses.len() > 1, "{pauses:?}");
    }
}
