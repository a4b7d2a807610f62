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
//! - Families of one name, of several probes or of both directions, are one. If their types differ it is `unknown`;
//!   its help is the first there is. Two tables of one probe and direction can't share a name: what comes second is
//!   left out and counted, and so are families that are called like one of the daemon's own.
//! - Rows whose labels are equal (of keys that differ in padding, say) can't be told apart: all but the first
//!   are left out and counted.

mod distinct;
mod family;
mod flat;
mod histogram;
mod page;
mod samples;
mod series;
mod text;

use std::{borrow::Cow, sync::Arc};

use twinprobe_ebpf_common::RawTable;

use super::{CHUNK, Encoded, Progress};
use crate::{Context, Direction, Head, Metric};
use distinct::Seen;
use page::{Account, Page};
pub use samples::Samples;
use series::{Count, Series};

/// Writes one page about several probes: families of one name are merged. Nothing is kept of the tables, which are
/// asked for again for each family that they have a part in:
///
/// ```text
/// new, (add_probe, add_metric...)..., begin, (next_table, rows... or abandon)..., finish
/// ```
///
/// Each call appends to the caller's buffer, which can be handed on and emptied between any two calls.
#[derive(Debug, Default)]
pub struct PageEncoder {
    page: Page,
    probe: String,
}

impl PageEncoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// `skipped_before` is what earlier pages left out, so that the counter at the end only grows.
    pub fn add_probe(&mut self, probe: &str, skipped_before: u64) {
        self.probe = probe.to_owned();
        let mut labels = b"{probe=\"".to_vec();
        text::escaped(&mut labels, probe);
        labels.extend_from_slice(b"\"}");
        let labels = String::from_utf8_lossy(&labels).into_owned();
        self.page.add_account(Account { labels, before: skipped_before, skipped: 0 });
    }

    /// A metric of the probe added last; returns what [`Self::next_table`] calls it. In its table no key comes
    /// twice, but for tries that are read live.
    pub fn add_metric(&mut self, direction: Direction, metric: &Arc<Metric>, context: Arc<Context>) -> usize {
        self.page.add(Series::new(&self.probe, direction, metric, context), None)
    }

    /// Once all metrics have been added. `own` holds further families, rendered, without `# EOF`; their names are
    /// not given to others.
    pub fn begin(&mut self, own: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(own.as_bytes());
        if !own.is_empty() && !own.ends_with('\n') {
            out.push(b'\n');
        }
        self.page.begin(own);
    }

    /// Ends the table before. The one whose rows come next, from the first one; `None` before the end of the page.
    pub fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.page.next(out)
    }

    /// Any number of complete entries of that table. What `out` grows by is in proportion to them.
    pub fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        self.page.rows(rows, out);
    }

    /// The rest of that table can't be had. Samples that have been written stay; it is not asked for again.
    pub fn abandon(&mut self) {
        self.page.abandon();
    }

    /// What was left out, by probe.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Encoded> {
        self.page.finish(out).iter().map(|account| Encoded { skipped: account.skipped }).collect()
    }
}

/// Gathers the raw rows of one document until they can be written.
#[derive(Debug)]
pub struct Collector {
    probe: String,
    context: Arc<Context>,
    account: Account,
    current: Option<(Direction, Arc<Metric>, RawTable)>,
    page: Page,
    /// Prepared, and without duplicates.
    tables: Vec<RawTable>,
    /// Once the page has begun: the table that is being written and its next row.
    position: Option<Option<(usize, usize)>>,
}

impl Collector {
    pub fn new(head: &Head<'_>, context: Arc<Context>) -> Self {
        Self {
            probe: head.probe.to_owned(),
            context,
            account: Account::default(),
            current: None,
            page: Page::default(),
            tables: Vec::new(),
            position: None,
        }
    }

    pub const fn skipped_before(&mut self, skipped: u64) {
        self.account.before = skipped;
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
        let Some((direction, metric, table)) = self.current.take() else { return };
        let series = Series::new(&self.probe, direction, &metric, Arc::clone(&self.context));
        let prepared = series.prepare(Cow::Owned(table));
        let rows = series.len(&prepared);
        let (distinct, duplicates) = Seen::default().distinct(&series, prepared);
        self.tables.push(distinct.into_owned());
        self.page.add(series, Some(Count { rows, duplicates }));
    }

    pub fn finish(&mut self, out: &mut Vec<u8>) -> Progress {
        self.end_metric(out);
        let Self { page, tables, account, .. } = self;
        let position = self.position.get_or_insert_with(|| {
            page.add_account(account.clone());
            page.begin("");
            None
        });
        while out.len() < CHUNK {
            if let Some((table, row)) = *position {
                let next = page.ready_rows(&tables[table], row, out);
                *position = (next > row).then_some((table, next));
            } else if let Some(table) = page.next(out) {
                *position = Some((table, 0));
            } else {
                let skipped = page.finish(out).iter().map(|account| account.skipped).sum();
                return Progress::Done(Encoded { skipped });
            }
        }
        Progress::More
    }
}
