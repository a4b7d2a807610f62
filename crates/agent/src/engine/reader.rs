//! One metric of a probe that runs: where its content is, and what is known of it beside the maps.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use twinprobe_ebpf_common::convert::convert;
use twinprobe_ebpf_common::{MapFamily, RawTable, Shape, TableLayout};
use twinprobe_exporter::{Accumulator, MergeRules, Metric, Plans};

use super::reading::CloseError;
use super::spool::Spool;
use super::totals::{Saved, Totals};
use crate::config::{AfterRead, Direction, DirectionConfig, MetricConfig, ProbeConfig, Source, Visibility};
use crate::crash;
use crate::kernel::{Attached, Journal, KernelError, LoadedDirection, MetricMap, Remains, Taken};
use crate::report::{Finding, Rejection};

/// One metric and where its content is.
#[derive(Debug)]
pub(super) struct Reader {
    pub direction: Direction,
    /// Index of the direction among the attached ones, and of the metric in it.
    pub position: (usize, usize),
    pub config: MetricConfig,
    pub metric: Arc<Metric>,
    /// The sum of all windows so far, for a snapshot that is not reset.
    total: Option<Accumulator>,
    /// The last window in it.
    summed: u64,
    /// Whether the sum on disk is an older one.
    unsaved: bool,
    /// What the deployment before has counted of the open window.
    carried: Option<Accumulator>,
    /// What was taken out of the map for a window that is not stored yet.
    taken: Popped,
}

#[derive(Debug, Default)]
struct Popped {
    rows: RawTable,
    progress: Taken,
    /// Whether it is everything.
    done: bool,
}

/// How far one map is that belongs to no window and is reset.
#[derive(Debug, Default)]
pub(super) struct Extract {
    taken: Taken,
    pub done: bool,
    /// Where it goes; `None`: nobody sees it.
    pub spool: Option<Arc<Spool>>,
}

/// Where the rows of a window go.
type Out<'a> = dyn FnMut(&RawTable) -> io::Result<()> + 'a;

impl Reader {
    /// What has to be done for a reading that closes no window. A map that is not reset is read by the one who
    /// renders it.
    pub fn extract(&self, attached: &Attached) -> Extract {
        let resets = self.live(attached).is_some() && self.config.after_read() == AfterRead::Reset;
        let spool = (resets && self.is_shown()).then(Arc::default);
        Extract { done: !resets, spool, ..Extract::default() }
    }

    /// Takes everything out of a map that belongs to no window.
    pub fn take(&self, map: &MetricMap, table: &mut Extract) -> Result<(), KernelError> {
        if !table.done {
            let Extract { taken, spool, .. } = &mut *table;
            let mut keep = |chunk: &RawTable| {
                spool.iter().for_each(|spool| spool.push(chunk));
                ControlFlow::Continue(())
            };
            let _ = map.read_chunks(AfterRead::Reset, taken, &mut keep)?;
            table.done = true;
        }
        Ok(())
    }

