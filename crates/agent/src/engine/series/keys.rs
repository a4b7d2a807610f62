//! The keys of a chart, each with a number. Most keys of a window have the same order as in an
//! earlier window, so that a key is usually compared, and not searched.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The most keys that a chart may meet.
const MOST_KEYS: usize = 1 << 18;
/// The distances from the expected place at which a key is searched in the earlier order. Keys that
/// share a bucket of the kernel's hash table may change places.
const NEAR: [isize; 5] = [0, 1, -1, 2, -2];
/// The most keys that are compared at once.
const LONGEST_RUN: usize = 4_096;
const NOWHERE: u32 = u32::MAX;

/// The error that a chart is not possible because it has too many keys.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyKeys;

/// The keys that the chart has met, all of the same size.
#[derive(Debug, Default)]
pub struct Keys {
    size: usize,
    len: u32,
    bytes: Vec<u8>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The keys of a window in their order.
#[derive(Debug, Default)]
pub struct KeyOrder {
    ids: Vec<u32>,
    /// The bytes of all keys, in the order of the window.
    bytes: Vec<u8>,
    /// The place of each key.
    places: Vec<u32>,
}

/// The keys of rows, one after the other, all of `size` bytes.
#[derive(Clone, Copy, Debug)]
pub struct KeyBytes<'a> {
    pub bytes: &'a [u8],
    pub size: usize,
    pub count: usize,
}

impl Keys {
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    pub fn get(&self, id: u32) -> &[u8] {
        key_at(&self.bytes, self.size, id)
    }

    /// Returns the number of a key; a new number if the chart has not met the key before.
    pub fn id(&mut self, key: &[u8]) -> Result<u32, TooManyKeys> {
        let Self {
            size,
            len,
            bytes,
            ids,
            hasher,
        } = self;
        let hash = hasher.hash_one(key);
        if let Some(id) = ids.find(hash, |&id| key_at(bytes, *size, id) == key) {
            return Ok(*id);
        }
        let id = *len;
        if id as usize >= MOST_KEYS {
            return Err(TooManyKeys);
        }
        *size = key.len();
        bytes.extend_from_slice(key);
        ids.insert_unique(hash, id, |&id| hasher.hash_one(key_at(bytes, *size, id)));
        *len += 1;
        Ok(id)
    }

    /// Replaces the content of `out` by the numbers of keys. Most keys already have this order.
    pub fn ids(
        &mut self,
        keys: KeyBytes<'_>,
        order: &KeyOrder,
        out: &mut Vec<u32>,
    ) -> Result<(), TooManyKeys> {
        let KeyBytes { bytes, size, count } = keys;
        out.clear();
        out.reserve(count);
        let (mut next, mut run) = (0_usize, 1_usize);
        while out.len() < count {
            let row = out.len();
            let wanted = run
                .min(count - row)
                .min(order.ids.len().saturating_sub(next));
            let (own, known) = (
                row * size..(row + wanted) * size,
                next * size..(next + wanted) * size,
            );
            if wanted > 0 && size > 0 && bytes[own] == order.bytes[known] {
                out.extend_from_slice(&order.ids[next..next + wanted]);
                next += wanted;
                run = (2 * run).min(LONGEST_RUN);
                continue;
            }
            if run > 1 {
                run = 1;
                continue;
            }
            let key = &bytes[row * size..(row + 1) * size];
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

fn key_at(bytes: &[u8], size: usize, id: u32) -> &[u8] {
    bytes
        .get(size * id as usize..)
        .and_then(|rest| rest.get(..size))
        .unwrap_or_default()
}

impl KeyOrder {
    /// Takes over the order of another window.
    pub fn set(&mut self, ids: &[u32], own: KeyBytes<'_>, keys: &Keys) {
        if self.ids == ids {
            return;
        }
        self.places.resize(keys.len(), NOWHERE);
        for &id in &self.ids {
            self.places[id as usize] = NOWHERE;
        }
        ids.clone_into(&mut self.ids);
        self.bytes.clear();
        self.bytes
            .extend_from_slice(&own.bytes[..own.count * own.size]);
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
                let own = KeyBytes { bytes: &window, size: 1, count: window.len() };
                keys.ids(own, &order, &mut ids).unwrap();
                let number = |key: &u8| known.iter().position(|one| one == key).unwrap() as u32;
                let expected: Vec<u32> = window.iter().map(number).collect();
                prop_assert_eq!(&ids, &expected);
                prop_assert!((0..known.len()).all(|id| keys.get(id as u32) == &known[id..=id]));
                order.set(&ids, own, &keys);
            }
        }
    }

    #[test]
    fn more_keys_than_possible_are_refused() {
        let mut keys = Keys::default();
        let all = (0..=MOST_KEYS as u32).map(u32::to_le_bytes);
        let ids: Vec<_> = all.map(|key| keys.id(&key)).collect();
        assert_eq!(
            (&ids[MOST_KEYS - 1], &ids[MOST_KEYS]),
            (&Ok(MOST_KEYS as u32 - 1), &Err(TooManyKeys))
        );
        assert_eq!(
            keys.id(&7_u32.to_le_bytes()),
            Ok(7),
            "those that are known stay"
        );
    }

    #[test]
    fn queues_have_one_key_that_is_empty() {
        let (mut keys, mut ids) = (Keys::default(), Vec::new());
        let own = KeyBytes {
            bytes: &[],
            size: 0,
            count: 2,
        };
        let mut order = KeyOrder::default();
        keys.ids(own, &order, &mut ids).unwrap();
        order.set(&ids, own, &keys);
        keys.ids(own, &order, &mut ids).unwrap();
        assert_eq!((ids, keys.len(), keys.get(0)), (vec![0, 0], 1, &[][..]));
    }
}
