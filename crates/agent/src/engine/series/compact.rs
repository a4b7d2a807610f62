//! A number for each key of a chart, stored in eight bytes: most numbers are unsigned integers of
//! less than 64 bits.

use std::collections::HashMap;

use twinprobe_exporter::Number;

/// The mark of a key that has no number.
const NEVER: u64 = u64::MAX;
/// The mark of a key that was removed.
const GONE: u64 = u64::MAX - 1;
/// The mark of a number that is stored elsewhere, because it does not fit.
const WIDE: u64 = u64::MAX - 2;

/// The numbers of keys, by the index of each key.
#[derive(Clone, Debug, Default)]
pub struct CompactNumbers {
    words: Vec<u64>,
    wide: HashMap<u32, Number>,
}

impl CompactNumbers {
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Removes all numbers, and makes room for `len` keys.
    pub fn begin_anew(&mut self, len: usize) {
        self.wide.clear();
        self.words.clear();
        self.words.resize(len, NEVER);
    }

    /// Makes room for at least `len` keys.
    pub fn grow(&mut self, len: usize) {
        if self.words.len() < len {
            self.words.resize(len, NEVER);
        }
    }

    /// Tells whether a number or a removal was stored for the key.
    pub fn has_met(&self, id: u32) -> bool {
        self.words
            .get(id as usize)
            .is_some_and(|word| *word != NEVER)
    }

    pub fn get(&self, id: u32) -> Option<Number> {
        match self.words.get(id as usize) {
            None | Some(&(NEVER | GONE)) => None,
            Some(&WIDE) => self.wide.get(&id).copied(),
            Some(&word) => Some(Number::Integer(word.into())),
        }
    }

    /// Returns the number of the key, if it is a small number.
    pub fn word(&self, id: u32) -> Option<u64> {
        self.words
            .get(id as usize)
            .copied()
            .filter(|word| *word < WIDE)
    }

    /// Sets the number of a key, and returns the previous number. `None` marks a removed key.
    pub fn set(&mut self, id: u32, number: Option<Number>) -> Option<Number> {
        let before = self.get(id);
        self.grow(id as usize + 1);
        let word = match number {
            None => GONE,
            Some(Number::Integer(number)) => u64::try_from(number).unwrap_or(WIDE).min(WIDE),
            Some(Number::Float(_)) => WIDE,
        };
        if self.words[id as usize] == WIDE && word != WIDE {
            self.wide.remove(&id);
        }
        if let (WIDE, Some(number)) = (word, number) {
            self.wide.insert(id, number);
        }
        self.words[id as usize] = word;
        before
    }

    /// Sets a small number for a key that already has a place. Returns false if the caller must use
    /// [`Self::set`].
    pub fn set_word(&mut self, id: u32, word: u64) -> bool {
        match self.words.get_mut(id as usize) {
            Some(place) if *place != WIDE && word < WIDE => {
                *place = word;
                true
            }
            _ => false,
        }
    }

    /// Adds to the number of a key that already has a place. Returns false if the result is not a
    /// small number.
    pub fn add_word(&mut self, id: u32, word: u64) -> bool {
        let Some(place) = self.words.get_mut(id as usize) else {
            return false;
        };
        let sum = if *place < WIDE {
            place.checked_add(word)
        } else {
            (*place != WIDE).then_some(word)
        };
        match sum {
            Some(sum) if sum < WIDE => {
                *place = sum;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were() {
        let mut numbers = CompactNumbers::default();
        let all = [
            Some(Number::ZERO),
            Some(Number::Integer(-1)),
            Some(Number::Integer((WIDE - 1).into())),
            Some(Number::Integer(WIDE.into())),
            Some(Number::Integer(NEVER.into())),
            Some(Number::Integer(1 << 100)),
            Some(Number::Float(0.5)),
            None,
        ];
        for from in 0..all.len() {
            for (id, number) in (0..).zip(all.iter().cycle().skip(from).take(all.len())) {
                let before = numbers.get(id);
                assert_eq!(numbers.set(id, *number), before);
                assert_eq!((numbers.get(id), numbers.has_met(id)), (*number, true));
            }
        }
        assert!(!numbers.has_met(8) && numbers.get(8).is_none());
        numbers.begin_anew(3);
        assert!(!numbers.has_met(2) && numbers.len() == 3);
    }

    #[test]
    fn small_sums_stay_small_and_large_ones_are_told() {
        let mut numbers = CompactNumbers::default();
        numbers.begin_anew(2);
        assert!(numbers.add_word(0, 7) && numbers.add_word(0, 8));
        assert_eq!((numbers.word(0), numbers.word(1)), (Some(15), None));
        assert!(
            !numbers.add_word(0, WIDE - 15)
                && !numbers.add_word(0, NEVER)
                && !numbers.add_word(2, 1)
        );
        assert_eq!(numbers.word(0), Some(15), "nothing was added");
        numbers.set(1, Some(Number::Integer(-1)));
        assert!(!numbers.add_word(1, 1) && !numbers.set_word(1, 1));
        numbers.set(1, None);
        assert!(numbers.add_word(1, 1) && numbers.set_word(1, 5));
        assert_eq!(numbers.get(1), Some(Number::Integer(5)));
    }
}
