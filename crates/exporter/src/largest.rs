//! The largest entries of a metric, and the sum of all others, so that totals stay exact.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use twinprobe_ebpf_common::{Layout, RawTable, TableLayout};

use crate::accumulate::Accumulator;
use crate::metric::Metric;
use crate::numbers::{NoNumber, Number, Numbers};
use crate::others::Others;

/// Chooses the entries of a metric with the largest numbers.
#[derive(Debug)]
pub struct LargestRows {
    metric: Arc<Metric>,
    numbers: Numbers,
    top: usize,
    /// The chosen entries. The smallest of them is on top.
    chosen: BinaryHeap<Reverse<Chosen>>,
    /// All other entries, under one key.
    rest: Accumulator,
    others: u64,
    seen: u64,
}

#[derive(Debug)]
struct Chosen {
    number: Number,
    /// The place of the entry. Of two equal numbers the first one is larger.
    place: Reverse<u64>,
    key: Box<[u8]>,
    value: Box<[u8]>,
}

impl LargestRows {
    /// Chooses up to `top` entries by the number with the path `by`, or else by the first counter. `None` for
    /// metrics that must have all their entries: those without keys or numbers, histograms, and maps of maps.
    ///
    /// # Errors
    ///
    /// Fails if the value has no such number.
    pub fn new(metric: &Arc<Metric>, top: usize, by: Option<&str>) -> Result<Option<Self>, NoNumber> {
        let layout = &metric.layout;
        if !layout.kind.has_keys() || layout.kind.is_nested() || metric.has_slots() {
            return Ok(None);
        }
        let numbers = match Numbers::new(metric, by) {
            Ok(numbers) => numbers,
            Err(error) if by.is_some() => return Err(error),
            Err(_) => return Ok(None),
        };
        let joined = TableLayout { key: Layout::unsigned(1), ..TableLayout::clone(layout) };
        let rules = metric.series.merge.clone().unwrap_or_default();
        let Ok(rest) = Accumulator::new(Arc::new(joined), &rules) else { return Ok(None) };
        let (metric, chosen) = (Arc::clone(metric), BinaryHeap::new());
        Ok(Some(Self { metric, numbers, top, chosen, rest, others: 0, seen: 0 }))
    }

    /// Adds entries of the metric. `boot_time_ns` is the time of the boot by the wall clock, from which their
    /// times are measured.
    pub fn add(&mut self, table: &RawTable, boot_time_ns: i128) {
        let layout = Arc::clone(&self.metric.layout);
        let mut left = RawTable::default();
        for (key, value) in table.entries(&layout) {
            let (number, place) = (self.numbers.of(value), Reverse(self.seen));
            self.seen += 1;
            let is_chosen = self.chosen.len() < self.top
                || self.chosen.peek().is_some_and(|Reverse(least)| order(number, least.number).is_gt());
            if !is_chosen {
                left.values.extend_from_slice(value);
                continue;
            }
            self.chosen.push(Reverse(Chosen { number, place, key: key.into(), value: value.into() }));
            if self.chosen.len() > self.top
                && let Some(Reverse(least)) = self.chosen.pop()
            {
                left.values.extend_from_slice(&least.value);
            }
        }
        let rows = left.values.len().checked_div(layout.value_stride()).unwrap_or(0);
        left.keys = vec![0; rows];
        self.others += rows as u64;
        self.rest.add(&left, 0, boot_time_ns);
    }

    /// Returns the metric with the sum of the others, and the chosen entries, the largest first.
    pub fn finish(self) -> (Arc<Metric>, RawTable) {
        let mut rows = RawTable::default();
        // The order is that of the reversed entries.
        for Reverse(entry) in self.chosen.into_sorted_vec() {
            rows.keys.extend_from_slice(&entry.key);
            rows.values.extend_from_slice(&entry.value);
        }
        let (layout, table) = (Arc::clone(self.rest.layout()), self.rest.table().clone());
        let others = (self.others > 0).then_some(Others { entries: self.others, layout, rows: table });
        (Arc::new(Metric::clone(&self.metric).with_others(others)), rows)
    }
}

impl Ord for Chosen {
    fn cmp(&self, other: &Self) -> Ordering {
        order(self.number, other.number).then(self.place.cmp(&other.place))
    }
}

