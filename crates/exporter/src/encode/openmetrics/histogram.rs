//! Arrays of counts by magnitude, written as buckets.

use std::collections::BTreeMap;

use twinprobe_ebpf_common::RawTable;

use super::names::units::Scale;
use super::series::MetricSeries;
use super::text::{bound, integer};
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::leaf::Leaf;

/// The number of slots that have bounds of their own: the highest bit of a value has 64 possible
/// positions. The counts of later slots are added to the last of these slots.
const SLOTS: usize = 64;
/// The type and the size of the sum of the values.
const WIDEST: (LeafKind, usize) = (
    LeafKind::Number {
        signed: false,
        swapped: false,
    },
    16,
);

/// The counts of the arrays of one metric: one array, or one for each interface.
pub type Histograms = BTreeMap<Box<[u8]>, Histogram>;
/// The sums of the values that these arrays have counted.
pub type HistogramSums = BTreeMap<Box<[u8]>, u128>;

/// The counts of one array, or of one array per CPU.
#[derive(Debug)]
pub struct Histogram {
    cpus: Vec<[u128; SLOTS]>,
    /// The highest slot of the array.
    last: usize,
}

/// Adds the counts of prepared rows, whose keys end with the indices of the arrays.
pub fn add(histograms: &mut Histograms, series: &MetricSeries, leaf: &Leaf<()>, rows: &RawTable) {
    for row in 0..series.len(rows) {
        let key = series.key(rows, row);
        let interface = series.interface(key);
        let index = key[interface.len()..]
            .iter()
            .rev()
            .fold(0, |index, &byte| index << 8 | usize::from(byte));
        let index = index.min(SLOTS - 1);
        if !histograms.contains_key(interface) {
            let cpus = vec![[0; SLOTS]; series.cpus()];
            histograms.insert(interface.into(), Histogram { cpus, last: 0 });
        }
        let Some(histogram) = histograms.get_mut(interface) else {
            continue;
        };
        histogram.last = histogram.last.max(index);
        for (slots, value) in histogram.cpus.iter_mut().zip(series.slots(rows, row)) {
            slots[index] = slots[index].saturating_add(leaf.load(value, 0));
        }
    }
}

/// Appends the buckets, whose counts are cumulative. If the sums of the values are known, also
/// appends count and sum.
pub fn write(
    histograms: &Histograms,
    name: &str,
    series: &MetricSeries,
    scale: Scale,
    sums: Option<(&HistogramSums, bool)>,
    out: &mut Vec<u8>,
) {
    for (interface, histogram) in histograms {
        let mut labels = series.labels.clone().into_bytes();
        series.interface_label(interface, &mut labels);
        let sum =
            sums.map(|(sums, is_gauge)| (sums.get(interface).copied().unwrap_or(0), is_gauge));
        histogram.write(name, series, &labels, scale, sum, out);
    }
}

impl Histogram {
    fn write(
        &self,
        name: &str,
        series: &MetricSeries,
        labels: &[u8],
        scale: Scale,
        sum: Option<(u128, bool)>,
        out: &mut Vec<u8>,
    ) {
        for (cpu, slots) in self.cpus.iter().enumerate() {
            let cpu = series.is_percpu().then_some(cpu);
            let mut count = 0_u128;
            for (index, slot) in slots.iter().enumerate().take(self.last + 1) {
                count = count.saturating_add(*slot);
                let le = scale.of_bound(2_f64.powi(index as i32 + 1) - 1.0);
                bucket(name, labels, cpu, out, count, |out| bound(out, le));
            }
            bucket(name, labels, cpu, out, count, |out| {
                out.extend_from_slice(b"+Inf");
            });
            if let Some((sum, is_gauge)) = sum {
                let [counted, added] = if is_gauge {
                    ["_gcount", "_gsum"]
                } else {
                    ["_count", "_sum"]
                };
                start([name, counted], labels, out);
                out.extend_from_slice(b"} ");
                integer(out, count);
                out.push(b'\n');
                start([name, added], labels, out);
                out.extend_from_slice(b"} ");
                scale.push(out, WIDEST, sum, &series.context);
                out.push(b'\n');
            }
        }
    }
}

/// Writes the name of a sample and its first labels.
fn start(name: [&str; 2], labels: &[u8], out: &mut Vec<u8>) {
    name.iter()
        .for_each(|part| out.extend_from_slice(part.as_bytes()));
    out.extend_from_slice(labels);
}

