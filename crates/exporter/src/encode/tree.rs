//! The formats that write a document as a tree, row after row.

use std::{
    mem,
    sync::{Arc, OnceLock},
};

use twinprobe_ebpf_common::{RawTable, Row, TableLayout};

use super::{Encoded, Progress};
use crate::{
    Context, Direction, Head, Metric, Plans,
    aggregate::Folder,
    decode::{Decoder, ValueSink},
    plans::Tables,
};

/// A format: what surrounds the values.
pub trait DocumentSink: ValueSink {
    /// Where it writes; the caller's while it is called.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Where a metric keeps this format's plans.
    fn plans(plans: &Plans) -> &OnceLock<Arc<Tables<Self::Label>>>;

    fn begin_document(&mut self, head: &Head<'_>);
    fn end_document(&mut self);
    fn begin_direction(&mut self, name: &str);
    fn end_direction(&mut self, name: &str);
    fn empty_direction(&mut self, name: &str) {
        self.begin_direction(name);
        self.end_direction(name);
    }
    fn begin_metric(&mut self, index: usize, metric: &Metric);
    fn end_metric(&mut self);
    fn begin_entry(&mut self, index: usize);
    fn begin_key(&mut self);
    fn end_key(&mut self);
    fn begin_value(&mut self);
    /// The value is a map of this type, whose entries follow.
    fn begin_inner(&mut self, kind: &str);
    fn end_inner(&mut self);
    fn end_value(&mut self);
    fn end_entry(&mut self);
}

pub struct Tree<S: DocumentSink> {
    sink: S,
    context: Arc<Context>,
    /// The one that is open, with the number of its metrics.
    direction: Option<Direction>,
    metrics: usize,
    current: Option<Current<S::Label>>,
}

/// The metric whose rows are being written.
struct Current<L> {
    layout: Arc<TableLayout>,
    tables: Arc<Tables<L>>,
    folder: Option<Folder>,
    rows: usize,
    /// For the maps in a map of maps.
    inner: Option<Box<Self>>,
}

impl<S: DocumentSink> Tree<S> {
    pub fn new(sink: S, head: &Head<'_>, context: Arc<Context>, out: &mut Vec<u8>) -> Self {
        let mut tree = Self { sink, context, direction: None, metrics: 0, current: None };
        tree.write(out, |tree| tree.sink.begin_document(head));
        tree
    }

    pub fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>) {
        self.write(out, |tree| {
            tree.close_metric();
            tree.open(direction);
            tree.sink.begin_metric(tree.metrics, metric);
            tree.metrics += 1;
        });
        let layout = &metric.layout;
        let tables = S::plans(&metric.plans).get_or_init(|| Arc::new(Tables::new(layout, S::label)));
        self.current = Some(Current::new(metric, layout, tables));
    }

    pub fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        let Some(current) = &self.current else { return };
        let layout = Arc::clone(&current.layout);
        self.some_rows(&mut rows.rows(&layout), out, usize::MAX);
    }

    /// Until `out` has `limit` bytes, or, with false, all.
    pub fn some_rows<'a>(
        &mut self,
        rows: &mut impl Iterator<Item = Row<'a>>,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> bool {
        self.write(out, |Self { sink, context, current, .. }| {
            let Some(current) = current else { return false };
            let mut decoder = Decoder::new(context);
            for row in rows {
                current.row(row, &mut decoder, sink);
                if sink.buffer().len() >= limit {
                    return true;
                }
            }
            false
        })
    }

    pub fn end_metric(&mut self, out: &mut Vec<u8>) {
        self.write(out, Self::close_metric);
    }

    pub fn finish(&mut self, out: &mut Vec<u8>) -> Progress {
        self.write(out, |tree| {
            tree.close_metric();
            tree.leave(None);
            tree.sink.end_document();
        });
        Progress::Done(Encoded::default())
    }

    /// Lends the caller's buffer to the sink, which writes more simply to one of its own.
    fn write<T>(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Self) -> T) -> T {
        mem::swap(out, self.sink.buffer());
        let result = write(self);
        mem::swap(out, self.sink.buffer());
        result
    }

    fn close_metric(&mut self) {
        if self.current.take().is_some() {
            self.sink.end_metric();
        }
    }

    fn open(&mut self, direction: Direction) {
        if self.direction == Some(direction) {
            return;
        }
        assert!(self.direction < Some(direction), "metrics of the {} come first", direction.name());
        self.leave(Some(direction));
        self.sink.begin_direction(direction.name());
        self.direction = Some(direction);
        self.metrics = 0;
    }

    /// Ends the open direction; those between it and `next`, or the end, have no metrics.
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

impl<L> Current<L> {
    fn new(metric: &Metric, layout: &Arc<TableLayout>, tables: &Arc<Tables<L>>) -> Self {
        let folder = metric
            .agg
            .filter(|_| layout.kind.is_percpu())
            .map(|agg| Folder::new(agg, layout, metric.plans.leaves(layout)));
        let inner = layout.inner.as_ref().zip(tables.inner.as_ref());
        let inner = inner.map(|(layout, tables)| Box::new(Self::new(metric, layout, tables)));
        Self { layout: Arc::clone(layout), tables: Arc::clone(tables), folder, rows: 0, inner }
    }

    // Into the loop over the rows, in spite of the recursion.
    #[inline]
    fn row<S: DocumentSink<Label = L>>(&mut self, row: Row<'_>, decoder: &mut Decoder<'_>, sink: &mut S) {
        let Row { key, value, .. } = row;
        let tables = &*self.tables;
        sink.begin_entry(self.rows);
        self.rows += 1;
        if let Some(plan) = &tables.key {
            sink.begin_key();
            decoder.value(plan, key, sink);
            sink.end_key();
        }
        sink.begin_value();
        let layout = &*self.layout;
        match &mut self.folder {
            _ if self.inner.is_some() => self.inner(row.inner, decoder, sink),
            Some(folder) => decoder.value(&tables.value, folder.fold(value), sink),
            None if layout.kind.is_percpu() => {
                sink.begin_array();
                for (cpu, slot) in value.chunks_exact(layout.slot_stride()).enumerate() {
                    sink.begin_item(cpu);
                    decoder.value(&tables.value, slot, sink);
                    sink.end_item();
                }
                sink.end_array();
            }
            None => decoder.value(&tables.value, value, sink),
        }
        sink.end_value();
        sink.end_entry();
    }

    /// A map as a value.
    #[inline(never)]
    fn inner<S: DocumentSink<Label = L>>(
        &mut self,
        table: Option<&RawTable>,
        decoder: &mut Decoder<'_>,
        sink: &mut S,
    ) {
        let Some(inner) = &mut self.inner else { return };
        let layout = Arc::clone(&inner.layout);
        inner.rows = 0;
        sink.begin_inner(layout.kind.name());
        for row in table.into_iter().flat_map(|table| table.rows(&layout)) {
            inner.row(row, decoder, sink);
        }
        sink.end_inner();
    }
}
