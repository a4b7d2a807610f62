//! The bytes in memory for one receiver, within a limit.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The limit, and the number of bytes that are in use.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    used: Mutex<usize>,
    freed: Notify,
}

/// A part of a budget, which is free again once this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: Mutex::new(0),
            freed: Notify::new(),
        })
    }

    /// The bytes that are taken.
    pub fn used(&self) -> usize {
        *self.used.lock()
    }

    /// Waits until this many bytes are free. A request for more than the whole budget gets the
    /// whole budget.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Charge {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // From here on no release of memory is missed.
            freed.as_mut().enable();
            {
                let mut used = self.used.lock();
                if *used == 0 || *used + bytes <= self.limit {
                    *used += bytes;
                    return Charge {
                        budget: Arc::clone(self),
                        bytes,
                    };
                }
            }
            freed.await;
        }
    }
}

impl Charge {
    /// Corrects the size once the exact size is known.
    pub fn resize(&mut self, bytes: usize) {
        let mut used = self.budget.used.lock();
        *used = *used - self.bytes + bytes;
        let is_less = bytes < self.bytes;
        self.bytes = bytes;
        drop(used);
        if is_less {
            self.budget.freed.notify_waiters();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        *self.budget.used.lock() -= self.bytes;
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn no_more_is_taken_than_there_is() {
        let budget = MemoryBudget::new(100);
        let first = budget.take(60).await;
        let mut second = budget.take(40).await;
        assert!(budget.take(1).now_or_never().is_none());
        second.resize(30);
        let third = budget.take(10).now_or_never().expect("there is room");
        assert_eq!(budget.used(), 100);
        drop((first, second, third));
        assert_eq!(budget.used(), 0);
        let large = budget
            .take(1_000)
            .now_or_never()
            .expect("alone it may be larger");
        assert!(budget.take(1).now_or_never().is_none());
        drop(large);
        assert!(budget.take(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn all_who_wait_get_their_turn() {
        let budget = MemoryBudget::new(10);
        let all = budget.take(10).await;
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let budget = Arc::clone(&budget);
                tokio::spawn(async move { drop(budget.take(2).await) })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(all);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(budget.used(), 0);
    }
}
