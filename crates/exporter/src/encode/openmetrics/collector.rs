//! The encoder of an OpenMetrics document about one probe.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Direction, Head, Origin, RawTable};

use super::distinct::Seen;
use super::info::origins;
use super::page_encoder::PageEncoder;
use super::series::{Count, Series};
use crate::encode::encoder::{CHUNK, DocumentEncoder, Progress};
use crate::metric::Metric;

/// Gathers the raw rows of one document until they can be written.
#[derive(Debug, Default)]
pub struct Collector {
    probe: String,
    /// The origin of the numbers, if it is known.
    origin: Option<Origin>,
    context: Arc<Context>,
    skipped_before: u64,
    /// The metric that was begun last, with its rows so far.
    current: Option<(Direction, Arc<Metric>, RawTable)>,
    page: PageEncoder,
    /// The tables of the metrics that have ended: prepared, and without duplicates.
    tables: Vec<RawTable>,
    /// The table that is being written, if any, and its next row; `None` until the page has begun.
    position: Option<Option<(usize, usize)>>,
}

impl Collector {
    /// Begins the document. The format has no place for its head, except for the name of the probe and the origin.
    pub fn new(head: &Head<'_>, context: Arc<Context>) -> Self {
        Self { probe: head.probe.to_owned(), origin: head.origin.cloned(), context, ..Self::default() }
    }
}

impl DocumentEncoder for Collector {
    fn skipped_before(&mut self, skipped: u64) {
        self.skipped_before = skipped;
    }

    fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>) {
        self.end_metric(out);
        self.current = Some((direction, Arc::clone(metric), RawTable::default()));
    }

    fn rows(&mut self, table: &RawTable, _: &mut Vec<u8>) {
        let Some((_, metric, own)) = &mut self.current else { return };
        // Only complete entries are kept, because the next chunk begins with an entry.
        own.append(&table.slice(0, table.len(&metric.layout), &metric.layout));
    }

    fn end_metric(&mut self, _: &mut Vec<u8>) {
        let Some((direction, metric, table)) = self.current.take() else { return };
        let none = BTreeMap::new();
        let labels = self.origin.as_ref().map_or(&none, |origin| &origin.labels);
        let series = Series::new(&self.probe, labels, direction, &metric, Arc::clone(&self.context));
        let entries = table.len(&metric.layout);
        let prepared = series.prepare(Cow::Owned(table));
        let rows = series.len(&prepared);
        let (distinct, duplicates) = Seen::default().distinct(&series, prepared);
        let mut count = Count { rows, duplicates, surplus: 0, entries };
        self.tables.push(series.first(distinct, &mut count).into_owned());
        self.page.add(series, Some(count));
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Progress {
        self.end_metric(out);
        let Self { page, probe, origin, tables, skipped_before, .. } = self;
        let position = self.position.get_or_insert_with(|| {
            page.add_account(String::new(), *skipped_before);
            page.begin(&origins(origin.iter().map(|origin| (&**probe, origin))), out);
            None
        });
        while out.len() < CHUNK {
            if let Some((table, row)) = *position {
                let next = page.ready_rows(&tables[table], row, out);
                *position = (next > row).then_some((table, next));
            } else if let Some(table) = page.next_table(out) {
                *position = Some((table, 0));
            } else {
                return Progress::Done { skipped: page.finish(out).iter().sum() };
            }
        }
        Progress::More
    }
}
