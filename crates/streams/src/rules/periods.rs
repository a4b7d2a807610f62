//! The windows that wait for those of other nodes, by the periods that they end in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use twinprobe_rules::end_of;

/// The windows that wait, and the nodes that they wait for.
#[derive(Debug)]
pub struct Periods<T> {
    waiting: BTreeMap<u64, Vec<(String, T)>>,
    /// For each node, the last period in which it has a window.
    last: BTreeMap<String, u64>,
    /// The nodes that did not come in time the last time.
    silent: BTreeSet<String>,
    length: Duration,
}

impl<T> Periods<T> {
    pub fn new(length: Duration) -> Self {
        Self { waiting: BTreeMap::new(), last: BTreeMap::new(), silent: BTreeSet::new(), length }
    }

    pub fn add(&mut self, node: &str, period: u64, item: T) {
        self.silent.remove(node);
        let last = self.last.entry(node.to_owned()).or_default();
        *last = period.max(*last);
        self.waiting.entry(period).or_default().push((node.to_owned(), item));
    }

    /// The time at which the oldest period is judged even if windows are missing, nanoseconds since the Unix epoch.
    /// Windows of a period end up to half a period after its end, and have another period to arrive.
    pub fn deadline(&self) -> Option<i64> {
        let (period, _) = self.waiting.first_key_value()?;
        let late = i64::try_from((self.length + self.length / 2).as_nanos()).unwrap_or(i64::MAX);
        Some(end_of(*period, self.length).saturating_add(late))
    }

    /// Takes the oldest period if windows of all `nodes` are there, or no node is waited for any more.
    pub fn take<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a String>,
        now: i64,
    ) -> Option<(u64, Vec<(String, T)>)> {
        let deadline = self.deadline()?;
        let (period, _) = self.waiting.first_key_value()?;
        let is_missing = |node: &&String| {
            !self.silent.contains(*node) && self.last.get(*node).is_none_or(|last| last < period)
        };
        let missing: Vec<String> = nodes.filter(is_missing).cloned().collect();
        if !missing.is_empty() && now < deadline {
            return None;
        }
        self.silent.extend(missing);
        self.waiting.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_waits_for_all_nodes_until_its_deadline() {
        let second = 1_000_000_000;
        let mut periods = Periods::new(Duration::from_secs(10));
        let nodes = ["a".to_owned(), "b".to_owned()];
        let take = |periods: &mut Periods<u32>, now: i64| {
            periods.take(nodes.iter(), now * second).map(|(period, items)| (period, items.len()))
        };
        assert_eq!(take(&mut periods, 1000), None);
        periods.add("a", 2, 1);
        periods.add("a", 3, 2);
        assert_eq!(periods.deadline(), Some(35 * second));
        assert_eq!(take(&mut periods, 34), None);
        periods.add("b", 2, 3);
        assert_eq!(take(&mut periods, 34), Some((2, 2)));
        assert_eq!(take(&mut periods, 44), None);
        assert_eq!(take(&mut periods, 45), Some((3, 1)), "b is late");
        periods.add("a", 4, 4);
        assert_eq!(take(&mut periods, 46), Some((4, 1)), "b is silent");
        periods.add("b", 4, 5);
        periods.add("a", 5, 6);
        assert_eq!(take(&mut periods, 46), Some((4, 1)));
        assert_eq!(take(&mut periods, 46), None, "b is there again");
    }
}
