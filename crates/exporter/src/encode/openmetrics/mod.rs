//! OpenMetrics 1.0: numbers become samples, keys become labels.
//!
//! - A value that is a number is one family, called like its metric; of a struct, each number has a family of
//!   its own, called `metric_member`. Booleans are 0 and 1, enums their number, times and flags the number they
//!   are stored as. Texts, addresses and blobs are no numbers: they are left out and counted.
//! - Labels are `probe`, `direction`, the parts of the key (`key` if it has no parts), `cpu` where values are
//!   not aggregated, and `index`, `index1`, ... for arrays. A part of the key that has one of these names is
//!   prefixed with `key_`.
//! - What is reset with each window is a gauge. What is never reset is a counter if its name ends in `_total`,
//!   else `unknown` or, read live, a gauge.
//! - An array tagged `histogram` is one: slot `i` counts the values whose highest bit is `i`, hence up to
//!   `le = 2^(i+1) - 1`. Its buckets come without `_count` and `_sum`: the sum is not known, and the
//!   specification wants both or none.
//! - Of a map of maps, the entries of the maps in it: labels are the parts of the outer key, then those of the
//!   inner one, called `inner` or `inner_part`.
//! - Rows whose labels are equal (of keys that differ in padding, say) can't be told apart: all but the first
//!   are left out and counted.

mod family;
mod flat;
mod histogram;
mod page;
mod samples;
mod source;
mod text;

use std::{borrow::Cow, io, mem, sync::Arc};

use twinprobe_ebpf_common::RawTable;

use super::{Encoded, Progress};
use crate::{Context, Direction, Document, Head, Metric};
use page::Page;
pub use samples::Samples;
use source::Source;

/// Writes one page about several probes: families of one name are merged. `own` holds further families,
/// rendered, without `# EOF`; their names are not given to others. `skipped_before` is what earlier pages left
/// out, so that the counter at the end only grows.
pub fn encode_openmetrics_all(
    documents: &[Document],
    context: &Context,
    own: &str,
    skipped_before: u64,
    out: &mut impl io::Write,
) -> io::Result<Encoded> {
    let sources = documents
        .iter()
        .flat_map(|document| document.tables().map(move |(direction, table)| (document, direction, table)))
        .map(|(document, direction, table)| {
            Source::new(&document.probe, direction, &table.metric, Cow::Borrowed(&table.table), context)
        })
        .collect();
    let mut page = Page::new(sources, own, skipped_before);
    let mut buffer = own.as_bytes().to_vec();
    if !own.is_empty() && !own.ends_with('\n') {
        buffer.push(b'\n');
    }
    loop {
        let progress = page.write(context, &mut buffer);
        out.write_all(&buffer)?;
        buffer.clear();
        if let Progress::Done(encoded) = progress {
            return Ok(encoded);
        }
    }
}

/// Gathers the raw rows of one document until they can be written.
#[derive(Debug)]
pub struct Collector {
    probe: String,
    context: Arc<Context>,
    skipped_before: u64,
    current: Option<(Direction, Arc<Metric>, RawTable)>,
    sources: Vec<Source<'static>>,
    page: Option<Page<'static>>,
}

impl Collector {
    pub fn new(head: &Head<'_>, context: Arc<Context>) -> Self {
        let probe = head.probe.to_owned();
        Self { probe, context, skipped_before: 0, current: None, sources: Vec::new(), page: None }
    }

    pub const fn skipped_before(&mut self, skipped: u64) {
        self.skipped_before = skipped;
    }

    pub fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>) {
        self.end_metric(out);
        self.current = Some((direction, Arc::clone(metric), RawTable::default()));
    }

    pub fn rows(&mut self, rows: &RawTable, _: &mut Vec<u8>) {
        let Some((_, metric, table)) = &mut self.current else { return };
        // Complete entries only: the next chunk begins with one.
        let count = rows.len(&metric.layout);
        if metric.layout.kind.has_keys() {
            table.keys.extend_from_slice(&rows.keys[..count * metric.layout.key.size]);
        }
        table.values.extend_from_slice(&rows.values[..count * metric.layout.value_stride()]);
        table.inner.extend(rows.inner.iter().take(count).cloned());
    }

    pub fn end_metric(&mut self, _: &mut Vec<u8>) {
        if let Some((direction, metric, table)) = self.current.take() {
            let table = Cow::Owned(table);
            self.sources.push(Source::new(&self.probe, direction, &metric, table, &self.context));
        }
    }

    pub fn finish(&mut self, out: &mut Vec<u8>) -> Progress {
        self.end_metric(out);
        let Self { page, sources, skipped_before, context, .. } = self;
        let page = page.get_or_insert_with(|| Page::new(mem::take(sources), "", *skipped_before));
        page.write(context, out)
    }
}
