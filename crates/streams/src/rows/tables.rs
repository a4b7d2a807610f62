//! A receiver that keeps windows as files of Parquet, wherever [`ObjectPlace`] puts them.
//!
//! A batch becomes a file for each series, hour and table. Its name says which windows it holds. Before a
//! directory gets its first file, the receiver lists its files; windows that are there are not written again.
//! So a stream that was killed anywhere continues without repeats.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use twinprobe_ebpf_common::window::shape::{MetricShape, WindowShape};

use super::cell::{Cell, CellRow, nanoseconds, rows};
use super::columns::{ColumnKind, IDENTITY, REST, columns};
use super::names;
use super::objects::ObjectPlace;
use super::parquet::{FilledColumn, file};
use crate::names::part;
use crate::receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, SeriesName, StreamGap, StreamItem,
    StreamWindow,
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
    /// The places in the batch, and the windows with their documents.
    windows: Vec<(usize, &'a StreamWindow, Value)>,
}

impl<P: ObjectPlace> ParquetTables<P> {
    /// `every` is how long windows are gathered for a file; `memory` is the most bytes of documents that are on their way.
    pub fn new(place: P, every: Duration, memory: usize) -> Self {
        // A batch is full before the stream has no memory left, so that nothing waits for the time to pass.
        let limits = BatchLimits { items: 4096, bytes: memory / 8, linger: every };
        Self { place, limits, held: HashMap::new() }
    }

    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<Receipt, SendError> {
        let mut fates = vec![ItemFate::Repeat; batch.len()];
        for group in groups(batch)? {
            let metrics = group
                .shape
                .metrics
                .iter()
                .map(|metric| (format!("{}.{}", metric.direction.name(), metric.name), Some(metric)));
            // The table of windows comes last: a window that is in it is in all others.
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
            let found = self.place.list(&directory, &names::prefix(&group.series)).await?;
            let held = found.iter().filter_map(|name| names::held(&group.series, name)).collect();
            self.held.insert(place.clone(), held);
        }
        let held = &self.held[&place];
        let is_new = |seq: u64| !held.iter().any(|(first, last)| (*first..=*last).contains(&seq));
        let new: Vec<&(usize, &StreamWindow, Value)> =
            group.windows.iter().filter(|(_, window, _)| is_new(window.name.seq)).collect();
        let (Some((_, first, _)), Some((_, last, _))) = (new.first(), new.last()) else { return Ok(()) };
        let (first, last) = (first.name.seq, last.name.seq);
        let documents = new.iter().map(|(_, window, document)| (&window.name, document));
        let content = match metric {
            Some(metric) => file(&entries(metric, documents))?,
            None => file(&windows(documents))?,
        };
        let path = format!("{directory}/{}", names::file(&group.series, first, last));
        self.place.put(&path, content).await?;
        self.held.entry(place).or_default().push((first, last));
        new.iter().for_each(|(at, ..)| fates[*at] = ItemFate::Stored);
        Ok(())
    }

