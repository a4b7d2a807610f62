//! A page: family after family, and for each the tables that have a part in it, one after the other.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Direction, Head, RawTable, Temporality};

use super::distinct::{Seen, is_certain};
use super::family::{Family, families, reserved};
use super::fill::{self, SKIPPED};
use super::histogram::Histogram;
use super::samples::{Dimension, Value};
use super::series::{Count, Series};
use super::text::{escaped, integer, number};
use crate::decode::decoder::Decoder;
use crate::encode::encoder::CHUNK;
use crate::metric::Metric;

/// The counter of numbers and texts that were left out: those of one document, or of one probe of a page.
#[derive(Debug)]
struct Account {
    /// The labels of the counter: empty, or `{probe="flows"}`.
    labels: String,
    /// The number that earlier pages left out.
    before: u64,
    /// The number that this page leaves out; known once it is finished.
    skipped: u64,
}

/// A table that has a part in the page.
#[derive(Debug)]
struct Table {
    series: Series,
    /// The place of the account that counts its losses.
    account: usize,
    /// The counts of the table's rows; `None` until they have been counted.
    count: Option<Count>,
    /// True if no two rows can have the same labels.
    certain: bool,
    /// True if the table's rows could not be read to their end.
    abandoned: bool,
}

impl Table {
    /// Tells whether rows of the next walk may have the same labels.
    fn may_repeat(&self) -> bool {
        let same_again = self.series.metric.temporality != Temporality::Live;
        let none_before = self.count.is_some_and(|count| count.duplicates == 0);
        !(self.certain || same_again && none_before)
    }
}

/// One walk over the rows of a table.
#[derive(Debug, Default)]
struct Walk {
    /// The place of the table.
    table: usize,
    /// The part of the rows that is written; `None` if they are only counted.
    member: Option<Member>,
    count: Count,
    /// The labels that the walk has met; `None` if no two rows can have the same labels.
    seen: Option<Seen>,
}

/// A value of a table in its family.
#[derive(Debug)]
struct Member {
    /// The place of the family.
    family: usize,
    /// The place of the value in the samples of the table.
    value: usize,
    /// The counts of a histogram, whose buckets are written at the end of the walk.
    histogram: Option<Histogram>,
}

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
    /// The name of the probe that was added last, and the labels of its configuration.
    probe: String,
    labels: BTreeMap<String, String>,
    tables: Vec<Table>,
    families: Vec<Family>,
    accounts: Vec<Account>,
    /// The places of the family and of its member that come next, and, once the families are done, of the table.
    next: (usize, usize, usize),
    walk: Option<Walk>,
}

impl PageEncoder {
    /// Makes an empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a probe. `skipped_before` is the number of numbers and texts that earlier pages left out, so that the
    /// counter at the end of the page never decreases.
    pub fn add_probe(&mut self, head: &Head<'_>, skipped_before: u64) {
        let Head { probe, origin, .. } = *head;
        self.probe = probe.to_owned();
        self.labels = origin.map(|origin| origin.labels.clone()).unwrap_or_default();
        let mut labels = b"{probe=\"".to_vec();
        escaped(&mut labels, probe);
        labels.extend_from_slice(b"\"}");
        self.add_account(String::from_utf8_lossy(&labels).into_owned(), skipped_before);
    }

    /// Adds a metric of the probe that was added last. Returns the number by which [`Self::next_table`] asks for it. In
    /// its table no key comes twice, unless it is a trie that is read live.
    pub fn add_metric(&mut self, direction: Direction, metric: &Arc<Metric>, context: Arc<Context>) -> usize {
        let series = Series::new(&self.probe, &self.labels, direction, metric, context);
        self.add(series, None)
    }

    /// Adds an account, to which the tables that are added next belong.
    pub(super) fn add_account(&mut self, labels: String, before: u64) {
        self.accounts.push(Account { labels, before, skipped: 0 });
    }

    /// Adds a table; returns its place. `count` is given for tables whose duplicates have been taken out already.
    pub(super) fn add(&mut self, series: Series, count: Option<Count>) -> usize {
        let account = self.accounts.len().saturating_sub(1);
        let certain = is_certain(&series);
        self.tables.push(Table { series, account, count, certain, abandoned: false });
        self.tables.len() - 1
    }

    /// Begins the page, once all metrics have been added. `own` holds further families, already written and without
    /// `# EOF`; their names are not given to others.
    pub fn begin(&mut self, own: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(own.as_bytes());
        if !own.is_empty() && !own.ends_with('\n') {
            out.push(b'\n');
        }
        let mut taken = reserved(own);
        taken.extend(reserved(SKIPPED));
        taken.extend(reserved(&fill::metadata()));
        let all: Vec<&Series> = self.tables.iter().map(|table| &table.series).collect();
        let (families, nameless) = families(&all, &taken);
        self.families = families;
        for (table, value) in nameless {
            let series = &mut self.tables[table].series;
            series.nameless = series.nameless.saturating_add(series.samples.values[value].count());
        }
    }