    pub fn live<'a>(&self, attached: &'a Attached) -> Option<&'a Arc<MetricMap>> {
        attached.live_map(self.position.0, self.position.1)
    }

    pub fn is_shown(&self) -> bool {
        self.config.visibility() == Visibility::Export
    }

    /// Of its sum: `DIRECTION:MAP`.
    pub fn file(&self) -> String {
        format!("{}:{}", self.direction, self.config.map())
    }

    /// Of [`Self::carried`].
    fn carried_file(&self) -> String {
        format!("open:{}", self.file())
    }

    /// Saves the sum if the one on disk is older.
    pub fn save(&mut self, totals: &Totals) -> io::Result<()> {
        if let (Some(total), true) = (&self.total, self.unsaved) {
            totals.save(&self.file(), &self.metric.layout, self.summed, total.table())?;
            self.unsaved = false;
        }
        Ok(())
    }

    /// The sum is from now on one that has `epoch` as its last window.
    pub fn set_summed(&mut self, epoch: u64) {
        self.summed = epoch;
        self.unsaved = true;
    }

    /// Goes on with the sum that was saved.
    pub fn load(&mut self, totals: &Totals, adopted: bool) -> io::Result<()> {
        let file = self.file();
        let Some(total) = &mut self.total else { return Ok(()) };
        if let Some(Saved { epoch, table }) = totals.load(&file, &self.metric.layout)? {
            total.add(&table);
            // Where windows are not numbered on, that number means another one.
            self.summed = if adopted { epoch } else { 0 };
        }
        Ok(())
    }

    /// Saves what the deployment before has counted of the open window, which is that of `epoch`.
    pub fn save_carried(&self, totals: &Totals, epoch: u64) -> io::Result<()> {
        let Some(carried) = &self.carried else { return Ok(()) };
        totals.save(&self.carried_file(), &self.metric.layout, epoch, carried.table())
    }

    /// Goes on with what was saved of the open window, if that is the one of `epoch`.
    pub fn load_carried(&mut self, totals: &Totals, epoch: u64) -> io::Result<()> {
        let saved = totals.load(&self.carried_file(), &self.metric.layout)?;
        if let Some(Saved { table, .. }) = saved.filter(|saved| saved.epoch == epoch) {
            self.add(&table);
        }
        Ok(())
    }

    /// What is kept of it beside the maps.
    pub fn files(&self) -> impl Iterator<Item = String> {
        let sum = self.total.as_ref().map(|_| self.file());
        sum.into_iter().chain(self.carried.as_ref().map(|_| self.carried_file()))
    }

    /// Goes on with what `old` knows beside its map: the sum of the windows it has read, and what it was
    /// given of the open one.
    pub fn succeed(&mut self, old: &Self) {
        let converted = |known: &Accumulator| convert(known.table(), &old.metric.layout, &self.metric.layout);
        let sum = old.total.as_ref().and_then(converted);
        let open = old.carried.as_ref().and_then(converted);
        if let (Some(total), Some(rows)) = (&mut self.total, sum) {
            total.add(&rows);
        }
        open.iter().for_each(|rows| self.add(rows));
    }

    /// Goes on with what the maps before have counted and nobody has read.
    pub fn add_remains(&mut self, remains: &Remains) {
        let rows = remains_for(self.config.map(), remains, &self.metric.layout);
        rows.iter().for_each(|rows| self.add(rows));
    }

    /// What belongs to the open window and is in no map.
    fn add(&mut self, rows: &RawTable) {
        if let Some(total) = &mut self.total {
            total.add(rows);
        } else if self.config.source() == Source::Snapshot {
            let none = || Accumulator::new(Arc::clone(&self.metric.layout), &MergeRules::default());
            if let Some(mut window) = self.carried.take().or_else(|| none().ok()) {
                window.add(rows);
                self.carried = Some(window);
            }
        }
    }

    /// Hands on what belongs to the window of `epoch`, whose maps keep it until [`Self::clear`]; what can only be
    /// popped, the journal in the directory `journal` keeps.
    pub fn window(
        &mut self,
        map: &MetricMap,
        journal: &Path,
        epoch: u64,
        totals: &Totals,
        out: &mut Out<'_>,
    ) -> Result<(), CloseError> {
        if let Some(total) = &mut self.total {
            if self.summed != epoch {
                let mut window = RawTable::default();
                map.read(AfterRead::Keep, &mut Taken::default(), &mut window)?;
                total.add(&window);
                self.set_summed(epoch);
            }
            // Before the map is cleared: after a crash in between, the window is in the sum once.
            self.save(totals)?;
            crash::point("summed");
        }
        if !self.is_shown() {
            return Ok(());
        }
        if let Some(total) = &self.total {
            pieces(total.table(), &self.metric.layout, out)?;
        } else if self.is_popped() {
            let layout = &self.metric.layout;
            if let Some(carried) = &self.carried {
                pieces(carried.table(), layout, out)?;
            }
            let mut journal = Journal::open(journal, layout)?;
            map.drain_into(&mut journal)?;
            written(out, |sink| Ok(journal.read(sink)))?;
        } else if let Some(carried) = &self.carried {
            let mut window = RawTable::default();
            map.read(AfterRead::Keep, &mut Taken::default(), &mut window)?;
            let mut all = carried.clone();
            all.add(&window);
            pieces(all.table(), &self.metric.layout, out)?;
        } else {
            stream(map, out)?;
        }
        Ok(())
    }

    /// Hands on a map that belongs to no window, as it is now.
    pub fn live_rows(&mut self, map: &MetricMap, out: &mut Out<'_>) -> Result<(), CloseError> {
        if self.config.after_read() == AfterRead::Keep {
            return stream(map, out);
        }
        self.pop(map)?;
        pieces(&self.taken.rows, &self.metric.layout, out)
    }

    /// Empties the map of a window that is stored, and the journal of what was popped from it.
    pub fn clear(&self, map: &MetricMap, journal: &Path) -> Result<(), CloseError> {
        self.empty(map)?;
        if self.is_popped() {
            Journal::discard(journal)?;
        }
        Ok(())
    }

    /// Forgets what is in the map.
    pub fn empty(&self, map: &MetricMap) -> Result<(), KernelError> {
        let mut forget = |_: &RawTable| ControlFlow::Continue(());
        map.read_chunks(AfterRead::Reset, &mut Taken::default(), &mut forget).map(drop)
    }

    /// The window is stored: nothing of it has to be kept any more.
    pub fn forget_window(&mut self, totals: &Totals) {
        if self.carried.take().is_some() {
            totals.remove(&self.carried_file());
        }
        self.taken = Popped::default();
    }

    /// Whether the map can't be read without taking out what is in it.
    fn is_popped(&self) -> bool {
        self.metric.layout.kind.family() == MapFamily::Fifo
    }

    fn pop(&mut self, map: &MetricMap) -> Result<(), KernelError> {
        let Popped { rows, progress, done } = &mut self.taken;
        if !*done {
            map.read(AfterRead::Reset, progress, rows)?;
            *done = true;
        }
        Ok(())
    }
}

