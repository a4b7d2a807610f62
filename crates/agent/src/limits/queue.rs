//! A queue for work of which only a few tasks may run at once. All other tasks wait for a limited
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of tasks that may wait for each running task.
const WAITING: usize = 16;
/// The longest time to wait for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// The places for tasks of one kind.
#[derive(Debug)]
pub struct Queue {
    /// The kind of work, as a plural noun.
    work: &'static str,
    /// The option that sets the number of places.
    option: &'static str,
    places: Arc<Semaphore>,
    limit: usize,
    waiting: AtomicUsize,
}

/// The error for a task that got no place in time. Another attempt may succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many {work} are waiting: {limit} run at once, as {option} allows, and {waiting} wait; try again later"
)]
pub struct Busy {
    work: &'static str,
    option: &'static str,
    limit: usize,
    waiting: usize,
}

/// A guard that leaves the queue on drop, also if the client hangs up.
struct QueueGuard<'a>(&'a AtomicUsize);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    pub fn new(work: &'static str, option: &'static str, limit: usize) -> Self {
        // A semaphore has a largest number of places.
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            work,
            option,
            places: Arc::new(Semaphore::new(limit)),
            limit,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a place, and returns it; a drop releases the place. Fails at once if too many
    /// requests already wait.
    pub async fn take(&self) -> Result<OwnedSemaphorePermit, Busy> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = QueueGuard(&self.waiting);
        let busy = Busy {
            work: self.work,
            option: self.option,
            limit: self.limit,
            waiting: before,
        };
        if before >= self.limit.saturating_mul(WAITING) {
            return Err(busy);
        }
        // The semaphore is never closed.
        let place = tokio::time::timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn some_wait_and_others_are_sent_away() {
        let queue = Arc::new(Queue::new("tests", "--max-tests", 2));
        let places = [queue.take().await.unwrap(), queue.take().await.unwrap()];
        let waiting: Vec<_> = (0..2 * WAITING)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.take().await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        let busy = queue.take().await.unwrap_err().to_string();
        assert!(
            begun.elapsed().is_zero(),
            "it has waited before it was sent away"
        );
        assert!(
            busy.contains("--max-tests") && busy.contains("2 run") && busy.contains("32 wait"),
            "{busy}"
        );
        drop(places);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        let _places = [queue.take().await.unwrap(), queue.take().await.unwrap()];
        // Clients that have hung up stop waiting, and no client waits forever.
        for _ in 0..3 * WAITING {
            let gone = tokio::time::timeout(Duration::from_millis(1), queue.take());
            gone.await.unwrap_err();
        }
        let begun = tokio::time::Instant::now();
        queue.take().await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
