//! The formats that write a document as a tree, row after row.

use std::mem;
use std::sync::Arc;

use twinprobe_ebpf_common::metric::distribution::Distributions;
use twinprobe_ebpf_common::{Context, Direction, Head, RawTable, TableLayout, TableRow};

use super::encoder::DocumentEncoder;
use super::sink::DocumentSink;
use crate::aggregate::{Folded, Folder};
use crate::decode::addresses::KeyAddresses;
use crate::decode::decoder::Decoder;
use crate::decode::key::KeyPlan;
use crate::metric::Metric;
use twinprobe_ebpf_common::field::plan::Plan;

/// Writes one document in the format `S`.
pub struct Tree<S: DocumentSink> {
    sink: S,
    context: Arc<Context>,
    /// The direction that is open.
    direction: Option<Direction>,
    /// The metrics, and the number of metrics whose tables were asked for.
    metrics: Vec<Arc<Metric>>,
    begun: usize,
    current: Option<(Arc<Metric>, CurrentMetric<S>)>,
}

/// The plans by which the format `S` decodes the rows of a map.
struct TablePlans<S: DocumentSink> {
    /// The plan of the keys; `None` if the map has no keys.
    key: Option<KeyPlan<S::Label>>,
    addresses: KeyAddresses,
    value: Plan<S::Label>,
    /// The description for the inner maps of a map of maps.
    inner: Option<Arc<Self>>,
}

impl<S: DocumentSink> TablePlans<S> {
    /// Makes the plans. `folded` is the layout of the values that replace the values of all CPUs.
    fn new(layout: &TableLayout, folded: Option<&Folded>) -> Self {
        let has_keys = layout.kind.has_keys();
        let key = has_keys.then(|| KeyPlan::new(&layout.key, S::label));
        let addresses = if has_keys {
            KeyAddresses::new(&layout.key)
        } else {
            KeyAddresses::default()
        };
        let inner = layout
            .inner
            .as_ref()
            .map(|inner| Arc::new(Self::new(inner, folded)));
        let folded = folded.filter(|_| layout.kind.is_percpu());
        let value = folded.map_or(&layout.value, |folded| &folded.value);
        Self {
            key,
            addresses,
            value: Plan::new(value, S::label),
            inner,
        }
    }
}

/// The metric whose rows are being written.
struct CurrentMetric<S: DocumentSink> {
    layout: Arc<TableLayout>,
    tables: Arc<TablePlans<S>>,
    folder: Option<Folder>,
    /// The number of rows written so far.
    rows: usize,
    /// The distributions of a histogram's rows.
    distribution: Option<Box<Distributions>>,
    /// The distribution for the inner maps of a map of maps.
    inner: Option<Box<Self>>,
}

impl<S: DocumentSink> Tree<S> {
    /// Begins the document.
    pub fn new(head: &Head<'_>, context: Arc<Context>, out: &mut Vec<u8>) -> Self {
        let (sink, metrics) = (S::default(), Vec::new());
        let mut tree = Self {
            sink,
            context,
            direction: None,
            metrics,
            begun: 0,
            current: None,
        };
        tree.write(out, |tree| tree.sink.begin_document(head, &tree.context));
        tree
    }

    /// Calls `write` with the sink, which writes to the caller's buffer.
    fn write<T>(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Self) -> T) -> T {
        mem::swap(out, self.sink.buffer());
        let result = write(self);
        mem::swap(out, self.sink.buffer());
        result
    }

    fn close_metric(&mut self) {
        if let Some((metric, current)) = self.current.take() {
            let others = metric.others().map_or(0, |others| others.entries);
            self.sink.end_metric(
                &metric,
                current.rows as u64 + others,
                current.distribution.as_deref(),
            );
        }
    }

    fn open(&mut self, direction: Direction) {
        if self.direction == Some(direction) {
            return;
        }
        self.leave(Some(direction));
        self.sink.begin_direction(direction.name());
        self.direction = Some(direction);
    }

    /// Writes the sum of the entries that the document leaves out.
    fn others(&mut self, metric: &Metric) {
        let Some(others) = metric.others() else {
            return;
        };
        let folded = Folded::of(metric, &others.layout);
        let tables = Arc::new(TablePlans::new(&others.layout, folded.as_deref()));
        let mut current = CurrentMetric::new(metric, &others.layout, &tables);
        self.sink.begin_others(others.entries);
        let mut decoder = Decoder::new(&self.context);
        for row in others.rows.rows(&others.layout) {
            current.value(row, &mut decoder, &mut self.sink);
        }
        self.sink.end_others();
    }

    /// Ends the open direction. Writes the directions without metrics that come before `next`, or
    /// before the end.
    fn leave(&mut self, next: Option<Direction>) {
        if let Some(open) = self.direction {
            self.sink.end_direction(open.name());
        }
        for direction in Direction::ALL {
            if self.direction < Some(direction) && next.is_none_or(|next| direction < next) {
                self.sink.empty_direction(direction.name());
            }
        }
    }
}

