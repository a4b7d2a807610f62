//! One reading of a metric, made ready to be walked once for each of its families.

use std::{
    borrow::Cow,
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use twinprobe_ebpf_common::RawTable;

use super::{
    flat::flatten,
    samples::Samples,
    text::{Labels, escaped},
};
use crate::{Context, Direction, Metric, aggregate::Folder, decode::Decoder};

#[derive(Debug)]
pub struct Source<'a> {
    pub metric: Arc<Metric>,
    pub samples: Arc<Samples>,
    /// `{probe="flows",direction="ingress"`
    pub labels: String,
    /// Whether values of the CPUs have been folded.
    folded: bool,
    table: Cow<'a, RawTable>,
    /// Rows whose labels an earlier row has already, in ascending order.
    duplicates: Vec<usize>,
}

impl<'a> Source<'a> {
    pub fn new(
        probe: &str,
        direction: Direction,
        metric: &Arc<Metric>,
        table: Cow<'a, RawTable>,
        context: &Context,
    ) -> Self {
        let mut labels = b"{probe=\"".to_vec();
        escaped(&mut labels, probe);
        labels.extend_from_slice(b"\",direction=\"");
        labels.extend_from_slice(direction.name().as_bytes());
        labels.push(b'"');
        let (metric, table) = flatten(metric, table);
        let samples = metric.plans.samples.get_or_init(|| Arc::new(Samples::new(&metric)));
        let mut source = Self {
            samples: Arc::clone(samples),
            metric: Arc::clone(&metric),
            labels: String::from_utf8_lossy(&labels).into_owned(),
            folded: false,
            table,
            duplicates: Vec::new(),
        };
        source.fold();
        source.duplicates = source.find_duplicates(context);
        source
    }

    /// Aggregates once, not once for each family.
    fn fold(&mut self) {
        let layout = &*self.metric.layout;
        let Some(agg) = self.metric.agg.filter(|_| layout.kind.is_percpu()) else { return };
        let mut folder = Folder::new(agg, layout, self.metric.plans.leaves(layout));
        let mut folded = RawTable::default();
        for (key, value) in self.table.entries(layout) {
            folded.keys.extend_from_slice(key);
            folded.values.extend_from_slice(folder.fold(value));
        }
        self.table = Cow::Owned(folded);
        self.folded = true;
    }

    /// Keys that differ in padding, or in what a rendering does not show, and keys that were read twice from a
    /// map that changed meanwhile.
    fn find_duplicates(&self, context: &Context) -> Vec<usize> {
        // Two hashes, keyed at random: a collision would lose a sample, and packets can choose their keys.
        let hashers = [RandomState::new(), RandomState::new()];
        let mut seen = HashSet::with_capacity(self.len());
        let mut decoder = Decoder::new(context);
        let mut labels = Vec::new();
        (0..self.len())
            .filter(|&row| {
                labels.clear();
                self.key_labels(row, &mut decoder, &mut labels);
                !seen.insert(hashers.each_ref().map(|hasher| hasher.hash_one(&labels)))
            })
            .collect()
    }

    fn value_stride(&self) -> usize {
        if self.folded { self.metric.layout.value.size } else { self.metric.layout.value_stride() }
    }

    /// Rows, duplicates included.
    pub fn len(&self) -> usize {
        let layout = &*self.metric.layout;
        if !self.folded {
            return self.table.len(layout);
        }
        // An array of CPUs without any has rows without values.
        self.table.values.len().checked_div(self.value_stride()).unwrap_or(0)
    }

    pub fn is_duplicate(&self, row: usize) -> bool {
        !self.duplicates.is_empty() && self.duplicates.binary_search(&row).is_ok()
    }

    pub fn key(&self, row: usize) -> &[u8] {
        let layout = &*self.metric.layout;
        if layout.kind.has_keys() {
            &self.table.keys[row * layout.key.size..][..layout.key.size]
        } else {
            &[]
        }
    }

    /// The values of one row: one, or one per CPU.
    pub fn slots(&self, row: usize) -> impl Iterator<Item = &[u8]> {
        let stride = self.value_stride();
        let slot = if self.folded { stride } else { self.metric.layout.slot_stride() };
        let count = if self.is_percpu() { self.metric.layout.slots } else { 1 };
        self.table.values[row * stride..][..stride].chunks_exact(slot).take(count)
    }

    /// Whether there is one value for each CPU.
    pub fn is_percpu(&self) -> bool {
        self.metric.layout.kind.is_percpu() && !self.folded
    }

    pub fn key_labels(&self, row: usize, decoder: &mut Decoder<'_>, out: &mut Vec<u8>) {
        let key = self.key(row);
        for label in &self.samples.keys {
            out.extend_from_slice(label.prefix.as_bytes());
            let field = &label.field;
            decoder.field(field, &key[field.offset..][..field.size], &mut Labels(out));
            out.push(b'"');
        }
    }

    /// Values, with one per CPU where they are not folded.
    fn values(&self, rows: usize) -> u64 {
        let slots = if self.is_percpu() { self.metric.layout.slots } else { 1 };
        (rows as u64).saturating_mul(slots as u64)
    }

    /// The numbers of one member in all rows that can be written.
    pub fn count(&self, value: usize) -> u64 {
        let rows = self.len() - self.duplicates.len();
        self.values(rows).saturating_mul(self.samples.values[value].count())
    }

    /// What can't be samples, whatever its family is called.
    pub fn unfit(&self) -> u64 {
        let unfit = self.values(self.len()).saturating_mul(self.samples.unfit);
        unfit.saturating_add(self.values(self.duplicates.len()).saturating_mul(self.samples.fit()))
    }
}
