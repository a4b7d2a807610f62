//! A page, which has one family after the other, and within each family one table after the other.

mod walk;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Head, RawTable};

use self::walk::{FamilyMember, PageTable, TableWalk};
use super::ahead::{self, Ahead};
use super::fill::{self, SKIPPED};
use super::histogram;
use super::names::family::{Family, FamilyKind, families, reserved};
use super::names::sums::sums;
use super::series::MetricSeries;
use super::text::{escaped, integer};
use crate::metric::Metric;

/// The counter of numbers and texts that were left out of one document, or that one probe of a page
/// has left out.
#[derive(Debug)]
struct Account {
    /// The labels of the counter: empty, or `{probe="flows"}`.
    labels: String,
    /// The number that earlier pages left out.
    before: u64,
    /// The number that this page leaves out, after its end.
    skipped: u64,
}

/// Writes one page about several probes: families of one name are merged. The encoder keeps nothing
/// of most tables. The encoder asks for a table again for each family to which the table
/// contributes, or once for several families if they are small. If a table shows only its largest
/// rows, the encoder keeps these rows and asks for the table once:
///
/// ```text
/// new, (add_probe, add_metric...)..., begin, (next_table, rows... or abandon)..., finish
/// ```
///
/// Each call appends to the caller's buffer. The caller can hand the buffer on and empty it between
/// any two calls.
#[derive(Debug, Default)]
pub struct PageEncoder {
    /// The name of the probe that was added last, the labels of its configuration, and its
    /// interfaces.
    probe: String,
    labels: BTreeMap<String, String>,
    interfaces: Vec<String>,
    tables: Vec<PageTable>,
    families: Vec<Family>,
    accounts: Vec<Account>,
    /// The next family, and the next member of that family. After all families, the third number is
    /// the next table.
    next: (usize, usize, usize),
    walk: Option<TableWalk>,
    ahead: Ahead,
}

impl PageEncoder {
    /// Makes a page without probes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a page about one probe. Its counter of omissions has no labels.
    pub(super) fn of_one(head: &Head<'_>) -> Self {
        let mut page = Self::default();
        page.set_probe(head);
        page.add_account(String::new(), 0);
        page
    }

    /// Adds a probe. `skipped_before` is the number of numbers and texts that earlier pages left
    /// out, so that the counter at the end of the page never decreases.
    pub fn add_probe(&mut self, head: &Head<'_>, skipped_before: u64) {
        self.set_probe(head);
        let mut labels = b"{probe=\"".to_vec();
        escaped(&mut labels, head.probe);
        labels.extend_from_slice(b"\"}");
        self.add_account(
            String::from_utf8_lossy(&labels).into_owned(),
            skipped_before,
        );
    }

    fn set_probe(&mut self, head: &Head<'_>) {
        self.probe = head.probe.to_owned();
        self.interfaces = head.interfaces.to_vec();
        self.labels = head
            .origin
            .map(|origin| origin.labels.clone())
            .unwrap_or_default();
    }

    fn add_account(&mut self, labels: String, before: u64) {
        self.accounts.push(Account {
            labels,
            before,
            skipped: 0,
        });
    }

    /// Sets the number of numbers and texts that earlier documents about the last added probe left
    /// out.
    pub(super) fn skipped_before(&mut self, before: u64) {
        self.accounts
            .iter_mut()
            .last()
            .into_iter()
            .for_each(|account| account.before = before);
    }

    /// Adds a metric of the probe that was added last. Returns its number for [`Self::next_table`].
    /// No key of its table comes twice, unless it is a trie that is read live.
    pub fn add_metric(&mut self, metric: &Arc<Metric>, context: Arc<Context>) -> usize {
        let series =
            MetricSeries::new(&self.probe, &self.labels, &self.interfaces, metric, context);
        let account = self.accounts.len().saturating_sub(1);
        let (count, largest, sum, total) = (None, None, None, None);
        self.tables.push(PageTable {
            series,
            account,
            count,
            largest,
            abandoned: false,
            left: 0,
            sum,
            total,
        });
        self.tables.len() - 1
    }

