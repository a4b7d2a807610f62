//! A receiver that keeps windows as files of Parquet, wherever [`ObjectPlace`] puts them.
//!
//! A batch becomes a file for each series, hour and table. The name of a file gives its windows. So
//! a stream that was killed anywhere continues without repeats.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use twinprobe_ebpf_common::window::shape::{MetricShape, WindowShape};

use super::cell::{Cell, CellRow, nanoseconds, rows};
use super::columns::{ColumnKind, IDENTITY, REST, columns};
use super::direct::{CellPlace, DirectRows};
use super::entries::{EntryValues, each_entry};
use super::head::DocumentHead;
use super::names;
use super::objects::ObjectPlace;
use super::parquet::{FilledColumn, file};
use super::shown::shown_rows;
use crate::names::part;
use crate::receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, SeriesName, StreamGap,
    StreamItem, StreamWindow,
};

/// The table with a row for each window.
const WINDOWS: &str = "windows";
/// The table with a row for each gap.
const GAPS: &str = "gaps";

/// Tables in files of Parquet.
pub struct ParquetTables<P> {
    place: P,
    limits: BatchLimits,
    /// The windows that files of a series in a directory hold.
    held: HashMap<TablePlace, Vec<(u64, u64)>>,
}

/// A directory, and a series that has files in it.
type TablePlace = (String, Arc<SeriesName>);

/// The windows of a series that ended in one hour and have one shape.
struct HourGroup<'a> {
    series: Arc<SeriesName>,
    shape: Arc<WindowShape>,
    end: Arc<str>,
    /// The windows with their places in the batch.
    windows: Vec<(usize, &'a StreamWindow)>,
}

impl<P: ObjectPlace> ParquetTables<P> {
    /// `every` is how long windows are gathered for a file; `memory` is the most bytes of documents
    /// that are on their way.
    pub fn new(place: P, every: Duration, memory: usize) -> Self {
        // A batch takes less memory than the stream has, so that it is full before feeds must wait
        // for its end.
        let limits = BatchLimits {
            items: 4096,
            bytes: memory / 8,
            linger: every,
        };
        Self {
            place,
            limits,
            held: HashMap::new(),
        }
    }

    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<Receipt, SendError> {
        let mut fates = vec![ItemFate::Repeat; batch.len()];
        for group in groups(batch) {
            let metrics = group.shape.metrics.iter().map(|metric| {
                (
                    format!("{}.{}", metric.direction.name(), metric.name),
                    Some(metric),
                )
            });
            // The table of windows comes last: if it has a window, all other tables have the window
            // as well.
            for (table, metric) in metrics.chain([(WINDOWS.to_owned(), None)]) {
                self.table(&group, &table, metric, &mut fates).await?;
            }
        }
        for (fate, item) in fates.iter_mut().zip(batch) {
            if let StreamItem::Gap(gap) = &**item {
                self.gap(gap).await?;
                *fate = ItemFate::Stored;
            }
        }
        Ok(Receipt(fates))
    }