    async fn gap(&mut self, gap: &StreamGap) -> Result<(), SendError> {
        let StreamGap { name, last, windows } = gap;
        let SeriesName { node, instance, probe } = &*name.series;
        let text = |name: &str, value: &str| FilledColumn {
            name: name.to_owned(),
            kind: ColumnKind::Text,
            cells: vec![Cell::Text(value.to_owned())],
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
        let path = format!("{}/{GAPS}/{}", part(probe), names::file(&name.series, name.seq, *last));
        self.place.put(&path, content).await
    }
}

impl<P: ObjectPlace> Receiver for ParquetTables<P> {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn send<'a>(&'a mut self, batch: &'a [Arc<StreamItem>]) -> BoxFuture<'a, Result<Receipt, SendError>> {
        async move {
            let sent = self.store(batch).await;
            if sent.is_err() {
                // A file may be there although its answer is missing.
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
}

/// Returns the windows of a batch by series, hour and shape.
fn groups(batch: &[Arc<StreamItem>]) -> Result<Vec<HourGroup<'_>>, SendError> {
    let mut groups: BTreeMap<(Arc<SeriesName>, String, String), HourGroup<'_>> = BTreeMap::new();
    for (at, item) in batch.iter().enumerate() {
        let StreamItem::Window(window) = &**item else { continue };
        let ItemName { series, end, .. } = &window.name;
        let hour = end.get(..13).unwrap_or_default().to_owned();
        let group = groups.entry((Arc::clone(series), hour, window.shape.digest.clone()));
        let group = group.or_insert_with(|| HourGroup {
            series: Arc::clone(series),
            shape: Arc::clone(&window.shape),
            end: Arc::clone(end),
            windows: Vec::new(),
        });
        group.windows.push((at, window, window.parsed()?));
    }
    Ok(groups.into_values().collect())
}

/// The columns that each table begins with, empty.
fn identity() -> Vec<FilledColumn> {
    let kind = |name: &str| match name {
        "seq" => ColumnKind::Unsigned { bits: 64 },
        "window_start" | "window_end" => ColumnKind::Time,
        _ => ColumnKind::Text,
    };
    IDENTITY.iter().map(|name| FilledColumn::new(*name, kind(name))).collect()
}

fn push_identity(columns: &mut [FilledColumn], name: &ItemName) {
    let SeriesName { node, instance, probe } = &*name.series;
    let time = |text: &str| nanoseconds(text).map_or(Cell::Missing, Cell::Time);
    let cells = [
        Cell::Text(node.clone()),
        Cell::Text(probe.clone()),
        Cell::Text(instance.clone()),
        Cell::Unsigned(name.seq),
        time(&name.start),
        time(&name.end),
    ];
    columns.iter_mut().zip(cells).for_each(|(column, cell)| column.cells.push(cell));
}

/// Returns the table of a metric: a row for each entry.
fn entries<'a>(
    metric: &MetricShape,
    documents: impl Iterator<Item = (&'a ItemName, &'a Value)>,
) -> Vec<FilledColumn> {
    let parts = columns(metric);
    let mut table = identity();
    table.extend(parts.iter().map(|part| FilledColumn::new(part.name.clone(), part.kind)));
    table.push(FilledColumn::new(REST, ColumnKind::Json));
    for (name, document) in documents {
        let entries = &document[metric.direction.name()][&metric.name]["entries"];
        for entry in entries.as_array().into_iter().flatten() {
            for CellRow { cells, rest } in rows(entry, &parts, metric.per_cpu) {
                push_identity(&mut table, name);
                let rest = rest.map_or(Cell::Missing, Cell::Text);
                let places = table[IDENTITY.len()..].iter_mut();
                places
                    .zip(cells.into_iter().chain([rest]))
                    .for_each(|(column, cell)| column.cells.push(cell));
            }
        }
    }
    table
}

/// Returns the table of windows: a row for each window, also for windows without data.
fn windows<'a>(documents: impl Iterator<Item = (&'a ItemName, &'a Value)>) -> Vec<FilledColumn> {
    let mut table = identity();
    table.push(FilledColumn::new("duration_ns", ColumnKind::Unsigned { bits: 64 }));
    table.push(FilledColumn::new("lost_windows", ColumnKind::Unsigned { bits: 64 }));
    for name in ["interfaces", "labels"] {
        table.push(FilledColumn::new(name, ColumnKind::Json));
    }
    table.push(FilledColumn::new("approximate", ColumnKind::Text));
    for (name, document) in documents {
        push_identity(&mut table, name);
        let window = &document["window"];
        let json =
            |value: &Value| if value.is_null() { Cell::Missing } else { Cell::Text(value.to_string()) };
        let cells = [
            window["duration_ns"].as_u64().map_or(Cell::Missing, Cell::Unsigned),
            Cell::Unsigned(window["lost_windows"].as_u64().unwrap_or_default()),
            json(&document["interfaces"]),
            json(&document["labels"]),
            document["approximate"].as_str().map_or(Cell::Missing, |text| Cell::Text(text.to_owned())),
        ];
        let places = table[IDENTITY.len()..].iter_mut();
        places.zip(cells).for_each(|(column, cell)| column.cells.push(cell));
    }
    table
}
