//! The distribution in a histogram: an array whose slot `i` counts the values from 2^i to
//! 2^(i+1)-1.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

/// The number of slots that have a range of their own: the highest bit of a value has 64 possible
/// positions.
const SLOTS: usize = 64;

/// The percentiles that documents show.
pub const PERCENTILES: [(&str, u128); 3] = [("p50", 50), ("p95", 95), ("p99", 99)];

/// The counts in the slots of a metric's entries.
#[derive(Clone, Debug)]
pub struct Distribution([u128; SLOTS]);

impl Default for Distribution {
    fn default() -> Self {
        Self([0; SLOTS])
    }
}

/// The distributions of a metric's entries: of all entries, and of each interface if keys name
/// interfaces.
#[derive(Clone, Debug, Default)]
pub struct Distributions {
    /// The number of bytes that name the interface, at the start of each key.
    name_bytes: usize,
    all: Distribution,
    of_interfaces: BTreeMap<Vec<u8>, Distribution>,
}

/// A range that has counted at least one value, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRange {
    pub from: u64,
    pub to: u64,
    pub count: u128,
}

impl Distribution {
    /// Adds the count of a slot. The counts of slots beyond the last one are added to the last one.
    fn add(&mut self, index: u128, count: u128) {
        let slot = &mut self.0[index.min(SLOTS as u128 - 1) as usize];
        *slot = slot.saturating_add(count);
    }

    /// Adds an entry: the index of its slot, and its count, both in the order of the machine.
    fn add_entry(&mut self, key: &[u8], count: &[u8]) {
        self.add(number(key), number(count));
    }

    /// Returns the number of counted values.
    pub fn count(&self) -> u128 {
        self.0
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns an upper bound for this percentage of values: the end of the range that contains the
    /// percentile. `None` if no value was counted.
    pub fn percentile(&self, percent: u128) -> Option<u64> {
        let count = self.count();
        // The rank of the value, counted from 1, in ascending order of the values.
        let rank = (count / 100 * percent + (count % 100 * percent).div_ceil(100)).max(1);
        let mut seen = 0_u128;
        let at = self.0.iter().position(|slot| {
            seen = seen.saturating_add(*slot);
            seen >= rank
        });
        at.filter(|_| count > 0).map(end)
    }

    /// Returns the ranges that have counted at least one value.
    pub fn ranges(&self) -> impl Iterator<Item = CountedRange> {
        let counted = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(slot, &count)| CountedRange {
            from: if slot == 0 { 0 } else { 1 << slot },
            to: end(slot),
            count,
        })
    }
}

impl Distributions {
    /// Makes empty distributions for entries whose keys begin with an interface name of this many
    /// bytes; 0 if keys name no interfaces.
    pub fn new(name_bytes: usize) -> Self {
        Self {
            name_bytes,
            ..Self::default()
        }
    }

    /// Reads the counts in the entries of a document's metric; `None` if they are not the slots of
    /// a histogram. `number` reads a count.
    pub fn of_metric(metric: &Value, number: impl Fn(&Value) -> u128) -> Option<Self> {
        if metric["histogram"] != true {
            return None;
        }
        let mut read = Self::default();
        for entry in metric["entries"].as_array().into_iter().flatten() {
            let (interface, index) = slot(&entry["key"])?;
            let count = match &entry["value"] {
                Value::Array(cpus) => cpus.iter().map(&number).fold(0, u128::saturating_add),
                count => number(count),
            };
            read.all.add(index, count);
            if let Some(interface) = interface {
                read.of_interfaces
                    .entry(interface.into())
                    .or_default()
                    .add(index, count);
            }
        }
        Some(read)
    }

    /// Adds an entry: the name of its interface, if keys have one, with the index of its slot, and
    /// its count.
    pub fn add_entry(&mut self, key: &[u8], count: &[u8]) {
        let (interface, index) = key.split_at(self.name_bytes.min(key.len()));
        self.all.add_entry(index, count);
        if self.name_bytes == 0 {
            return;
        }
        if !self.of_interfaces.contains_key(interface) {
            self.of_interfaces
                .insert(interface.into(), Distribution::default());
        }
        if let Some(counts) = self.of_interfaces.get_mut(interface) {
            counts.add_entry(index, count);
        }
    }

    /// Returns the distribution of all entries.
    pub const fn all(&self) -> &Distribution {
        &self.all
    }

    /// Returns the interfaces that keys name, with the distributions of their entries.
    pub fn of_interfaces(&self) -> impl Iterator<Item = (Cow<'_, str>, &Distribution)> {
        self.of_interfaces.iter().map(|(name, counts)| {
            let end = name
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(name.len());
            (String::from_utf8_lossy(&name[..end]), counts)
        })
    }
}

/// Returns the interface that the key of a document's entry names, and the index of its slot.
fn slot(key: &Value) -> Option<(Option<&str>, u128)> {
    let Value::Object(parts) = key else {
        return Some((None, key.as_u64()?.into()));
    };
    let interface = parts.values().find_map(Value::as_str)?;
    Some((
        Some(interface),
        parts.values().find_map(Value::as_u64)?.into(),
    ))
}

/// Returns the largest value that a slot counts.
const fn end(slot: usize) -> u64 {
    u64::MAX >> (SLOTS - 1 - slot)
}

/// Returns the number in up to sixteen bytes.
fn number(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .take(16)
        .rev()
        .fold(0, |number, &byte| number << 8 | u128::from(byte))
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
        assert_eq!(
            PERCENTILES.map(|(_, percent)| one.percentile(percent)),
            [Some(u64::MAX); 3]
        );
        assert_eq!(of(&[(3, 0)]).percentile(50), None);
    }

    #[test]
    fn interfaces_have_counts_of_their_own() {
        let mut counts = Distributions::new(4);
        let entries: [(&[u8; 4], u32, u64); 3] =
            [(b"lan\0", 0, 5), (b"wan\0", 4, 2), (b"lan\0", 4, 1)];
        for (interface, slot, count) in entries {
            counts.add_entry(
                &[&interface[..], &slot.to_ne_bytes()].concat(),
                &count.to_ne_bytes(),
            );
        }
        let found = |counts: &Distributions| -> Vec<(String, u128, Option<u64>)> {
            let each = counts.of_interfaces();
            each.map(|(name, counts)| (name.into_owned(), counts.count(), counts.percentile(95)))
                .collect()
        };
        let expected = [
            ("lan".to_owned(), 6, Some(31)),
            ("wan".to_owned(), 2, Some(31)),
        ];
        assert_eq!(
            (counts.all().count(), found(&counts)),
            (8, expected.to_vec())
        );
        let entry = |interface: &str, slot: u32, count: u64| serde_json::json!({ "key": { "interface": interface, "key": slot }, "value": count });
        let entries = [entry("wan", 4, 2), entry("lan", 0, 5), entry("lan", 4, 1)];
        let metric = serde_json::json!({ "histogram": true, "entries": entries });
        let read =
            Distributions::of_metric(&metric, |count| count.as_u64().unwrap().into()).unwrap();
        assert_eq!((read.all().count(), found(&read)), (8, expected.to_vec()));
    }

    #[test]
    fn ranges_without_values_are_left_out() {
        let ranges: Vec<CountedRange> = of(&[(0, 1), (1, 0), (5, 2), (70, 3)]).ranges().collect();
        let expected = [(0, 1, 1), (32, 63, 2), (1 << 63, u64::MAX, 3)];
        assert_eq!(
            ranges,
            expected.map(|(from, to, count)| CountedRange { from, to, count })
        );
    }
}