fn bucket(
    name: &str,
    labels: &[u8],
    cpu: Option<usize>,
    out: &mut Vec<u8>,
    count: u128,
    bound: impl FnOnce(&mut Vec<u8>),
) {
    start([name, "_bucket"], labels, out);
    if let Some(cpu) = cpu {
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
    use std::sync::Arc;

    use twinprobe_ebpf_common::{Layout, MapKind, Render, TableLayout, Temporality};

    use super::*;
    use crate::metric::Metric;

    #[test]
    fn buckets_count_up_and_the_last_slots_are_one() {
        let (key, value) = (Layout::unsigned(4), Layout::unsigned(1));
        let layout = TableLayout {
            kind: MapKind::Array,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let metric = Arc::new(Metric::example("m", layout));
        let series = MetricSeries::new("p", &BTreeMap::new(), &[], &metric, Arc::default());
        let rows = |indices: &[u32], counts: &[u8]| RawTable {
            keys: indices
                .iter()
                .flat_map(|index| index.to_le_bytes())
                .collect(),
            values: counts.to_vec(),
            ..RawTable::default()
        };
        let leaf = &series.samples.values[0].leaf;
        let buckets = |parts: &[RawTable]| {
            let (mut all, mut out) = (Histograms::new(), Vec::new());
            parts
                .iter()
                .for_each(|rows| add(&mut all, &series, leaf, rows));
            write(&all, "m", &series, Scale::Decimal(0), None, &mut out);
            String::from_utf8(out)
                .expect("UTF-8")
                .replace("m_bucket{probe=\"p\",direction=\"ingress\",le=", "")
        };
        let two = buckets(&[rows(&[0], &[5]), rows(&[1], &[3])]);
        assert_eq!(two, "\"1.0\"} 5\n\"3.0\"} 8\n\"+Inf\"} 8\n");
        let many = buckets(&[rows(&[63, 64, 1000], &[1, 2, 3])]);
        assert!(
            many.ends_with("\"1.8446744073709552e+19\"} 6\n\"+Inf\"} 6\n"),
            "{many}"
        );
        assert_eq!(buckets(&[]), "", "an array that was not read");
        let (mut all, mut out) = (Histograms::new(), Vec::new());
        add(&mut all, &series, leaf, &rows(&[0, 1], &[5, 3]));
        let sums = HistogramSums::from([(Box::default(), 2_500_000_000)]);
        write(
            &all,
            "m",
            &series,
            Scale::NANO,
            Some((&sums, false)),
            &mut out,
        );
        let text = String::from_utf8(out).expect("UTF-8");
        let labels = "{probe=\"p\",direction=\"ingress\"}";
        assert!(
            text.ends_with(&format!("m_count{labels} 8\nm_sum{labels} 2.5\n")),
            "{text}"
        );
    }

    #[test]
    fn each_interface_has_a_histogram() {
        let value = Layout {
            render: Some(Render::Histogram),
            ..Layout::unsigned(1)
        };
        let plain = TableLayout {
            kind: MapKind::Array,
            key: Layout::unsigned(4),
            value,
            slots: 1,
            inner: None,
        };
        let metric = Metric::example("m", plain.with_interface("key"));
        let metric = Arc::new(metric.with(|head| head.temporality = Temporality::Cumulative));
        assert!(metric.has_slots() && !metric.is_histogram());
        let interfaces = ["s0".to_owned(), "s1".to_owned()];
        let series = MetricSeries::new("p", &BTreeMap::new(), &interfaces, &metric, Arc::default());
        let mut all = Histograms::new();
        for (interface, counts) in [("s1", [5, 3]), ("s0", [0, 2])] {
            let keys = [0_u32, 1]
                .iter()
                .flat_map(|index| index.to_le_bytes())
                .collect();
            let rows = RawTable {
                keys,
                values: counts.to_vec(),
                ..RawTable::default()
            };
            let rows = rows.with_interface(&plain, interface);
            add(&mut all, &series, &series.samples.values[0].leaf, &rows);
        }
        let mut out = Vec::new();
        let sums = HistogramSums::from([(all.keys().next().cloned().expect("two"), 5)]);
        write(
            &all,
            "m",
            &series,
            Scale::Decimal(0),
            Some((&sums, false)),
            &mut out,
        );
        let text = String::from_utf8(out)
            .expect("UTF-8")
            .replace("{probe=\"p\",direction=\"ingress\",", "{");
        let lines = |interface: &str, numbers: [u8; 3], sum: u8| {
            let label = format!("interface=\"{interface}\"");
            let buckets = ["1.0", "3.0", "+Inf"].iter().zip(numbers);
            let buckets =
                buckets.map(|(le, count)| format!("m_bucket{{{label},le=\"{le}\"}} {count}\n"));
            let buckets: String = buckets.collect();
            format!(
                "{buckets}m_count{{{label}}} {}\nm_sum{{{label}}} {sum}\n",
                numbers[2]
            )
        };
        assert_eq!(text, lines("s0", [0, 2, 2], 5) + &lines("s1", [5, 8, 8], 0));
    }
}
