//! Shares of the kernel that their owners can release.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// An owner that can release its share.
pub trait SpareShare: Debug + Send + Sync {
    /// Releases the share. Returns false if the owner has no share.
    fn give_up(&self) -> bool;
}

/// The owners that can release their shares.
#[derive(Debug, Default)]
pub struct SpareShares(Mutex<Vec<Weak<dyn SpareShare>>>);

impl SpareShares {
    pub fn add(&self, spare: &Arc<dyn SpareShare>) {
        let mut known = self.0.lock();
        known.retain(|of| of.strong_count() > 0 && !of.ptr_eq(&Arc::downgrade(spare)));
        known.push(Arc::downgrade(spare));
    }

    /// Makes all owners release their shares. Returns false if no owner had a share.
    pub fn give_up(&self) -> bool {
        let known = self.0.lock().clone();
        // Each owner is asked.
        known
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|spare| spare.give_up())
            .count()
            > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Debug)]
    struct Owner(AtomicBool);

    impl SpareShare for Owner {
        fn give_up(&self) -> bool {
            self.0.swap(false, Ordering::Relaxed)
        }
    }

    #[test]
    fn all_shares_are_given_up_once() {
        let spares = SpareShares::default();
        let owners: Vec<Arc<Owner>> = (0..3)
            .map(|_| Arc::new(Owner(AtomicBool::new(true))))
            .collect();
        for owner in &owners {
            let owner: Arc<dyn SpareShare> = owner.clone();
            spares.add(&owner);
            spares.add(&owner);
        }
        assert_eq!(spares.0.lock().len(), 3);
        assert!(spares.give_up() && !spares.give_up());
        assert!(owners.iter().all(|owner| !owner.0.load(Ordering::Relaxed)));
        drop(owners);
        assert!(!spares.give_up());
    }
}