    /// Writes the windows of a group that a table does not have.
    async fn table(
        &mut self,
        group: &HourGroup<'_>,
        table: &str,
        metric: Option<&MetricShape>,
        fates: &mut [ItemFate],
    ) -> Result<(), SendError> {
        let directory = names::directory(&group.series, table, &group.end);
        let place = (directory.clone(), Arc::clone(&group.series));
        if !self.held.contains_key(&place) {
            let found = self
                .place
                .list(&directory, &names::prefix(&group.series))
                .await?;
            let held = found
                .iter()
                .filter_map(|name| names::held(&group.series, name))
                .collect();
            self.held.insert(place.clone(), held);
        }
        let held = &self.held[&place];
        let is_new = |seq: u64| {
            !held
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&seq))
        };
        let new: Vec<&(usize, &StreamWindow)> = group
            .windows
            .iter()
            .filter(|(_, window)| is_new(window.name.seq))
            .collect();
        let (Some((_, first)), Some((_, last))) = (new.first(), new.last()) else {
            return Ok(());
        };
        let (first, last) = (first.name.seq, last.name.seq);
        let own = new.iter().map(|(_, window)| *window);
        let content = match metric {
            Some(metric) => file(&entries(metric, own)?)?,
            None => file(&windows(own)?)?,
        };
        let path = format!("{directory}/{}", names::file(&group.series, first, last));
        self.place.put(&path, content).await?;
        self.held.entry(place).or_default().push((first, last));
        new.iter().for_each(|(at, _)| fates[*at] = ItemFate::Stored);
        Ok(())
    }

    async fn gap(&mut self, gap: &StreamGap) -> Result<(), SendError> {
        let StreamGap {
            name,
            last,
            windows,
        } = gap;
        let SeriesName {
            node,
            instance,
            probe,
        } = &*name.series;
        let text = |name: &str, value: &str| FilledColumn {
            name: name.to_owned(),
            kind: ColumnKind::Text,
            cells: vec![Cell::Text(value.into())],
        };
        let number = |name: &str, value: u64| FilledColumn {
            name: name.to_owned(),
            kind: ColumnKind::Unsigned { bits: 64 },
            cells: vec![Cell::Unsigned(value)],
        };
        let content = file(&[
            text("node", node),
            text("probe", probe),
            text("instance", instance),
            number("first_seq", name.seq),
            number("last_seq", *last),
            number("windows", *windows),
        ])?;
        let path = format!(
            "{}/{GAPS}/{}",
            part(probe),
            names::file(&name.series, name.seq, *last)
        );
        self.place.put(&path, content).await
    }
}

impl<P: ObjectPlace> Receiver for ParquetTables<P> {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn send<'a>(
        &'a mut self,
        batch: &'a [Arc<StreamItem>],
    ) -> BoxFuture<'a, Result<Receipt, SendError>> {
        async move {
            let sent = self.store(batch).await;
            if sent.is_err() {
                // A file may exist although its answer is missing.
                self.held.clear();
            }
            sent
        }
        .boxed()
    }

    fn preview(&self, item: &ItemName) -> String {
        let directory = names::directory(&item.series, "TABLE", &item.end);
        format!("{item} -> {}", self.place.address(&directory))
    }

    fn content(&self, window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
        shown_rows(window, most)
    }
}

/// Returns the windows of a batch by series, hour and shape.
fn groups(batch: &[Arc<StreamItem>]) -> Vec<HourGroup<'_>> {
    let mut groups: BTreeMap<(Arc<SeriesName>, String, String), HourGroup<'_>> = BTreeMap::new();
    for (at, item) in batch.iter().enumerate() {
        let StreamItem::Window(window) = &**item else {
            continue;
        };
        let ItemName { series, end, .. } = &window.name;
        let hour = end.get(..13).unwrap_or_default().to_owned();
        let group = groups.entry((Arc::clone(series), hour, window.shape.digest.clone()));
        let group = group.or_insert_with(|| HourGroup {
            series: Arc::clone(series),
            shape: Arc::clone(&window.shape),
            end: Arc::clone(end),
            windows: Vec::new(),
        });
        group.windows.push((at, window));
    }
    groups.into_values().collect()
}

/// The columns that each table begins with, empty.
fn identity() -> Vec<FilledColumn> {
    let kind = |name: &str| match name {
        "seq" => ColumnKind::Unsigned { bits: 64 },
        "window_start" | "window_end" => ColumnKind::Time,
        _ => ColumnKind::Text,
    };
    IDENTITY
        .iter()
        .map(|name| FilledColumn::new(*name, kind(name)))
        .collect()
}