    /// Begins the page, once all metrics have been added. `own` holds further families, already
    /// written and without `# EOF`; no other family gets their names.
    pub fn begin(&mut self, own: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(own.as_bytes());
        if !own.is_empty() && !own.ends_with('\n') {
            out.push(b'\n');
        }
        let mut taken = reserved(own);
        taken.extend(reserved(SKIPPED));
        taken.extend(reserved(&fill::metadata()));
        let all: Vec<&MetricSeries> = self.tables.iter().map(|table| &table.series).collect();
        let (families, mut nameless) = families(&all, &taken);
        let sums = sums(&all);
        for family in families.iter().filter(|family| !family.kind.is_histogram()) {
            nameless.extend(
                family
                    .members
                    .iter()
                    .filter_map(|(table, _)| Some((*sums.get(table)?, 0))),
            );
        }
        sums.into_iter()
            .for_each(|(table, sum)| self.tables[table].sum = Some(sum));
        for (table, _) in families.iter().flat_map(|family| &family.members) {
            self.tables[*table].left += 1;
        }
        self.families = families;
        for (table, value) in nameless {
            let series = &mut self.tables[table].series;
            series.nameless = series
                .nameless
                .saturating_add(series.samples.values[value].count());
        }
    }

    /// Ends the previous table. Returns the number of the table whose rows come next, from the
    /// first row on; `None` if only the end of the page is left.
    pub fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.end_table(out);
        let walk = self.next_walk(out).or_else(|| self.next_count())?;
        Some(self.walk.insert(walk).table)
    }

    /// Writes the families up to the next samples that need a walk. Returns this walk; `None` once
    /// all families are written.
    fn next_walk(&mut self, out: &mut Vec<u8>) -> Option<TableWalk> {
        let (at, member, _) = &mut self.next;
        while let Some(family) = self.families.get(*at) {
            let next = family.members.get(*member).copied();
            if let Some((table, _)) = next
                && let Some(walk) = TableWalk::first(&self.tables, table, family)
            {
                return Some(walk);
            }
            if *member == 0 {
                metadata(family, &self.tables, out);
            }
            let Some((table, value)) = next else {
                (*at, *member) = (*at + 1, 0);
                continue;
            };
            let place = (*at, *member);
            *member += 1;
            self.tables[table].left -= 1;
            if self.tables[table].abandoned {
                continue;
            }
            if let PageTable {
                series,
                largest: Some(largest),
                ..
            } = &self.tables[table]
            {
                largest.write(&family.name, series, value, out);
                continue;
            }
            if let Some(written) = self.ahead.take(place) {
                out.extend_from_slice(&written);
                continue;
            }
            let (families, tables) = (&self.families, &self.tables);
            return Some(TableWalk::of_samples(families, *at, tables, (table, value)));
        }
        None
    }

    /// Returns a walk over the next table whose rows no other walk has counted.
    fn next_count(&mut self) -> Option<TableWalk> {
        let (_, _, uncounted) = &mut self.next;
        while let Some(PageTable {
            count, abandoned, ..
        }) = self.tables.get(*uncounted)
        {
            *uncounted += 1;
            if count.is_none() && !abandoned {
                return Some(TableWalk {
                    table: *uncounted - 1,
                    ..TableWalk::default()
                });
            }
        }
        None
    }

    /// Tells whether [`Self::next_table`] will return the same table again.
    pub fn asks_again(&self) -> bool {
        self.walk
            .as_ref()
            .is_some_and(|walk| walk.ranking.is_none() && self.tables[walk.table].left > 0)
    }

    /// Writes the complete entries of `rows`, a part of the table that [`Self::next_table`]
    /// returned, until a chunk is full. [`Self::more`], or the next call of any other function,
    /// writes the rest.
    pub fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        while self.more(out) {}
        let Some(walk) = &mut self.walk else { return };
        let series = &self.tables[walk.table].series;
        walk.count.entries += rows.len(&series.original.layout);
        let mut rows = series.prepare(Cow::Borrowed(rows));
        walk.count.rows += series.len(&rows);
        if let Some(seen) = &mut walk.seen {
            let (distinct, duplicates) = seen.distinct(series, rows);
            (rows, walk.count.duplicates) = (distinct, walk.count.duplicates + duplicates);
        }
        if let Some(total) = &mut walk.total {
            let leaf = &series.samples.values[0].leaf;
            for row in 0..series.len(&rows) {
                let interface = series.interface(series.key(&rows, row));
                let sum = total.entry(interface.into()).or_default();
                *sum = sum.saturating_add(leaf.load(series.value(&rows, row), 0));
            }
            return;
        }
        if let Some(ranking) = &mut walk.ranking {
            return ranking.add(series, &rows);
        }
        ahead::write(&mut walk.beside, &self.families, series, &rows);
        let next = walk.write(&self.families, series, &rows, 0, out);
        walk.rest = (next < series.len(&rows)).then(|| (rows.into_owned(), next));
    }

    /// Writes another chunk of the rows that [`Self::rows`] was given. Returns false at the end.
    pub fn more(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(walk) = &mut self.walk else {
            return false;
        };
        let Some((rows, row)) = walk.rest.take() else {
            return false;
        };
        let series = &self.tables[walk.table].series;
        let next = walk.write(&self.families, series, &rows, row, out);
        walk.rest = (next < series.len(&rows)).then_some((rows, next));
        true
    }

    /// Skips the rest of the table that [`Self::next_table`] returned, because it can't be read.
    /// Written samples stay in the page, and the page does not ask for the table again.
    pub fn abandon(&mut self) {
        if let Some(walk) = self.walk.take() {
            self.tables[walk.table].abandoned = true;
        }
    }

    fn end_table(&mut self, out: &mut Vec<u8>) {
        while self.more(out) {}
        let Some(TableWalk {
            table,
            member,
            mut count,
            ranking,
            total,
            beside,
            ..
        }) = self.walk.take()
        else {
            return;
        };
        self.ahead.keep(beside);
        let sums = self.tables[table]
            .sum
            .and_then(|sum| self.tables[sum].total.clone());
        let table = &mut self.tables[table];
        table.total = table.total.take().or(total);
        if let Some(ranking) = ranking {
            let largest = ranking.finish(&table.series);
            count.surplus = largest.others();
            table.largest = Some(largest);
        }
        if let Some(FamilyMember {
            family,
            value,
            histogram: Some(histograms),
        }) = member
        {
            let scale = table.series.samples.values[value].scale;
            let Family { name, kind, .. } = &self.families[family];
            let sums = sums
                .as_ref()
                .map(|sums| (sums, *kind == FamilyKind::GaugeHistogram));
            histogram::write(&histograms, name, &table.series, scale, sums, out);
        }
        table.count.get_or_insert(count);
    }

    /// Ends the page. Returns the number of omitted numbers and texts of each probe, in the order
    /// in which the probes were added.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Vec<u64> {
        for PageTable {
            series,
            account,
            count,
            ..
        } in &self.tables
        {
            if let (Some(account), Some(count)) = (self.accounts.get_mut(*account), count) {
                account.skipped = account.skipped.saturating_add(series.skipped(*count));
            }
        }
        let counted = self.tables.iter().filter(|table| !table.abandoned);
        let counted = counted.filter_map(|table| Some((&table.series, table.count?)));
        fill::write(&counted.collect::<Vec<_>>(), out);
        out.extend_from_slice(SKIPPED.as_bytes());
        for Account {
            labels,
            before,
            skipped,
        } in &self.accounts
        {
            out.extend_from_slice(b"twinprobe_export_skipped_total");
            out.extend_from_slice(labels.as_bytes());
            out.push(b' ');
            integer(out, before.saturating_add(*skipped));
            out.push(b'\n');
        }
        out.extend_from_slice(b"# EOF\n");
        self.accounts
            .iter()
            .map(|account| account.skipped)
            .collect()
    }
}

/// Writes the metadata of a family, which come before its samples.
fn metadata(family: &Family, tables: &[PageTable], out: &mut Vec<u8>) {
    for part in ["# TYPE ", family.base(), " ", family.kind.name(), "\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let mut helps = family
        .members
        .iter()
        .map(|(table, _)| &*tables[*table].series.metric.help);
    if let Some(help) = helps.find(|help| !help.is_empty()) {
        for part in ["# HELP ", family.base(), " "] {
            out.extend_from_slice(part.as_bytes());
        }
        escaped(out, help);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests;
