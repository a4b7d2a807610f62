//! The windows that wait for windows of other nodes, by the periods in which they end. Times are
//! nanoseconds since the Unix epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use twinprobe_rules::end_of;

/// The windows that wait, and the nodes that they wait for.
#[derive(Debug)]
pub struct Periods<T> {
    waiting: BTreeMap<u64, Vec<(String, T)>>,
    /// For each node, the last period in which one of its windows ends.
    last: BTreeMap<String, u64>,
    /// The nodes that did not come in time the last time.
    silent: BTreeSet<String>,
    /// The nodes that have sent a window in time. Before that they send the windows from before the
    /// start.
    current: BTreeSet<String>,
    /// The time of the last window of each node.
    heard: BTreeMap<String, i64>,
    begun: i64,
    length: Duration,
}

impl<T> Periods<T> {
    pub fn new(length: Duration, begun: i64) -> Self {
        let (waiting, last, heard) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            waiting,
            last,
            silent: BTreeSet::new(),
            current: BTreeSet::new(),
            heard,
            begun,
            length,
        }
    }

    pub fn add(&mut self, node: &str, period: u64, item: T, now: i64) {
        self.silent.remove(node);
        self.hear(node, period, now);
        let last = self.last.entry(node.to_owned()).or_default();
        *last = period.max(*last);
        self.waiting
            .entry(period)
            .or_default()
            .push((node.to_owned(), item));
    }

    /// Notes a window that came after the judgement of its period. After a window that came before
    /// the deadline, although after the other nodes' windows, the rule waits for the node again.
    pub fn note_late(&mut self, node: &str, period: u64, now: i64) {
        if now < self.deadline_of(period) {
            self.silent.remove(node);
        }
        self.hear(node, period, now);
    }

    fn hear(&mut self, node: &str, period: u64, now: i64) {
        self.heard.insert(node.to_owned(), now);
        if now < self.deadline_of(period) {
            self.current.insert(node.to_owned());
        }
    }

    /// The time at which the rule judges the oldest period even if windows of these nodes are
    /// missing.
    pub fn deadline<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> Option<i64> {
        let (period, _) = self.waiting.first_key_value()?;
        let missing = nodes.filter(|node| self.is_missing(node, *period));
        Some(
            missing
                .map(|node| self.limit(node, *period))
                .max()
                .unwrap_or(self.begun),
        )
    }

    /// Takes the oldest period if windows of all `nodes` are there, or the rule waits for no node
    /// any more.
    pub fn take<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a String>,
        now: i64,
    ) -> Option<(u64, Vec<(String, T)>)> {
        let (period, _) = self.waiting.first_key_value()?;
        let missing: Vec<String> = nodes
            .filter(|node| self.is_missing(node, *period))
            .cloned()
            .collect();
        if missing.iter().any(|node| now < self.limit(node, *period)) {
            return None;
        }
        self.silent.extend(missing);
        self.waiting.pop_first()
    }

    fn is_missing(&self, node: &String, period: u64) -> bool {
        !self.silent.contains(node) && self.last.get(node).is_none_or(|last| *last < period)
    }

    /// The time until which the rule waits for a node. A node that still sends windows from before
    /// the start may continue to do so.
    fn limit(&self, node: &String, period: u64) -> i64 {
        let deadline = self.deadline_of(period);
        if self.current.contains(node) {
            return deadline;
        }
        let heard = self.heard.get(node).copied().unwrap_or(self.begun);
        heard.saturating_add(self.late()).max(deadline)
    }

    fn deadline_of(&self, period: u64) -> i64 {
        end_of(period, self.length).saturating_add(self.late())
    }

    /// Windows of a period may end up to half a period after the period's end, and have another
    /// period to arrive.
    fn late(&self) -> i64 {
        i64::try_from((self.length + self.length / 2).as_nanos()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn nodes() -> [String; 2] {
        ["a".to_owned(), "b".to_owned()]
    }

    fn take(periods: &mut Periods<u32>, now: i64) -> Option<(u64, usize)> {
        periods
            .take(nodes().iter(), now * SECOND)
            .map(|(period, items)| (period, items.len()))
    }

    #[test]
    fn a_period_waits_for_all_nodes_until_its_deadline() {
        let mut periods = Periods::new(Duration::from_secs(10), 0);
        let add = |periods: &mut Periods<u32>, node, period, now: i64| {
            periods.add(node, period, 0, now * SECOND);
        };
        assert_eq!(take(&mut periods, 1000), None);
        add(&mut periods, "a", 2, 21);
        add(&mut periods, "a", 3, 31);
        assert_eq!(periods.deadline(nodes().iter()), Some(35 * SECOND));
        assert_eq!(take(&mut periods, 34), None);
        add(&mut periods, "b", 2, 34);
        assert_eq!(take(&mut periods, 34), Some((2, 2)));
        assert_eq!(take(&mut periods, 44), None);
        assert_eq!(take(&mut periods, 45), Some((3, 1)), "b is late");
        add(&mut periods, "a", 4, 45);
        assert_eq!(take(&mut periods, 46), Some((4, 1)), "b is silent");
        add(&mut periods, "b", 4, 46);
        add(&mut periods, "a", 5, 46);
        assert_eq!(take(&mut periods, 46), Some((4, 1)));
        assert_eq!(take(&mut periods, 46), None, "b is there again");
        assert_eq!(take(&mut periods, 65), Some((5, 1)), "b is late again");
        add(&mut periods, "a", 6, 65);
        assert_eq!(take(&mut periods, 66), Some((6, 1)));
        periods.note_late("b", 6, 75 * SECOND);
        add(&mut periods, "a", 7, 75);
        assert_eq!(
            take(&mut periods, 76),
            Some((7, 1)),
            "it came after the deadline"
        );
        periods.note_late("b", 7, 77 * SECOND);
        add(&mut periods, "a", 8, 81);
        assert_eq!(
            take(&mut periods, 81),
            None,
            "it came in time, only after a"
        );
    }

    #[test]
    fn windows_from_before_the_start_wait_for_those_of_other_nodes() {
        let mut periods = Periods::new(Duration::from_secs(10), 1000 * SECOND);
        periods.add("a", 2, 0, 1001 * SECOND);
        assert_eq!(periods.deadline(nodes().iter()), Some(1015 * SECOND));
        assert_eq!(
            take(&mut periods, 1002),
            None,
            "b has not said anything yet"
        );
        periods.add("b", 2, 0, 1014 * SECOND);
        assert_eq!(take(&mut periods, 1014), Some((2, 2)));
        periods.add("a", 3, 0, 1014 * SECOND);
        assert_eq!(take(&mut periods, 1028), None, "b may go on");
        assert_eq!(take(&mut periods, 1029), Some((3, 1)));
    }
}
