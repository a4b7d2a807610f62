//! Arrays of counts by magnitude, written as buckets.

use twinprobe_ebpf_common::RawTable;

use super::names::units::Scale;
use super::series::MetricSeries;
use super::text::{bound, integer};
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::leaf::Leaf;

/// The number of slots that have a bound of their own: the highest bit of a value has 64 possible positions. Later
/// slots are counted with the last one.
const SLOTS: usize = 64;
/// The type and the size of the sum of numbers.
const WIDEST: (LeafKind, usize) = (LeafKind::Number { signed: false, swapped: false }, 16);

/// The counts of one array, or of one array per CPU.
#[derive(Debug, Default)]
pub struct Histogram {
    cpus: Vec<[u128; SLOTS]>,
    /// The highest slot that the array has.
    last: usize,
}

impl Histogram {
    /// Adds the counts of prepared rows, whose keys are the indices of the array.
    pub fn add(&mut self, series: &MetricSeries, leaf: &Leaf<()>, rows: &RawTable) {
        let len = series.len(rows);
        if len > 0 && self.cpus.is_empty() {
            self.cpus = vec![[0; SLOTS]; series.cpus()];
        }
        for row in 0..len {
            let key = series.key(rows, row);
            let index = key.iter().rev().fold(0, |index, &byte| index << 8 | usize::from(byte));
            let index = index.min(SLOTS - 1);
            self.last = self.last.max(index);
            for (slots, value) in self.cpus.iter_mut().zip(series.slots(rows, row)) {
                slots[index] = slots[index].saturating_add(leaf.load(value, 0));
            }
        }
    }

    /// Appends the buckets, whose counts are cumulative, and, if the sum of the values is known, also their number.
    pub fn write(
        &self,
        name: &str,
        series: &MetricSeries,
        scale: Scale,
        sum: Option<(u128, bool)>,
        out: &mut Vec<u8>,
    ) {
        for (cpu, slots) in self.cpus.iter().enumerate() {
            let mut count = 0_u128;
            for (index, slot) in slots.iter().enumerate().take(self.last + 1) {
                count = count.saturating_add(*slot);
                let le = scale.of_bound(2_f64.powi(index as i32 + 1) - 1.0);
                bucket(name, series, cpu, out, count, |out| bound(out, le));
            }
            bucket(name, series, cpu, out, count, |out| out.extend_from_slice(b"+Inf"));
            if let Some((sum, is_gauge)) = sum {
                let endings = if is_gauge { ["_gcount", "_gsum"] } else { ["_count", "_sum"] };
                let [counted, added] = endings.map(|ending| format!("{name}{ending}{}}} ", series.labels));
                out.extend_from_slice(counted.as_bytes());
                integer(out, count);
                out.push(b'\n');
                out.extend_from_slice(added.as_bytes());
                scale.push(out, WIDEST, sum, &series.context);
                out.push(b'\n');
            }
        }
    }
}

fn bucket(
    name: &str,
    series: &MetricSeries,
    cpu: usize,
    out: &mut Vec<u8>,
    count: u128,
    bound: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"_bucket");
    out.extend_from_slice(series.labels.as_bytes());
    if series.is_percpu() {
        out.extend_from_slice(b",cpu=\"");
        integer(out, cpu);
        out.push(b'"');
    }
    out.extend_from_slice(b",le=\"");
    bound(out);
    out.extend_from_slice(b"\"} ");
    integer(out, count);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use twinprobe_ebpf_common::{Layout, MapKind, TableLayout};

    use super::*;
    use crate::metric::Metric;

    #[test]
    fn buckets_count_up_and_the_last_slots_are_one() {
        let (key, value) = (Layout::unsigned(4), Layout::unsigned(1));
        let layout = TableLayout { kind: MapKind::Array, key, value, slots: 1, inner: None };
        let metric = Arc::new(Metric::example("m", layout));
        let series = MetricSeries::new("p", &BTreeMap::new(), &[], &metric, Arc::default());
        let rows = |indices: &[u32], counts: &[u8]| RawTable {
            keys: indices.iter().flat_map(|index| index.to_le_bytes()).collect(),
            values: counts.to_vec(),
            ..RawTable::default()
        };
        let buckets = |parts: &[RawTable]| {
            let (mut histogram, mut out) = (Histogram::default(), Vec::new());
            let leaf = &series.samples.values[0].leaf;
            parts.iter().for_each(|rows| histogram.add(&series, leaf, rows));
            histogram.write("m", &series, Scale::Decimal(0), None, &mut out);
            String::from_utf8(out)
                .expect("UTF-8")
                .replace("m_bucket{probe=\"p\",direction=\"ingress\",le=", "")
        };
        let two = buckets(&[rows(&[0], &[5]), rows(&[1], &[3])]);
        assert_eq!(two, "\"1.0\"} 5\n\"3.0\"} 8\n\"+Inf\"} 8\n");
        let many = buckets(&[rows(&[63, 64, 1000], &[1, 2, 3])]);
        assert!(many.ends_with("\"1.8446744073709552e+19\"} 6\n\"+Inf\"} 6\n"), "{many}");
        assert_eq!(buckets(&[]), "", "an array that was not read");
        let (mut histogram, mut out) = (Histogram::default(), Vec::new());
        histogram.add(&series, &series.samples.values[0].leaf, &rows(&[0, 1], &[5, 3]));
        histogram.write("m", &series, Scale::NANO, Some((2_500_000_000, false)), &mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        let labels = "{probe=\"p\",direction=\"ingress\"}";
        assert!(text.ends_with(&format!("m_count{labels} 8\nm_sum{labels} 2.5\n")), "{text}");
    }
}
