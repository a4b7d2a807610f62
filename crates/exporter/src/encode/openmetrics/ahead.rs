//! Samples of later families, which a walk over a table writes in addition. The samples of a family
//! must be together, and a row of structs has samples in many families. With a walk over the table
//! for each family, the time for a struct of thousands of members would grow with the square of its
//! size. Therefore a walk writes some of the next families together with its own.

use std::collections::HashMap;

use twinprobe_ebpf_common::RawTable;

use super::names::family::Family;
use super::series::{Count, MetricSeries};

/// The most bytes of samples that wait for their place in the page.
const ROOM: usize = 2 << 20;
/// The number of families in which the search for a table's families looks, and the most families
/// that are written together.
const NEXT: usize = 4096;
/// The size of a sample without the labels that all samples of a table share, and the size of a
/// label, in bytes.
const SAMPLE: usize = 48;
const LABEL: usize = 24;

/// The place of a part of a page: the place of a family, and the place of a member in it.
type PagePlace = (usize, usize);

/// Samples that wait for their place in the page.
#[derive(Debug, Default)]
pub struct Ahead(HashMap<PagePlace, Vec<u8>>);

impl Ahead {
    /// Takes the samples of a part of the page; `None` if they are not written yet.
    pub fn take(&mut self, place: PagePlace) -> Option<Vec<u8>> {
        self.0.remove(&place)
    }

    /// Keeps the output of a finished walk for other families.
    pub fn keep(&mut self, beside: Vec<Beside>) {
        self.0
            .extend(beside.into_iter().map(|beside| (beside.place, beside.out)));
    }
}

/// A part of the page that a walk writes in addition to its own part.
#[derive(Debug)]
pub struct Beside {
    place: PagePlace,
    /// The place of the number in the samples of the table.
    value: usize,
    out: Vec<u8>,
}

/// Returns the parts that a walk over `table` for the family `at` writes in addition. `left` is the
/// number of unwritten parts of the table; the result has as many of them as fit. Returns no parts
/// if the number of rows is not known yet.
pub fn beside(
    families: &[Family],
    at: usize,
    (table, series): (usize, &MetricSeries),
    left: usize,
    count: Option<Count>,
) -> Vec<Beside> {
    let Some(count) = count.filter(|_| left > 0) else {
        return Vec::new();
    };
    // The room is divided among all tables in the family.
    let room = ROOM / families[at].members.len().max(1);
    let sample = series.labels.len() + SAMPLE + LABEL * series.samples.keys.len();
    let rows = (count.rows - count.duplicates - count.surplus).saturating_mul(series.cpus());
    let mut size = 0_usize;
    let next = families.iter().enumerate().skip(at + 1).take(NEXT);
    let parts = next
        .filter(|(_, family)| !family.kind.is_histogram())
        .filter_map(|(at, family)| {
            let member = family.members.iter().position(|(of, _)| *of == table)?;
            Some(Beside {
                place: (at, member),
                value: family.members[member].1,
                out: Vec::new(),
            })
        });
    let fits = |part: &Beside| {
        let samples =
            usize::try_from(series.samples.values[part.value].count()).unwrap_or(usize::MAX);
        size = size.saturating_add(rows.saturating_mul(samples).saturating_mul(sample));
        size <= room
    };
    parts.take(left).take_while(fits).collect()
}

/// Writes the samples of prepared rows in these parts. Drops the last parts if there is no room for
/// them.
pub fn write(parts: &mut Vec<Beside>, families: &[Family], series: &MetricSeries, rows: &RawTable) {
    let mut size = 0;
    for Beside { place, value, out } in parts.iter_mut() {
        let (mut row, len) = (0, series.len(rows));
        while row < len {
            row = series.write(
                &families[place.0].name,
                &series.samples.values[*value],
                rows,
                row,
                out,
            );
        }
        size += out.len();
    }
    while size > ROOM
        && let Some(given_up) = parts.pop()
    {
        size -= given_up.out.len();
    }
}