impl PartialOrd for Chosen {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Chosen {}

/// Compares two numbers of one field.
fn order(one: Number, other: Number) -> Ordering {
    match (one, other) {
        (Number::Integer(one), Number::Integer(other)) => one.cmp(&other),
        _ => one.as_f64().total_cmp(&other.as_f64()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use twinprobe_ebpf_common::{Aggregation, Format, Head, MapKind, Member, MergeRule, MergeRules, Shape};

    use super::*;
    use crate::encode::document::document_encoder;

    fn table(numbers: &[u8]) -> RawTable {
        let keys = 0..numbers.len() as u8;
        RawTable { keys: keys.collect(), values: numbers.to_vec(), ..RawTable::default() }
    }

    fn metric(value: Layout) -> Arc<Metric> {
        let key = Layout::unsigned(1);
        Arc::new(Metric::example("m", TableLayout { kind: MapKind::Hash, key, value, slots: 1, inner: None }))
    }

    fn chosen(
        metric: &Arc<Metric>,
        top: usize,
        by: Option<&str>,
        tables: &[RawTable],
    ) -> (Arc<Metric>, RawTable) {
        let mut largest = LargestRows::new(metric, top, by).unwrap().unwrap();
        tables.iter().for_each(|table| largest.add(table, 0));
        largest.finish()
    }

    fn written(format: Format, metric: &Arc<Metric>, rows: &RawTable) -> String {
        let mut out = Vec::new();
        let mut encoder = document_encoder(format, &Head::default(), Arc::default(), &mut out);
        encoder.add_metric(metric);
        encoder.next_table(&mut out);
        encoder.rows(rows, &mut out);
        encoder.next_table(&mut out);
        encoder.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_largest_come_first_and_the_rest_is_one() {
        let metric = metric(Layout::unsigned(1));
        let (shown, rows) = chosen(&metric, 2, None, &[table(&[7, 200, 3]), table(&[100, 200])]);
        assert_eq!((rows.keys.clone(), rows.values.clone()), (vec![1, 1], vec![200, 200]));
        let json = written(Format::Json, &shown, &rows);
        assert!(
            json.contains(r#""others":{"entries":3,"value":110},"entries":[{"key":1,"value":200}"#),
            "{json}"
        );
        let xml = written(Format::Xml, &shown, &rows);
        assert!(xml.contains(r#"<others entries="3"><value>110</value></others><entry>"#), "{xml}");
        let (shown, rows) = chosen(&metric, 9, None, &[table(&[7, 200])]);
        assert_eq!(rows.values, [200, 7]);
        assert!(!written(Format::Json, &shown, &rows).contains("others"));
    }

    #[test]
    fn what_does_not_add_up_joins_by_its_rule() {
        let member = |name: &str, bit_offset| Member {
            name: name.into(),
            bit_offset,
            bitfield: None,
            layout: Layout::unsigned(1),
        };
        let shape = Shape::Struct(vec![member("packets", 0), member("longest", 8)]);
        let fields = [("longest".to_owned(), MergeRule::Max)].into();
        let metric = Metric::clone(&metric(Layout { size: 2, shape, render: None }));
        let rules = MergeRules { fields, ..MergeRules::default() };
        let metric = Arc::new(metric.with(|head| head.series.merge = Some(rules)));
        let rows = RawTable { keys: vec![1, 2, 3], values: vec![5, 1, 2, 9, 1, 4], ..RawTable::default() };
        let (shown, rows) = chosen(&metric, 1, Some("packets"), &[rows]);
        let json = written(Format::Json, &shown, &rows);
        assert!(json.contains(r#""others":{"entries":2,"value":{"packets":3,"longest":9}}"#), "{json}");
        let error = LargestRows::new(&metric, 1, Some("bytes")).unwrap_err().to_string();
        assert!(error.contains("bytes") && error.contains("packets"), "{error}");
    }

    #[test]
    fn values_of_cpus_join_for_each_cpu() {
        let layout = TableLayout {
            kind: MapKind::PercpuHash,
            key: Layout::unsigned(1),
            value: Layout::unsigned(8),
            slots: 2,
            inner: None,
        };
        let values = [[1_u64, 9], [5, 0], [2, 2]].concat();
        let values = values.into_iter().flat_map(u64::to_le_bytes).collect();
        let rows = RawTable { keys: vec![1, 2, 3], values, ..RawTable::default() };
        let metric = Arc::new(Metric::example("m", layout));
        let (shown, left) = chosen(&metric, 1, None, std::slice::from_ref(&rows));
        let json = written(Format::Json, &shown, &left);
        assert!(
            json.contains(r#""others":{"entries":2,"value":[7,2]},"entries":[{"key":1,"value":[1,9]}]"#),
            "{json}"
        );
        let summed = Metric::clone(&metric).with(|head| head.agg = Some(Aggregation::Sum));
        let (shown, left) = chosen(&Arc::new(summed), 1, None, &[rows]);
        assert!(written(Format::Json, &shown, &left).contains(r#""others":{"entries":2,"value":9}"#));
    }

    proptest! {
        #[test]
        fn totals_stay_exact(numbers in proptest::collection::vec(any::<u8>(), 0..60), top in 1_usize..9) {
            let metric = metric(Layout::unsigned(1));
            let (shown, rows) = chosen(&metric, top, None, &[table(&numbers)]);
            let mut expected = numbers.clone();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(&rows.values[..], &expected[..top.min(numbers.len())]);
            let total: u64 = numbers.iter().copied().map(u64::from).sum();
            let shown_total: u64 = rows.values.iter().copied().map(u64::from).sum();
            let rest = shown.others().map_or(0, |others| {
                u64::from_le_bytes(others.rows.values[..8].try_into().unwrap())
            });
            prop_assert_eq!(shown_total + rest, total);
        }
    }
}