    /// Ends the previous table. Returns the number of the table whose rows come next, from the first row on; `None` if
    /// only the end of the page is left.
    pub fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.end_table(out);
        let (at, member, uncounted) = &mut self.next;
        while let Some(family) = self.families.get(*at) {
            if *member == 0 {
                metadata(family, &self.tables, out);
            }
            let Some(&(table, value)) = family.members.get(*member) else {
                (*at, *member) = (*at + 1, 0);
                continue;
            };
            *member += 1;
            if self.tables[table].abandoned {
                continue;
            }
            let histogram = family.kind.is_histogram().then(Histogram::default);
            let seen = self.tables[table].may_repeat().then(Seen::default);
            let member = Some(Member { family: *at, value, histogram });
            self.walk = Some(Walk { table, member, seen, ..Walk::default() });
            return Some(table);
        }
        while let Some(Table { count, abandoned, .. }) = self.tables.get(*uncounted) {
            *uncounted += 1;
            if count.is_none() && !abandoned {
                self.walk = Some(Walk { table: *uncounted - 1, ..Walk::default() });
                return Some(*uncounted - 1);
            }
        }
        None
    }

    /// Writes the complete entries of `rows`, a part of the table that [`Self::next_table`] returned. `out` grows in
    /// proportion to the entries.
    pub fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        let Some(walk) = &mut self.walk else { return };
        let series = &self.tables[walk.table].series;
        walk.count.entries += rows.len(&series.original.layout);
        let mut rows = series.prepare(Cow::Borrowed(rows));
        walk.count.rows += series.len(&rows);
        if let Some(seen) = &mut walk.seen {
            let (distinct, duplicates) = seen.distinct(series, rows);
            (rows, walk.count.duplicates) = (distinct, walk.count.duplicates + duplicates);
        }
        rows = series.first(rows, &mut walk.count);
        let mut row = 0;
        while row < series.len(&rows) {
            row = write(&self.families, walk, series, &rows, row, out);
        }
    }

    /// Writes rows that are prepared and have no duplicates, from `row` until there is a chunk to be handed on. Returns
    /// the next row.
    pub(super) fn ready_rows(&mut self, rows: &RawTable, row: usize, out: &mut Vec<u8>) -> usize {
        let Some(walk) = &mut self.walk else { return usize::MAX };
        write(&self.families, walk, &self.tables[walk.table].series, rows, row, out)
    }

    /// Gives up the rest of the table that [`Self::next_table`] returned, because it can't be read. Samples that have
    /// been written stay; the table is not asked for again.
    pub fn abandon(&mut self) {
        if let Some(walk) = self.walk.take() {
            self.tables[walk.table].abandoned = true;
        }
    }

    fn end_table(&mut self, out: &mut Vec<u8>) {
        let Some(Walk { table, member, count, .. }) = self.walk.take() else { return };
        let table = &mut self.tables[table];
        if let Some(Member { family, histogram: Some(histogram), .. }) = member {
            histogram.write(&self.families[family].name, &table.series, out);
        }
        table.count.get_or_insert(count);
    }

    /// Ends the page. Returns the number of omitted numbers and texts of each probe, in the order in which the probes
    /// were added.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Vec<u64> {
        for Table { series, account, count, .. } in &self.tables {
            if let (Some(account), Some(count)) = (self.accounts.get_mut(*account), count) {
                account.skipped = account.skipped.saturating_add(series.skipped(*count));
            }
        }
        let counted = self.tables.iter().filter(|table| !table.abandoned);
        let counted = counted.filter_map(|table| Some((&table.series, table.count?.entries)));
        fill::write(&counted.collect::<Vec<_>>(), out);
        out.extend_from_slice(SKIPPED.as_bytes());
        for Account { labels, before, skipped } in &self.accounts {
            out.extend_from_slice(b"twinprobe_export_skipped_total");
            out.extend_from_slice(labels.as_bytes());
            out.push(b' ');
            integer(out, before.saturating_add(*skipped));
            out.push(b'\n');
        }
        out.extend_from_slice(b"# EOF\n");
        self.accounts.iter().map(|account| account.skipped).collect()
    }
}

