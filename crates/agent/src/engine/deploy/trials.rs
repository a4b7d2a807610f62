//! The results of earlier trials. A result depends only on the object, the function in it, its hook
//! and its verdict, so that the daemon does not try a known source again.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use twinprobe_ebpf_common::DirectionCost;
use twinprobe_kernel::DirectionPlan;

/// The number of trials that are remembered, of some hundred bytes each.
const TRIALS: usize = 64;

/// A digest of everything on which the result of a trial depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialKey([u8; 32]);

/// The costs that trials have found, the latest one last. They do not include refusals.
#[derive(Debug, Default)]
pub struct Trials(Mutex<VecDeque<(TrialKey, DirectionCost)>>);

impl TrialKey {
    /// Makes the key. The plan determines which function of the object `elf` runs, where it runs,
    /// and the sizes and first entries of maps. The object defines the maps, and the verifier knows
    /// the values of constants.
    pub fn new(plan: &DirectionPlan, variables: &BTreeMap<String, Value>, elf: &[u8]) -> Self {
        let sizes: Vec<u32> = plan.maps.iter().map(|map| map.spec.max_entries).collect();
        let planned = format!("{:?}", (&plan.attach, &plan.entry, variables, sizes));
        let mut digest = Sha256::new();
        let filled = plan
            .maps
            .iter()
            .flat_map(|map| map.fill.iter().map(move |entry| (map, entry)));
        let filled =
            filled.flat_map(|(map, entry)| [map.name.as_bytes(), &entry.key, &entry.value]);
        for part in [planned.as_bytes(), elf].into_iter().chain(filled) {
            digest.update(part.len().to_ne_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

impl Trials {
    pub fn get(&self, key: TrialKey) -> Option<DirectionCost> {
        self.0
            .lock()
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, cost)| cost.clone())
    }

    pub fn keep(&self, key: TrialKey, cost: DirectionCost) {
        let mut known = self.0.lock();
        known.retain(|(other, _)| *other != key);
        known.push_back((key, cost));
        if known.len() > TRIALS {
            known.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_trials_are_remembered() {
        let trials = Trials::default();
        let key = |number: usize| TrialKey([number as u8; 32]);
        let cost = |instructions| DirectionCost {
            instructions,
            ..DirectionCost::default()
        };
        for number in 0..=TRIALS {
            trials.keep(key(number), cost(number as u64));
        }
        trials.keep(key(1), cost(1000));
        assert_eq!(trials.get(key(0)), None);
        assert_eq!(trials.get(key(1)), Some(cost(1000)));
        assert_eq!(trials.get(key(TRIALS)), Some(cost(TRIALS as u64)));
        assert_eq!(trials.0.lock().len(), TRIALS);
    }
}
