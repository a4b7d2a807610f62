//! A walk over the rows of a table: for samples, for the largest rows, for a sum, or for a count.

use twinprobe_ebpf_common::RawTable;

use crate::encode::openmetrics::ahead::{self, Beside};
use crate::encode::openmetrics::histogram::{self, HistogramSums, Histograms};
use crate::encode::openmetrics::names::family::Family;
use crate::encode::openmetrics::rows::distinct::WalkedKeys;
use crate::encode::openmetrics::rows::largest::{Largest, Ranking};
use crate::encode::openmetrics::series::{Count, MetricSeries};

/// A table whose samples are in the page.
#[derive(Debug)]
pub struct PageTable {
    pub series: MetricSeries,
    /// The place of the account that counts its losses.
    pub account: usize,
    /// The counts of the table's rows; `None` until they have been counted.
    pub count: Option<Count>,
    /// The rows that are shown, if the table may have more rows; `None` until these rows are known.
    pub largest: Option<Largest>,
    /// True if the table's rows could not be read to their end.
    pub abandoned: bool,
    /// The number of unwritten families with samples of the table.
    pub left: usize,
    /// The place of the table that has the sum of a histogram.
    pub sum: Option<usize>,
    /// The totals of a sum's numbers, once they have been read.
    pub total: Option<HistogramSums>,
}

/// One walk over the rows of a table.
#[derive(Debug, Default)]
pub struct TableWalk {
    /// The place of the table.
    pub table: usize,
    /// The written part of the rows; `None` for rows that are only counted.
    pub member: Option<FamilyMember>,
    pub count: Count,
    /// The keys that the walk has met; `None` if no check needs the keys.
    pub seen: Option<WalkedKeys>,
    /// The largest rows so far; `None` unless the walk searches for these.
    pub ranking: Option<Ranking>,
    /// The totals of the numbers so far; `None` unless the numbers are the sum of a histogram.
    pub total: Option<HistogramSums>,
    /// The latest rows, prepared, and the index of the next row to be written; `None` if all rows
    /// are written.
    pub rest: Option<(RawTable, usize)>,
    /// The parts of later families that the walk also writes.
    pub beside: Vec<Beside>,
}

/// A value of a table in its family.
#[derive(Debug)]
pub struct FamilyMember {
    /// The place of the family.
    pub family: usize,
    /// The place of the value in the samples of the table.
    pub value: usize,
    /// The counts of a histogram, whose buckets are written at the end of the walk.
    pub histogram: Option<Histograms>,
}

impl TableWalk {
    /// Returns the walk that must come before the samples of a table in a family. That walk finds
    /// the largest rows, or computes the sum.
    pub fn first(tables: &[PageTable], at: usize, family: &Family) -> Option<Self> {
        let table = &tables[at];
        if table.largest.is_none() && !table.abandoned && table.series.is_limited() {
            let (ranking, seen) = (
                Some(Ranking::default()),
                WalkedKeys::for_walk(&table.series),
            );
            return Some(Self {
                table: at,
                ranking,
                seen,
                ..Self::default()
            });
        }
        let sum = table.sum.filter(|_| family.kind.is_histogram())?;
        let PageTable {
            total: None,
            abandoned: false,
            ..
        } = tables[sum]
        else {
            return None;
        };
        Some(Self {
            table: sum,
            total: Some(HistogramSums::new()),
            ..Self::default()
        })
    }

    /// Returns the walk that writes the samples of a table's value in the family `at`, and those in
    /// some of the next families.
    pub fn of_samples(
        families: &[Family],
        at: usize,
        tables: &[PageTable],
        (table, value): (usize, usize),
    ) -> Self {
        let PageTable {
            series,
            left,
            count,
            ..
        } = &tables[table];
        let is_histogram = families[at].kind.is_histogram();
        let member = FamilyMember {
            family: at,
            value,
            histogram: is_histogram.then(Histograms::new),
        };
        Self {
            table,
            member: Some(member),
            seen: WalkedKeys::for_walk(series),
            beside: ahead::beside(families, at, (table, series), *left, *count),
            ..Self::default()
        }
    }

    /// Writes the samples of prepared rows, or counts them in a histogram, from `row` until a chunk
    /// is full. Returns the next row.
    pub fn write(
        &mut self,
        families: &[Family],
        series: &MetricSeries,
        rows: &RawTable,
        row: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let len = series.len(rows);
        let Some(FamilyMember {
            family,
            value,
            histogram,
        }) = &mut self.member
        else {
            return len;
        };
        let value = &series.samples.values[*value];
        if let Some(histograms) = histogram {
            histogram::add(histograms, series, &value.leaf, rows);
            return len;
        }
        series.write(&families[*family].name, value, rows, row, out)
    }
}