/// Writes the metadata of a family, which come before its samples.
fn metadata(family: &Family, tables: &[Table], out: &mut Vec<u8>) {
    for part in ["# TYPE ", family.base(), " ", family.kind.name(), "\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let mut helps = family.members.iter().map(|(table, _)| &*tables[*table].series.metric.help);
    if let Some(help) = helps.find(|help| !help.is_empty()) {
        for part in ["# HELP ", family.base(), " "] {
            out.extend_from_slice(part.as_bytes());
        }
        escaped(out, help);
        out.push(b'\n');
    }
}

/// Writes the samples of prepared rows, from `row` until there is a chunk to be handed on. Returns the next row.
fn write(
    families: &[Family],
    walk: &mut Walk,
    series: &Series,
    rows: &RawTable,
    mut row: usize,
    out: &mut Vec<u8>,
) -> usize {
    let len = series.len(rows);
    let Some(Member { family, value, histogram }) = &mut walk.member else { return len };
    let value = &series.samples.values[*value];
    if row >= len {
        return row;
    }
    if let Some(histogram) = histogram {
        histogram.add(series, &value.leaf, rows);
        return len;
    }
    let name = &families[*family].name;
    let mut decoder = Decoder::new(&series.context);
    let mut labels = Vec::new();
    while row < len {
        labels.clear();
        series.key_labels(series.key(rows, row), &mut decoder, &mut labels);
        samples(name, series, value, rows, row, &mut labels, out);
        row += 1;
        if out.len() >= CHUNK {
            break;
        }
    }
    row
}

/// Writes the samples that one row has in a family; `labels` are those of its key.
fn samples(
    name: &str,
    series: &Series,
    value: &Value,
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
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(series.labels.as_bytes());
            out.extend_from_slice(labels);
            out.extend_from_slice(b"} ");
            number(out, value.leaf.kind, value.leaf.size, value.leaf.load(bytes, base));
            out.push(b'\n');
        };
        each_item(&value.arrays, 0, labels, &mut sample);
        labels.truncate(key);
    }
}

/// Calls `sample` with the labels and the offset of each element of nested arrays.
fn each_item(arrays: &[Dimension], base: usize, labels: &mut Vec<u8>, sample: &mut impl FnMut(&[u8], usize)) {
    let Some((array, inner)) = arrays.split_first() else { return sample(labels, base) };
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
mod tests {
    use std::collections::BTreeMap;
    use twinprobe_ebpf_common::{Layout, MapKind, Member, Shape, TableLayout};

    use super::*;

    /// Returns a page about one hash of pairs, and the number of times that its rows are asked for.
    fn page(known: Option<Count>, own: &str) -> (String, usize) {
        let member = |(index, name): (usize, &str)| Member {
            name: name.to_owned(),
            bit_offset: 8 * index,
            bitfield: None,
            layout: Layout::unsigned(1),
        };
        let members = ["x", "y"].into_iter().enumerate().map(member).collect();
        let value = Layout { size: 2, shape: Shape::Struct(members), render: None };
        let layout =
            TableLayout { kind: MapKind::Hash, key: Layout::unsigned(1), value, slots: 1, inner: None };
        let metric = Arc::new(Metric::example("m", layout));
        let (mut page, mut out, mut asked) = (PageEncoder::new(), Vec::new(), 0);
        page.add_account(String::new(), 4);
        page.add(Series::new("p", &BTreeMap::new(), Direction::Ingress, &metric, Arc::default()), known);
        page.begin(own, &mut Vec::new());
        while page.next_table(&mut out).is_some() {
            asked += 1;
            page.rows(&RawTable { keys: vec![7], values: vec![1, 2], ..RawTable::default() }, &mut out);
        }
        page.finish(&mut out);
        (String::from_utf8(out).expect("UTF-8"), asked)
    }

    #[test]
    fn a_table_is_asked_for_once_for_each_family() {
        let (text, asked) = page(None, "");
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let labels = r#"{probe="p",direction="ingress",key="7"}"#;
        let expected =
            [format!("m_x{labels} 1"), format!("m_y{labels} 2"), "twinprobe_export_skipped_total 4".into()];
        assert_eq!((samples, asked), (expected.each_ref().map(String::as_str).to_vec(), 2));
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_table_without_families_is_counted_once() {
        let own = "# TYPE m_x gauge\n# TYPE m_y gauge\n";
        let (text, asked) = page(None, own);
        assert!(text.contains("twinprobe_export_skipped_total 6\n"), "{text}");
        assert_eq!(asked, 1, "its rows had to be counted");
        let (text, asked) = page(Some(Count { rows: 3, ..Count::default() }), own);
        assert!(text.contains("twinprobe_export_skipped_total 10\n"), "{text}");
        assert_eq!(asked, 0, "they are known");
    }
}
