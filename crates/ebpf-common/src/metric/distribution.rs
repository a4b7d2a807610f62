//! The ranges of a histogram: an array whose slot `i` counts the values from 2^i to 2^(i+1)-1.

/// The number of slots that have a range of their own: the highest bit of a value has 64 possible positions.
const SLOTS: usize = 64;

/// The percentiles that documents have.
pub const PERCENTILES: [(&str, u128); 3] = [("p50", 50), ("p95", 95), ("p99", 99)];

/// The counts of one metric's entries.
#[derive(Clone, Debug)]
pub struct Distribution([u128; SLOTS]);

impl Default for Distribution {
    fn default() -> Self {
        Self([0; SLOTS])
    }
}

/// A range that has counted something, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRange {
    pub from: u64,
    pub to: u64,
    pub count: u128,
}

impl Distribution {
    /// Adds the count of a slot. Slots beyond the last one count with it.
    pub fn add(&mut self, index: u128, count: u128) {
        let slot = &mut self.0[index.min(SLOTS as u128 - 1) as usize];
        *slot = slot.saturating_add(count);
    }

    /// Adds an entry: the index of its slot, and its count, both in the order of the machine.
    pub fn add_entry(&mut self, key: &[u8], count: &[u8]) {
        self.add(number(key), number(count));
    }

    /// The number of values.
    pub fn count(&self) -> u128 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns a bound that this percentage of values does not exceed: the end of the range in which the percentile lies. `None`
    /// without values.
    pub fn percentile(&self, percent: u128) -> Option<u64> {
        let count = self.count();
        // The number of the value, counted from 1; the order is that of the values.
        let rank = (count / 100 * percent + (count % 100 * percent).div_ceil(100)).max(1);
        let mut seen = 0_u128;
        let at = self.0.iter().position(|slot| {
            seen = seen.saturating_add(*slot);
            seen >= rank
        });
        at.filter(|_| count > 0).map(end)
    }

    /// The ranges that have counted something.
    pub fn ranges(&self) -> impl Iterator<Item = CountedRange> {
        let counted = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(slot, &count)| CountedRange {
            from: if slot == 0 { 0 } else { 1 << slot },
            to: end(slot),
            count,
        })
    }
}

/// The largest value of a slot.
const fn end(slot: usize) -> u64 {
    u64::MAX >> (SLOTS - 1 - slot)
}

/// A number of up to sixteen bytes.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().take(16).rev().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(slots: &[(u32, u64)]) -> Distribution {
        let mut distribution = Distribution::default();
        for (slot, count) in slots {
            distribution.add_entry(&slot.to_ne_bytes(), &count.to_ne_bytes());
        }
        distribution
    }

    #[test]
    fn percentiles_are_bounds_that_values_do_not_exceed() {
        let hundred = of(&[(0, 50), (4, 45), (10, 4), (20, 1)]);
        let percentiles = PERCENTILES.map(|(_, percent)| hundred.percentile(percent).unwrap());
        assert_eq!((hundred.count(), percentiles), (100, [1, 31, 2047]));
        assert_eq!(hundred.percentile(100), Some((1 << 21) - 1));
        let one = of(&[(63, 1)]);
        assert_eq!(PERCENTILES.map(|(_, percent)| one.percentile(percent)), [Some(u64::MAX); 3]);
        assert_eq!(of(&[(3, 0)]).percentile(50), None);
    }

    #[test]
    fn ranges_without_values_are_left_out() {
        let ranges: Vec<CountedRange> = of(&[(0, 1), (1, 0), (5, 2), (70, 3)]).ranges().collect();
        let expected = [(0, 1, 1), (32, 63, 2), (1 << 63, u64::MAX, 3)];
        assert_eq!(ranges, expected.map(|(from, to, count)| CountedRange { from, to, count }));
    }
}