impl<S: DocumentSink> DocumentEncoder for Tree<S> {
    fn add_metric(&mut self, metric: &Arc<Metric>) {
        let (last, direction) = (
            self.metrics.last().map(|metric| metric.direction),
            metric.direction,
        );
        assert!(
            last <= Some(direction),
            "metrics of the {} come first",
            direction.name()
        );
        self.metrics.push(Arc::clone(metric));
    }

    fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.write(out, Self::close_metric);
        let metric = self.metrics.get(self.begun).cloned()?;
        self.begun += 1;
        self.write(out, |tree| {
            tree.open(metric.direction);
            tree.sink.begin_metric(&metric);
            tree.others(&metric);
            tree.sink.begin_entries();
        });
        let folded = Folded::of(
            &metric,
            metric.layout.inner.as_ref().unwrap_or(&metric.layout),
        );
        let tables = metric
            .cache()
            .get(|| TablePlans::new(&metric.layout, folded.as_deref()));
        let current = CurrentMetric::new(&metric, &metric.layout, &tables);
        self.current = Some((metric, current));
        Some(self.begun - 1)
    }

    fn rows(&mut self, table: &RawTable, out: &mut Vec<u8>) {
        self.write(
            out,
            |Self {
                 sink,
                 context,
                 current,
                 ..
             }| {
                let Some((_, current)) = current else { return };
                let mut decoder = Decoder::new(context);
                for row in table.rows(&current.layout) {
                    current.row(row, &mut decoder, sink);
                }
            },
        );
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> u64 {
        self.write(out, |tree| {
            tree.close_metric();
            tree.leave(None);
            tree.sink.end_document();
        });
        0
    }
}

impl<S: DocumentSink> CurrentMetric<S> {
    fn new(metric: &Metric, layout: &Arc<TableLayout>, tables: &Arc<TablePlans<S>>) -> Self {
        let folder = Folder::of(metric, layout);
        let inner = layout.inner.as_ref().zip(tables.inner.as_ref());
        let inner = inner.map(|(layout, tables)| Box::new(Self::new(metric, layout, tables)));
        let distribution = metric
            .has_slots()
            .then(|| Box::new(Distributions::new(metric.layout.interface_bytes())));
        Self {
            layout: Arc::clone(layout),
            tables: Arc::clone(tables),
            folder,
            rows: 0,
            distribution,
            inner,
        }
    }

    // The function is inlined into the loop over the rows, in spite of the recursion.
    #[inline]
    fn row(&mut self, row: TableRow<'_>, decoder: &mut Decoder<'_>, sink: &mut S) {
        sink.begin_entry(self.rows);
        self.rows += 1;
        if let Some(plan) = &self.tables.key {
            sink.begin_key();
            decoder.key(plan, row.key, sink);
            sink.end_key();
            if let Some(owners) = decoder.owners()
                && !self.tables.addresses.is_empty()
            {
                sink.owners(self.tables.addresses.owners(row.key, owners));
            }
        }
        self.value(row, decoder, sink);
        sink.end_entry();
    }

