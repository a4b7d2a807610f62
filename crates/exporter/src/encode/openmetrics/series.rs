//! A metric of one probe and direction in the form of samples: the parts that all rows share.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::{Context, RawTable};

use super::info::label;
use super::rows::flat::{flat, flatten};
use super::samples::keys::INTERFACE;
use super::samples::{Dimension, FamilySamples, Samples};
use super::text::{Labels, escaped, integer};
use crate::aggregate::{Folded, Folder};
use crate::decode::decoder::Decoder;
use crate::decode::text::hex;
use crate::encode::encoder::CHUNK;
use crate::metric::Metric;

/// A metric of one probe and direction.
#[derive(Debug)]
pub struct MetricSeries {
    /// The original metric.
    pub original: Arc<Metric>,
    /// The metric in the form that has one table: a map of maps is flattened.
    pub metric: Arc<Metric>,
    pub samples: Arc<Samples>,
    /// The first labels of every sample: `{probe="flows",direction="ingress",interface="eth0"`,
    /// then the labels of the configuration.
    pub labels: String,
    /// The labels without the interface, for numbers about a map.
    pub map_labels: String,
    pub context: Arc<Context>,
    /// The layout of the values into which the values of all CPUs are folded; `None` if nothing is
    /// folded.
    folded: Option<Arc<Folded>>,
    /// The number of numbers in each row that belong to no family.
    pub nameless: u64,
}

/// The counts of a table's rows so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// All rows, including duplicates.
    pub rows: usize,
    /// The rows with a key that an earlier row has.
    pub duplicates: usize,
    /// The rows beyond the limit of the metric, which share one sample.
    pub surplus: usize,
    /// The entries of the map. For a map of maps, `entries` counts the outer map, while `rows`
    /// counts the inner maps.
    pub entries: usize,
}

impl MetricSeries {
    /// Makes the series. `configured` are the labels of the probe's configuration, which stay the
    /// same for the life of `metric`. `interfaces` are the sources of the numbers. If there is only
    /// one, it becomes a label, unless the key or the configuration has such a label.
    pub fn new(
        probe: &str,
        configured: &BTreeMap<String, String>,
        interfaces: &[String],
        metric: &Arc<Metric>,
        context: Arc<Context>,
    ) -> Self {
        let original = Arc::clone(metric);
        let metric = flat(metric);
        let folded = Folded::of(&metric, &metric.layout);
        let value = folded
            .as_ref()
            .map_or(&metric.layout.value, |folded| &folded.value);
        let samples = metric
            .cache()
            .get(|| Samples::new(&metric, value, configured.keys()));
        let labels = |interface: Option<&String>| {
            let mut labels = b"{probe=\"".to_vec();
            escaped(&mut labels, probe);
            label(&mut labels, "direction", metric.direction.name());
            interface
                .iter()
                .for_each(|interface| label(&mut labels, INTERFACE, interface));
            configured
                .iter()
                .for_each(|(name, value)| label(&mut labels, name, value));
            labels.push(b'"');
            String::from_utf8_lossy(&labels).into_owned()
        };
        let has_own = configured.contains_key(INTERFACE) || samples.has_interface();
        let interface = if let [only] = interfaces {
            Some(only).filter(|_| !has_own)
        } else {
            None
        };
        let (labels, map_labels) = (labels(interface), labels(None));
        Self {
            original,
            metric,
            samples,
            labels,
            map_labels,
            context,
            folded,
            nameless: 0,
        }
    }

