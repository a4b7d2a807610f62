//! The keys of a chart: each has a number. Windows have most of their keys in the order of an earlier one, so that a key is
//! compared rather than searched for.

use std::collections::HashMap;

/// The most keys that a chart may meet.
const MOST_KEYS: usize = 1 << 18;
/// The places in the earlier order, from the expected one on, at which a key is looked for. Keys that share a bucket of the
/// kernel's hash table change places.
const NEAR: [isize; 5] = [0, 1, -1, 2, -2];
const NOWHERE: u32 = u32::MAX;

/// The reason why a chart is not possible.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyKeys;

/// The keys that were met, all of one size.
#[derive(Debug, Default)]
pub struct Keys {
    size: usize,
    bytes: Vec<u8>,
    ids: HashMap<Box<[u8]>, u32>,
}

/// The keys of a window in their order.
#[derive(Debug, Default)]
pub struct KeyOrder {
    ids: Vec<u32>,
    /// The place of each key.
    places: Vec<u32>,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn get(&self, id: u32) -> &[u8] {
        self.bytes.get(self.size * id as usize..).and_then(|rest| rest.get(..self.size)).unwrap_or_default()
    }

    /// Returns the number of a key, a new one if it was not met before.
    pub fn id(&mut self, key: &[u8]) -> Result<u32, TooManyKeys> {
        if let Some(id) = self.ids.get(key) {
            return Ok(*id);
        }
        let id = u32::try_from(self.len()).ok().filter(|_| self.len() < MOST_KEYS).ok_or(TooManyKeys)?;
        self.size = key.len();
        self.bytes.extend_from_slice(key);
        self.ids.insert(key.into(), id);
        Ok(id)
    }

    /// Replaces `out` by the numbers of keys, of which most are in this order.
    pub fn ids<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        order: &KeyOrder,
        out: &mut Vec<u32>,
    ) -> Result<(), TooManyKeys> {
        out.clear();
        let mut next = 0_usize;
        for key in keys {
            let at = |offset: &isize| order.ids.get(next.checked_add_signed(*offset)?).copied();
            let near = NEAR.iter().filter_map(at).find(|&id| self.get(id) == key);
            let id = match near {
                Some(id) => id,
                None => {
                    let id = self.id(key)?;
                    next = order
                        .places
                        .get(id as usize)
                        .filter(|place| **place != NOWHERE)
                        .map_or(next, |place| *place as usize);
                    id
                }
            };
            next += 1;
            out.push(id);
        }
        Ok(())
    }
}

impl KeyOrder {
    /// Takes the order of another window.
    pub fn set(&mut self, ids: &[u32], keys: &Keys) {
        if self.ids == ids {
            return;
        }
        self.places.resize(keys.len(), NOWHERE);
        for &id in &self.ids {
            self.places[id as usize] = NOWHERE;
        }
        ids.clone_into(&mut self.ids);
        for (place, &id) in (0..).zip(ids) {
            self.places[id as usize] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_keeps_its_number_whatever_the_order(windows in vec(vec(0_u8..40, 0..60), 1..8)) {
            let (mut keys, mut order, mut ids) = (Keys::default(), KeyOrder::default(), Vec::new());
            let mut known: Vec<u8> = Vec::new();
            for window in windows {
                for key in &window {
                    if !known.contains(key) {
                        known.push(*key);
                    }
                }
                keys.ids(window.chunks(1), &order, &mut ids).unwrap();
                let number = |key: &u8| known.iter().position(|one| one == key).unwrap() as u32;
                let expected: Vec<u32> = window.iter().map(number).collect();
                prop_assert_eq!(&ids, &expected);
                prop_assert!((0..known.len()).all(|id| keys.get(id as u32) == &known[id..=id]));
                order.set(&ids, &keys);
            }
        }
    }

    #[test]
    fn more_keys_than_possible_are_refused() {
        let mut keys = Keys::default();
        let all = (0..=MOST_KEYS as u32).map(u32::to_le_bytes);
        let ids: Vec<_> = all.map(|key| keys.id(&key)).collect();
        assert_eq!((&ids[MOST_KEYS - 1], &ids[MOST_KEYS]), (&Ok(MOST_KEYS as u32 - 1), &Err(TooManyKeys)));
        assert_eq!(keys.id(&7_u32.to_le_bytes()), Ok(7), "those that are known stay");
    }

    #[test]
    fn queues_have_one_key_that_is_empty() {
        let (mut keys, mut ids) = (Keys::default(), Vec::new());
        keys.ids([&[][..], &[]].into_iter(), &KeyOrder::default(), &mut ids).unwrap();
        assert_eq!((ids, keys.len(), keys.get(0)), (vec![0, 0], 1, &[][..]));
    }
}
