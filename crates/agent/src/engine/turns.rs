//! Turns: changes of one probe wait for each other, changes of different probes do not.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// The turns that are taken or waited for, by the name of the probe.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, Weak<Turn<()>>>>);

impl Turns {
    /// Waits for the turn to change the probe called `name`. The turn lasts until the guard is dropped.
    pub async fn take(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::new(Turn::new(()));
                turns.insert(name.to_owned(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
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
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), turns.take("a"));
        assert!(waits.await.is_err());
        drop(first);
        turns.take("a").await;
    }
}
