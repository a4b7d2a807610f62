//! Windows that hold only the changes in their sums. A reader gets such a window with whole sums:
//! the window at which the changes begin gives the sums, and the changes of each later window up to
//! this one are applied. The result is a body like all others, so that no reader needs to know of
//! the changes.

use std::io;

use twinprobe_ebpf_common::{Direction, MetricHead, RawTable};

use crate::body::draft::BodyDraft;
use crate::body::format::{Encoder, Unusable};
use crate::body::head::WindowHead;
use crate::body::part::{ages_as_rows, ages_of};
use crate::body::stored::{BodySource, StoredWindow, WindowReader, open};

/// The number of bytes of rows that are written at once.
const PIECE: usize = 256 << 10;

/// The sum of a metric at the end of a window.
struct SumRows {
    /// The place of the metric in the window that is being read.
    place: usize,
    rows: RawTable,
    ages: Vec<u64>,
}

/// The properties that distinguish a metric from the other metrics of its window.
type MetricIdentity<'a> = (bool, Direction, &'a str, &'a str);

fn identities(head: &WindowHead) -> impl Iterator<Item = (MetricIdentity<'_>, &MetricHead)> {
    let shown = head.metrics.len();
    head.all().enumerate().map(move |(place, metric)| {
        (
            (place < shown, metric.direction, &*metric.name, &*metric.map),
            metric,
        )
    })
}

fn damaged(reason: impl Into<String>) -> Unusable {
    Unusable::Damaged(reason.into())
}

impl StoredWindow {
    /// Returns the reason why a window that builds on this window can't be read.
    pub fn is_built_on(&self, error: Unusable) -> Unusable {
        match error {
            Unusable::Damaged(reason) => damaged(format!(
                "it builds on window {}, which is damaged: {reason}",
                self.seq()
            )),
            error => error,
        }
    }
}

/// Makes the window with whole sums from its stored content `own`.
pub fn rebuilt(
    source: &dyn BodySource,
    window: &StoredWindow,
    own: &WindowReader,
) -> Result<WindowReader, Unusable> {
    let places = own
        .head
        .changes
        .as_ref()
        .map_or(&[][..], |changes| &changes.places);
    let mut sums: Vec<SumRows> = Vec::new();
    let mut before = None;
    for below in source.below(window) {
        let reader = below
            .read_alone(source)
            .map_err(|error| below.is_built_on(error))?;
        match &reader.head.changes {
            None => sums = whole(&reader, &own.head, places)?,
            Some(changes) => follow(&mut sums, (before, changes.since), &reader, &own.head)?,
        }
        before = Some(below.seq());
    }
    let since = own.head.changes.as_ref().map_or(0, |changes| changes.since);
    follow(&mut sums, (before, since), own, &own.head)?;
    let head = WindowHead {
        changes: None,
        ..WindowHead::clone(&own.head)
    };
    open(
        written(source, &head, own, &sums)?.into_content()?,
        window.seq(),
    )
}

/// Returns the place in `other` of the metric at this place of `head`; both must have the same
/// layout.
fn place_in(other: &WindowHead, head: &WindowHead, place: usize) -> Result<usize, Unusable> {
    let (identity, metric) = identities(head)
        .nth(place)
        .ok_or_else(|| damaged("it has changes of no metric"))?;
    let found = identities(other)
        .position(|(known, other)| known == identity && other.layout == metric.layout);
    found.ok_or_else(|| {
        damaged(format!(
            "window {}, which it builds on, has no sum of {}",
            other.window.seq, metric.name
        ))
    })
}

/// Reads the sums with which changes begin.
fn whole(
    reader: &WindowReader,
    head: &WindowHead,
    places: &[usize],
) -> Result<Vec<SumRows>, Unusable> {
    let read = |&place: &usize| {
        let at = place_in(&reader.head, head, place)?;
        let ages = ages_of(&reader.table(reader.head.place_of_ages(at))?);
        Ok(SumRows {
            place,
            rows: reader.table(at)?,
            ages,
        })
    };
    places.iter().map(read).collect()
}

/// Applies the changes that a window holds.
fn follow(
    sums: &mut [SumRows],
    (before, since): (Option<u64>, u64),
    reader: &WindowReader,
    head: &WindowHead,
) -> Result<(), Unusable> {
    if before != Some(since) {
        return Err(damaged(format!(
            "it holds the changes since window {since}, which is missing"
        )));
    }
    let seq = reader.head.window.seq;
    for SumRows { place, rows, ages } in sums {
        let at = place_in(&reader.head, head, *place)?;
        let changes = reader.changes(at)?;
        let layout = &reader
            .head
            .all()
            .nth(at)
            .ok_or_else(|| damaged("it has changes of no metric"))?
            .layout;
        if !changes.is_some_and(|changes| changes.apply(rows, ages, seq, layout)) {
            return Err(damaged(format!(
                "the changes in window {seq} do not fit the previous sums"
            )));
        }
    }
    Ok(())
}

/// Writes the body with whole sums.
fn written(
    source: &dyn BodySource,
    head: &WindowHead,
    own: &WindowReader,
    sums: &[SumRows],
) -> io::Result<BodyDraft> {
    let mut encoder = Encoder::new(source.copy(), head)?;
    for (place, metric) in head.all().enumerate() {
        let Some(sum) = sums.iter().find(|sum| sum.place == place) else {
            let mut index = 0;
            while let Some(chunk) = own.chunk(place, index)? {
                encoder.rows(place, &chunk)?;
                index += 1;
            }
            continue;
        };
        let rows = (PIECE / (metric.layout.key.size + metric.layout.value_stride()).max(1)).max(1);
        for from in (0..sum.rows.len(&metric.layout)).step_by(rows) {
            encoder.rows(place, &sum.rows.slice(from, from + rows, &metric.layout))?;
        }
        if !sum.ages.is_empty() {
            encoder.rows(head.place_of_ages(place), &ages_as_rows(&sum.ages))?;
        }
    }
    Ok(encoder.finish()?.0)
}