    #[inline]
    fn value(&mut self, row: TableRow<'_>, decoder: &mut Decoder<'_>, sink: &mut S) {
        let TableRow { key, value, .. } = row;
        let tables = &*self.tables;
        sink.begin_value();
        let layout = &*self.layout;
        match &mut self.folder {
            _ if self.inner.is_some() => self.inner(row.inner, decoder, sink),
            Some(folder) => {
                let folded = folder.fold(value);
                self.distribution
                    .iter_mut()
                    .for_each(|all| all.add_entry(key, folded));
                decoder.value(&tables.value, folded, sink);
            }
            None if layout.kind.is_percpu() => {
                sink.begin_array();
                for (cpu, slot) in value.chunks_exact(layout.slot_stride()).enumerate() {
                    sink.begin_item(cpu);
                    let count = &slot[..layout.value.size];
                    self.distribution
                        .iter_mut()
                        .for_each(|all| all.add_entry(key, count));
                    decoder.value(&tables.value, slot, sink);
                    sink.end_item();
                }
                sink.end_array();
            }
            None => {
                self.distribution
                    .iter_mut()
                    .for_each(|all| all.add_entry(key, value));
                decoder.value(&tables.value, value, sink);
            }
        }
        sink.end_value();
    }

    /// Writes an inner map as a value.
    #[inline(never)]
    fn inner(&mut self, table: Option<&RawTable>, decoder: &mut Decoder<'_>, sink: &mut S) {
        let Some(inner) = &mut self.inner else { return };
        inner.rows = 0;
        sink.begin_inner(inner.layout.kind.name());
        for row in table
            .map(|table| table.rows(&inner.layout))
            .into_iter()
            .flatten()
        {
            inner.row(row, decoder, sink);
        }
        sink.end_inner();
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Aggregation, Layout, MapKind};

    use super::*;
    use crate::encode::json::Json;

    fn layout(kind: MapKind, inner: Option<Arc<TableLayout>>) -> TableLayout {
        let slots = if kind.is_percpu() { 2 } else { 1 };
        TableLayout {
            kind,
            key: Layout::unsigned(1),
            value: Layout::unsigned(8),
            slots,
            inner,
        }
    }

    /// Writes a document whose egress has one metric.
    fn egress(metric: Metric, table: &RawTable) -> String {
        let mut out = Vec::new();
        let mut tree = Tree::<Json>::new(&Head::default(), Arc::default(), &mut out);
        tree.add_metric(&Arc::new(
            metric.with(|head| head.direction = Direction::Egress),
        ));
        assert_eq!(tree.next_table(&mut out), Some(0));
        tree.rows(table, &mut out);
        assert_eq!(
            (tree.next_table(&mut out), tree.finish(&mut out)),
            (None, 0)
        );
        let text = String::from_utf8(out).expect("UTF-8");
        let (_, egress) = text
            .split_once("\"ingress\":{},\"egress\":")
            .expect("both directions");
        let (_, entries) = egress.split_once("\"entries\":").expect("entries");
        entries
            .strip_suffix("}}}")
            .expect("the end of the document")
            .to_owned()
    }

    #[test]
    fn values_of_cpus_are_a_list_or_one_number() {
        let values = [1_u64, 2]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let table = RawTable {
            keys: vec![7],
            values,
            ..RawTable::default()
        };
        let metric = Metric::example("m", layout(MapKind::PercpuHash, None));
        let summed = metric
            .clone()
            .with(|head| head.agg = Some(Aggregation::Sum));
        assert_eq!(egress(metric, &table), r#"[{"key":7,"value":[1,2]}]"#);
        assert_eq!(egress(summed, &table), r#"[{"key":7,"value":3}]"#);
    }

    #[test]
    fn a_map_in_a_map_is_a_value_with_entries_of_its_own() {
        let inner = Arc::new(layout(MapKind::Hash, None));
        let rows = |keys: &[u8]| RawTable {
            keys: keys.to_vec(),
            values: vec![0; 8 * keys.len()],
            inner: vec![],
        };
        let table = RawTable {
            inner: vec![rows(&[3, 4]), rows(&[])],
            ..rows(&[1, 2])
        };
        let metric = Metric::example("m", layout(MapKind::HashOfMaps, Some(inner)));
        let maps = [
            r#"[{"key":1,"value":{"type":"hash","entries":[{"key":3,"value":0},{"key":4,"value":0}]}},"#,
            r#"{"key":2,"value":{"type":"hash","entries":[]}}]"#,
        ];
        assert_eq!(egress(metric, &table), maps.concat());
    }
}