    /// Prepares raw rows for the other functions: maps of maps become one table, and PERCPU values
    /// are aggregated.
    pub fn prepare<'a>(&self, rows: Cow<'a, RawTable>) -> Cow<'a, RawTable> {
        let rows = flatten(&self.original, rows);
        let layout = &*self.metric.layout;
        let Some(mut folder) = Folder::of(&self.metric, layout) else {
            return rows;
        };
        let mut folded = RawTable::default();
        for (key, value) in rows.entries(layout) {
            folded.keys.extend_from_slice(key);
            folded.values.extend_from_slice(folder.fold(value));
        }
        Cow::Owned(folded)
    }

    fn value_stride(&self) -> usize {
        self.folded.as_ref().map_or_else(
            || self.metric.layout.value_stride(),
            |folded| folded.value.size,
        )
    }

    /// Returns the number of prepared rows.
    pub fn len(&self, rows: &RawTable) -> usize {
        let layout = &*self.metric.layout;
        if self.folded.is_none() {
            return rows.len(layout);
        }
        // The values have no bytes if their type has none, as a malformed layout may claim.
        rows.values
            .len()
            .checked_div(self.value_stride())
            .unwrap_or(0)
    }

    /// Returns the key of a prepared row; empty if the map has no keys.
    pub fn key<'a>(&self, rows: &'a RawTable, row: usize) -> &'a [u8] {
        let layout = &*self.metric.layout;
        if layout.kind.has_keys() {
            &rows.keys[row * layout.key.size..][..layout.key.size]
        } else {
            &[]
        }
    }

    /// Returns the bytes of all values of a prepared row.
    pub fn value<'a>(&self, rows: &'a RawTable, row: usize) -> &'a [u8] {
        let stride = self.value_stride();
        &rows.values[row * stride..][..stride]
    }

    /// Returns the values of a prepared row: one, or one per CPU.
    pub fn slots<'a>(&self, rows: &'a RawTable, row: usize) -> impl Iterator<Item = &'a [u8]> {
        self.slots_of(self.value(rows, row))
    }

    /// Splits the bytes that [`Self::value`] returns into values.
    pub fn slots_of<'a>(&self, value: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let slot = if self.folded.is_some() {
            self.value_stride()
        } else {
            self.metric.layout.slot_stride()
        };
        value.chunks_exact(slot).take(self.cpus())
    }

    /// Tells whether only the largest rows become samples.
    pub fn is_limited(&self) -> bool {
        self.samples.max_rows != usize::MAX
    }

    /// Tells whether there is one value for each CPU.
    pub fn is_percpu(&self) -> bool {
        self.metric.layout.kind.is_percpu() && self.folded.is_none()
    }

    /// Returns the number of values of a prepared row.
    pub fn cpus(&self) -> usize {
        if self.is_percpu() {
            self.metric.layout.slots
        } else {
            1
        }
    }

    /// Returns the part of a key that names the interface; empty if keys name no interface.
    pub fn interface<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        &key[..self.metric.layout.interface_bytes()]
    }

    /// Appends the label for the name that [`Self::interface`] returned.
    pub fn interface_label(&self, interface: &[u8], out: &mut Vec<u8>) {
        if let (Some(field), Some(start), false) = (
            self.samples.keys.first(),
            self.samples.starts.first(),
            interface.is_empty(),
        ) {
            start.push_to(out);
            Decoder::new(&self.context).key_part(field, interface, &mut Labels(out));
            out.push(b'"');
        }
    }

    /// Appends the labels that come from a key.
    pub fn key_labels(&self, key: &[u8], decoder: &mut Decoder<'_>, out: &mut Vec<u8>) {
        for (field, start) in self.samples.keys.iter().zip(&self.samples.starts) {
            start.push_to(out);
            decoder.key_part(field, key, &mut Labels(out));
            out.push(b'"');
        }
        let (padding, start) = &self.samples.padding;
        if padding.is_set(key) {
            let mut digits = String::new();
            hex(&mut digits, &padding.bytes(key));
            [start.as_str(), &digits, "\""]
                .iter()
                .for_each(|part| out.extend_from_slice(part.as_bytes()));
        }
    }

    /// Writes the samples of prepared rows in the family `name`, from `row` until a chunk is full.
    /// Returns the next row.
    pub fn write(
        &self,
        name: &str,
        value: &FamilySamples,
        rows: &RawTable,
        mut row: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let start = [name.as_bytes(), self.labels.as_bytes()].concat();
        let is_single = !self.is_percpu() && value.arrays.is_empty();
        let mut decoder = Decoder::new(&self.context);
        let (mut labels, len) = (Vec::new(), self.len(rows));
        while row < len {
            if is_single {
                out.extend_from_slice(&start);
                self.key_labels(self.key(rows, row), &mut decoder, out);
                end(value, self.value(rows, row), 0, &self.context, out);
            } else {
                labels.clear();
                self.key_labels(self.key(rows, row), &mut decoder, &mut labels);
                samples(&start, self, value, rows, row, &mut labels, out);
            }
            row += 1;
            if out.len() >= CHUNK {
                break;
            }
        }
        row
    }

    /// Returns the number of numbers and texts in this many rows that become no samples.
    pub fn skipped(&self, count: Count) -> u64 {
        let values = |rows: usize| (rows as u64).saturating_mul(self.cpus() as u64);
        let unfit = values(count.rows).saturating_mul(self.samples.unfit);
        let without_sample = count.duplicates + count.surplus;
        let alike = values(without_sample).saturating_mul(self.samples.fit());
        let nameless = values(count.rows - without_sample).saturating_mul(self.nameless);
        unfit.saturating_add(alike).saturating_add(nameless)
    }
}

/// Writes the samples of one row with several values in a family; `labels` are the labels of its
/// key.
fn samples(
    start: &[u8],
    series: &MetricSeries,
    value: &FamilySamples,
    rows: &RawTable,
    row: usize,
    labels: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    for (cpu, bytes) in series.slots(rows, row).enumerate() {
        let key = labels.len();
        if series.is_percpu() {
            labels.extend_from_slice(b",cpu=\"");
            integer(labels, cpu);
            labels.push(b'"');
        }
        let mut sample = |labels: &[u8], base: usize| {
            out.extend_from_slice(start);
            out.extend_from_slice(labels);
            end(value, bytes, base, &series.context, out);
        };
        each_item(&value.arrays, 0, labels, &mut sample);
        labels.truncate(key);
    }
}

/// Ends the labels of a sample, and writes the number of the sample.
fn end(value: &FamilySamples, bytes: &[u8], base: usize, context: &Context, out: &mut Vec<u8>) {
    out.extend_from_slice(b"} ");
    value.scale.push(
        out,
        (value.leaf.kind, value.leaf.size),
        value.leaf.load(bytes, base),
        context,
    );
    out.push(b'\n');
}

/// Calls `sample` with the labels and the offset of each element of nested arrays.
pub fn each_item(
    arrays: &[Dimension],
    base: usize,
    labels: &mut Vec<u8>,
    sample: &mut impl FnMut(&[u8], usize),
) {
    let Some((array, inner)) = arrays.split_first() else {
        return sample(labels, base);
    };
    let outer = labels.len();
    for index in 0..array.len {
        labels.extend_from_slice(array.prefix.as_bytes());
        integer(labels, index);
        labels.push(b'"');
        each_item(inner, base + index * array.stride, labels, sample);
        labels.truncate(outer);
    }
}

#[cfg(test)]
mod tests;