/// Adds the first cells of each row, for this many rows of a window.
fn push_identity(table: &mut [FilledColumn], name: &ItemName, count: usize) {
    let SeriesName {
        node,
        instance,
        probe,
    } = &*name.series;
    let text = |text: &str| Cell::Text(text.into());
    let time = |text: &str| nanoseconds(text).map_or(Cell::Missing, Cell::Time);
    let cells = [
        text(node),
        text(probe),
        text(instance),
        Cell::Unsigned(name.seq),
        time(&name.start),
        time(&name.end),
    ];
    let columns = table.iter_mut().zip(cells);
    columns.for_each(|(column, cell)| column.cells.extend(std::iter::repeat_n(cell, count)));
}

/// Adds the other cells of a row.
fn push(table: &mut [FilledColumn], cells: impl IntoIterator<Item = Cell>) {
    let columns = table[IDENTITY.len()..].iter_mut();
    columns
        .zip(cells)
        .for_each(|(column, cell)| column.cells.push(cell));
}

/// Returns the table of a metric: a row for each entry.
fn entries<'a>(
    metric: &MetricShape,
    windows: impl Iterator<Item = &'a StreamWindow>,
) -> Result<Vec<FilledColumn>, SendError> {
    let parts = columns(metric);
    let place = CellPlace::new(&parts);
    let path = [metric.direction.name(), &metric.name];
    let mut table = identity();
    table.extend(
        parts
            .iter()
            .map(|part| FilledColumn::new(part.name.clone(), part.kind)),
    );
    table.push(FilledColumn::new(REST, ColumnKind::Json));
    for window in windows {
        let mut count = 0;
        if let Some(place) = &place {
            let take = |cell: &mut Cell| std::mem::replace(cell, Cell::Missing);
            let add = |cells: &mut [Cell]| {
                push(
                    &mut table,
                    cells.iter_mut().map(take).chain([Cell::Missing]),
                );
            };
            let mut direct = DirectRows::new(place, parts.len(), add);
            let read = each_entry(&window.document, path, &mut direct);
            count = direct.read;
            if read.is_ok() {
                push_identity(&mut table, &window.name, count);
                continue;
            }
        }
        // The next entry does not fit, or the document is malformed.
        let mut left = count;
        let mut values = EntryValues(|entry: &Value| {
            if let Some(rest) = left.checked_sub(1) {
                left = rest;
                return;
            }
            for CellRow { cells, rest } in rows(entry, &parts, metric.per_cpu) {
                let rest = rest.map_or(Cell::Missing, |rest| Cell::Text(rest.into()));
                push(&mut table, cells.into_iter().chain([rest]));
                count += 1;
            }
        });
        let read = each_entry(&window.document, path, &mut values);
        read.map_err(|error| window.malformed(&error))?;
        push_identity(&mut table, &window.name, count);
    }
    Ok(table)
}

/// Returns the table of windows: a row for each window, also for windows without data.
fn windows<'a>(
    windows: impl Iterator<Item = &'a StreamWindow>,
) -> Result<Vec<FilledColumn>, SendError> {
    let mut table = identity();
    table.push(FilledColumn::new(
        "duration_ns",
        ColumnKind::Unsigned { bits: 64 },
    ));
    table.push(FilledColumn::new(
        "lost_windows",
        ColumnKind::Unsigned { bits: 64 },
    ));
    for name in ["interfaces", "labels"] {
        table.push(FilledColumn::new(name, ColumnKind::Json));
    }
    table.push(FilledColumn::new("approximate", ColumnKind::Text));
    for window in windows {
        let facts = DocumentHead::of(window)?;
        let json = |value: &Value| {
            if value.is_null() {
                Cell::Missing
            } else {
                Cell::Text(value.to_string().into())
            }
        };
        let cells = [
            facts.window["duration_ns"]
                .as_u64()
                .map_or(Cell::Missing, Cell::Unsigned),
            Cell::Unsigned(facts.window["lost_windows"].as_u64().unwrap_or_default()),
            json(&facts.interfaces),
            json(&facts.labels),
            facts
                .approximate
                .map_or(Cell::Missing, |text| Cell::Text(text.into())),
        ];
        push(&mut table, cells);
        push_identity(&mut table, &window.name, 1);
    }
    Ok(table)
}
