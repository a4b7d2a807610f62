//! A metric of one probe and direction as samples: what is the same for all its rows.

use std::{borrow::Cow, sync::Arc};

use twinprobe_ebpf_common::{Context, Direction, RawTable};

use super::flat::{flat, flatten};
use super::samples::Samples;
use super::text::{Labels, escaped};
use crate::aggregate::fold::Folder;
use crate::decode::decoder::Decoder;
use crate::metric::Metric;

#[derive(Debug)]
pub struct Series {
    /// As it was given.
    original: Arc<Metric>,
    /// The same, with the maps in its map as one table.
    pub metric: Arc<Metric>,
    pub samples: Arc<Samples>,
    /// `{probe="flows",direction="ingress"`
    pub labels: String,
    pub context: Arc<Context>,
    /// Whether the values of the CPUs are folded into one.
    folded: bool,
    /// Numbers of each row that have no family.
    pub nameless: u64,
}

/// What has come of a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Duplicates included.
    pub rows: usize,
    /// Rows whose labels an earlier one had.
    pub duplicates: usize,
}

impl Series {
    pub fn new(probe: &str, direction: Direction, metric: &Arc<Metric>, context: Arc<Context>) -> Self {
        let mut labels = b"{probe=\"".to_vec();
        escaped(&mut labels, probe);
        labels.extend_from_slice(b"\",direction=\"");
        labels.extend_from_slice(direction.name().as_bytes());
        labels.push(b'"');
        let original = Arc::clone(metric);
        let metric = flat(metric);
        let samples = metric.plans.get(|| Samples::new(&metric));
        let labels = String::from_utf8_lossy(&labels).into_owned();
        let folded = metric.agg.is_some() && metric.layout.kind.is_percpu();
        Self { original, metric, samples, labels, context, folded, nameless: 0 }
    }

    /// Rows as they were read, made ready for the other functions: flat, and aggregated.
    pub fn prepare<'a>(&self, rows: Cow<'a, RawTable>) -> Cow<'a, RawTable> {
        let rows = flatten(&self.original, rows);
        let layout = &*self.metric.layout;
        let Some(mut folder) = Folder::of(&self.metric, layout) else { return rows };
        let mut folded = RawTable::default();
        for (key, value) in rows.entries(layout) {
            folded.keys.extend_from_slice(key);
            folded.values.extend_from_slice(folder.fold(value));
        }
        Cow::Owned(folded)
    }

    fn value_stride(&self) -> usize {
        if self.folded { self.metric.layout.value.size } else { self.metric.layout.value_stride() }
    }

    pub fn len(&self, rows: &RawTable) -> usize {
        let layout = &*self.metric.layout;
        if !self.folded {
            return rows.len(layout);
        }
        // An array of CPUs without any has rows without values.
        rows.values.len().checked_div(self.value_stride()).unwrap_or(0)
    }

    pub fn key<'a>(&self, rows: &'a RawTable, row: usize) -> &'a [u8] {
        let layout = &*self.metric.layout;
        if layout.kind.has_keys() { &rows.keys[row * layout.key.size..][..layout.key.size] } else { &[] }
    }

    /// All bytes of the values of one row.
    pub fn value<'a>(&self, rows: &'a RawTable, row: usize) -> &'a [u8] {
        let stride = self.value_stride();
        &rows.values[row * stride..][..stride]
    }

    /// The values of one row: one, or one per CPU.
    pub fn slots<'a>(&self, rows: &'a RawTable, row: usize) -> impl Iterator<Item = &'a [u8]> {
        let slot = if self.folded { self.value_stride() } else { self.metric.layout.slot_stride() };
        self.value(rows, row).chunks_exact(slot).take(self.cpus())
    }

    /// Whether there is one value for each CPU.
    pub fn is_percpu(&self) -> bool {
        self.metric.layout.kind.is_percpu() && !self.folded
    }

    /// Values of one row.
    pub fn cpus(&self) -> usize {
        if self.is_percpu() { self.metric.layout.slots } else { 1 }
    }

    pub fn key_labels(&self, key: &[u8], decoder: &mut Decoder<'_>, out: &mut Vec<u8>) {
        for label in &self.samples.keys {
            out.extend_from_slice(label.prefix.as_bytes());
            let field = &label.field;
            decoder.field(field, &key[field.offset..][..field.size], &mut Labels(out));
            out.push(b'"');
        }
    }

    /// Numbers and texts of such a table that are no samples.
    pub fn skipped(&self, count: Count) -> u64 {
        let values = |rows: usize| (rows as u64).saturating_mul(self.cpus() as u64);
        let unfit = values(count.rows).saturating_mul(self.samples.unfit);
        let alike = values(count.duplicates).saturating_mul(self.samples.fit());
        let nameless = values(count.rows - count.duplicates).saturating_mul(self.nameless);
        unfit.saturating_add(alike).saturating_add(nameless)
    }
}
