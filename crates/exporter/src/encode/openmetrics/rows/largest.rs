//! The largest rows of a table that has more rows than its metric may show, and the sum of all
//! other rows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::plan::{Plan, Scalar};
use twinprobe_ebpf_common::{MergeRule, RawTable};

use crate::decode::decoder::Decoder;
use crate::encode::openmetrics::samples::FamilySamples;
use crate::encode::openmetrics::series::{MetricSeries, each_item};
use crate::encode::openmetrics::text::integer;

/// The name of the key that represents all rows that are not shown.
const OTHER: &str = "other";
/// The number of bits in the sum of the rows that are not shown.
const WIDTH: u32 = 128;

/// A row and its size. Of two rows of the same size, the earlier one counts as larger.
type Ranked = (i128, Reverse<u64>, Box<[u8]>, Box<[u8]>);

/// Finds the largest of the prepared rows of a table. The rows come one after the other.
#[derive(Debug, Default)]
pub struct Ranking {
    /// The rows, the smallest first.
    rows: BinaryHeap<Reverse<Ranked>>,
    seen: u64,
    others: HiddenTotals,
}

/// The totals of the rows that are not shown: one total, or one for each interface that keys name.
type HiddenTotals = BTreeMap<Box<[u8]>, HiddenRows>;

/// The total of the rows that are not shown. Each value of the samples has a list of numbers: one
/// for each CPU and each item of its arrays.
#[derive(Debug, Default)]
struct HiddenRows {
    rows: usize,
    numbers: Vec<Vec<u128>>,
}

/// The rows of a table that are shown, the largest first.
#[derive(Debug)]
pub struct Largest {
    rows: RawTable,
    /// The labels that represent the keys of all other rows, and the sums of these rows.
    others: Vec<(String, HiddenRows)>,
}

impl Ranking {
    /// Adds rows whose labels differ from those of all rows before.
    pub fn add(&mut self, series: &MetricSeries, rows: &RawTable) {
        for row in 0..series.len(rows) {
            let (key, value) = (series.key(rows, row), series.value(rows, row));
            let size = size(series, rows, row);
            self.seen += 1;
            if self.rows.len() < series.samples.max_rows {
                self.rows.push(Reverse((
                    size,
                    Reverse(self.seen),
                    key.into(),
                    value.into(),
                )));
                continue;
            }
            match self.rows.peek_mut() {
                Some(mut least) if least.0.0 < size => {
                    let interface = series.interface(&least.0.2).into();
                    self.others
                        .entry(interface)
                        .or_default()
                        .add(series, &least.0.3);
                    *least = Reverse((size, Reverse(self.seen), key.into(), value.into()));
                }
                _ => self
                    .others
                    .entry(series.interface(key).into())
                    .or_default()
                    .add(series, value),
            }
        }
    }

    /// Returns the largest rows.
    pub fn finish(self, series: &MetricSeries) -> Largest {
        let mut rows = RawTable::default();
        for Reverse((_, _, key, value)) in self.rows.into_sorted_vec() {
            rows.keys.extend_from_slice(&key);
            rows.values.extend_from_slice(&value);
        }
        let labelled = self.others.into_iter();
        let others = labelled
            .map(|(interface, others)| (other_label(series, &rows, &interface), others))
            .collect();
        Largest { rows, others }
    }
}

impl Largest {
    /// Returns the number of rows that are not shown.
    pub fn others(&self) -> usize {
        self.others.iter().map(|(_, others)| others.rows).sum()
    }

    /// Writes the samples of one value of the table, in the family `name`.
    pub fn write(&self, name: &str, series: &MetricSeries, value: usize, out: &mut Vec<u8>) {
        let (mut row, len) = (0, series.len(&self.rows));
        let of = &series.samples.values[value];
        while row < len {
            row = series.write(name, of, &self.rows, row, out);
        }
        // The newest number of one key says nothing about other keys, so there is no sum.
        if of.join.rule != MergeRule::Last {
            for (label, others) in &self.others {
                others.write([name, &series.labels, label], series, (value, of), out);
            }
        }
    }
}