/// Rows that a window is stored in at once, in bytes about.
const PIECE: usize = 256 << 10;

fn pieces(table: &RawTable, layout: &TableLayout, out: &mut Out<'_>) -> Result<(), CloseError> {
    let rows = (PIECE / (layout.key.size + layout.value_stride()).max(1)).max(1);
    for from in (0..table.len(layout)).step_by(rows) {
        out(&table.slice(from, from + rows, layout))?;
    }
    Ok(())
}

/// Hands on a map chunk by chunk; it keeps its content.
fn stream(map: &MetricMap, out: &mut Out<'_>) -> Result<(), CloseError> {
    written(out, |sink| map.read_chunks(AfterRead::Keep, &mut Taken::default(), sink))
}

/// Hands on what `read` gives.
fn written(
    out: &mut Out<'_>,
    read: impl FnOnce(&mut dyn FnMut(&RawTable) -> ControlFlow<()>) -> Result<ControlFlow<()>, KernelError>,
) -> Result<(), CloseError> {
    let mut failed = None;
    let mut sink = |chunk: &RawTable| match out(chunk) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    };
    let _ = read(&mut sink)?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// The rows that are about `map`, which may be a variable of a section.
fn remains_for(map: &str, remains: &Remains, layout: &TableLayout) -> Option<RawTable> {
    if map == remains.map {
        return Some(remains.rows.clone());
    }
    let (section, name) = map.split_once(':')?;
    let Shape::Struct(variables) = &remains.layout.value.shape else { return None };
    let variable = variables.iter().find(|variable| section == remains.map && variable.name == name)?;
    let start = variable.bit_offset / 8;
    let values = remains.rows.values.get(start..start + layout.value.size)?.to_vec();
    Some(RawTable { values, ..RawTable::default() })
}

/// A reader for each metric. `merge` rules must name fields that the value has.
pub(super) fn readers(config: &ProbeConfig, loaded: &[LoadedDirection]) -> Result<Vec<Reader>, Rejection> {
    let mut readers = Vec::new();
    let mut findings = Vec::new();
    let directions: Vec<(Direction, &DirectionConfig)> = config.directions().collect();
    for (at, ((direction, config), loaded)) in directions.iter().zip(loaded).enumerate() {
        for (index, (metric, map)) in config.metrics().iter().zip(&loaded.twins.maps).enumerate() {
            let Some(layout) = map.layout() else { continue };
            // What is popped from a queue is events, which do not add up: each is shown once.
            let rules = metric.merge().filter(|_| layout.kind.family() != MapFamily::Fifo);
            let total = rules.map(|rules| Accumulator::new(Arc::clone(layout), rules)).transpose();
            let total = total.unwrap_or_else(|error| {
                let field = format!("{direction}.metrics[{index}].merge");
                findings.push(Finding::config(field, error.to_string()));
                None
            });
            readers.push(Reader {
                direction: *direction,
                position: (at, index),
                config: metric.clone(),
                metric: Arc::new(Metric {
                    name: metric.name().to_owned(),
                    map: metric.map().to_owned(),
                    help: metric.help().unwrap_or_default().to_owned(),
                    agg: metric.aggregation(),
                    layout: Arc::clone(layout),
                    reading: counted_from(metric),
                    plans: Plans::default(),
                }),
                total,
                summed: 0,
                unsaved: false,
                carried: None,
                taken: Popped::default(),
            });
        }
    }
    if findings.is_empty() { Ok(readers) } else { Err(Rejection { findings, log: None }) }
}

fn counted_from(metric: &MetricConfig) -> twinprobe_exporter::Reading {
    use twinprobe_exporter::Reading;
    match (metric.merge(), metric.after_read()) {
        (Some(_), _) => Reading::Cumulative,
        (None, AfterRead::Reset) => Reading::Window,
        (None, AfterRead::Keep) => Reading::Live,
    }
}