impl HiddenRows {
    fn add(&mut self, series: &MetricSeries, value: &[u8]) {
        let (is_first, values) = (self.rows == 0, &series.samples.values);
        self.rows += 1;
        self.numbers.resize(values.len(), Vec::new());
        for (numbers, of) in self.numbers.iter_mut().zip(values) {
            let mut at = 0;
            each_number(series, of, value, &mut |number| {
                match numbers.get_mut(at) {
                    Some(total) if !is_first => {
                        *total = of.join.join(of.leaf.kind, WIDTH, *total, number);
                    }
                    _ => numbers.push(number),
                }
                at += 1;
            });
        }
    }

    fn write(
        &self,
        start: [&str; 3],
        series: &MetricSeries,
        (index, of): (usize, &FamilySamples),
        out: &mut Vec<u8>,
    ) {
        let mut numbers = self.numbers.get(index).into_iter().flatten();
        let start = start.concat().into_bytes();
        for cpu in 0..series.cpus() {
            let mut labels = Vec::new();
            if series.is_percpu() {
                labels.extend_from_slice(b",cpu=\"");
                integer(&mut labels, cpu);
                labels.push(b'"');
            }
            each_item(&of.arrays, 0, &mut labels, &mut |labels, _| {
                let Some(total) = numbers.next() else { return };
                out.extend_from_slice(&start);
                out.extend_from_slice(labels);
                out.extend_from_slice(b"} ");
                of.scale
                    .push(out, (of.leaf.kind, of.leaf.size), *total, &series.context);
                out.push(b'\n');
            });
        }
    }
}

/// Calls `visit` with each number that a value has in its family.
fn each_number(
    series: &MetricSeries,
    of: &FamilySamples,
    value: &[u8],
    visit: &mut impl FnMut(u128),
) {
    for slot in series.slots_of(value) {
        each_item(&of.arrays, 0, &mut Vec::new(), &mut |_, base| {
            visit(of.leaf.load(slot, base));
        });
    }
}

/// Returns the sum of the numbers by which a row is ranked.
fn size(series: &MetricSeries, rows: &RawTable, row: usize) -> i128 {
    let Some(by) = series.samples.values.get(series.samples.by) else {
        return 0;
    };
    let mut size = 0_i128;
    each_number(series, by, series.value(rows, row), &mut |bits| {
        let number = match by.leaf.kind {
            LeafKind::Number { signed: true, .. } => bits.cast_signed(),
            LeafKind::Number { .. } | LeafKind::Bool => i128::try_from(bits).unwrap_or(i128::MAX),
            LeafKind::Float => f64::from_bits(bits as u64) as i128,
        };
        size = size.saturating_add(number);
    });
    size
}

/// Returns the label that represents all keys that are not shown; it follows the label of the
/// interface. If a key has only one other label, that label gets a new value, and its name stays.
fn other_label(series: &MetricSeries, rows: &RawTable, interface: &[u8]) -> String {
    let mut of_interface = Vec::new();
    series.interface_label(interface, &mut of_interface);
    let of_interface = String::from_utf8_lossy(&of_interface);
    let [key] = &series.samples.keys[usize::from(!interface.is_empty())..] else {
        return format!("{of_interface},key=\"{OTHER}\"");
    };
    let mut label = format!("{of_interface}{}{OTHER}", key.label);
    let is_text = matches!(
        key.plan,
        Plan::Text { .. }
            | Plan::Scalar {
                kind: Scalar::Enum { .. } | Scalar::Ifindex,
                ..
            }
    );
    if is_text {
        let mut decoder = Decoder::new(&series.context);
        let mut taken = Vec::new();
        for row in 0..series.len(rows) {
            let mut text = Vec::new();
            series.key_labels(series.key(rows, row), &mut decoder, &mut text);
            taken.push(text);
        }
        while taken
            .iter()
            .any(|text| text.strip_suffix(b"\"") == Some(label.as_bytes()))
        {
            label.push('_');
        }
    }
    label.push('"');
    label
}
