//! Algorithm 2 of the paper: flip if a metric asks for it, extract, reset.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use tokio::sync::watch;
use twinprobe_ebpf_common::convert::convert;
use twinprobe_ebpf_common::{MapFamily, RawTable, Shape, TableLayout};
use twinprobe_exporter::{Accumulator, MergeRules, Metric, Plans, Window};

use super::delivery::{Delivery, Part, Reading, Rows, Undelivered};
use super::interfaces::{Wanted, refused, wanted};
use super::live::LiveMap;
use super::placement::Pending;
use super::spool::Spool;
use crate::config::{
    AfterRead, Direction, DirectionConfig, InterfacePattern, MetricConfig, OnReplace, ProbeConfig, Source,
    Visibility,
};
use crate::kernel::{Attached, KernelError, LoadedDirection, MetricMap, Remains, Taken, with_causes};
use crate::report::{Finding, Rejection};

/// A probe that is attached and read.
#[derive(Debug)]
pub(super) struct Running {
    config: ProbeConfig,
    attached: Attached,
    readers: Vec<Reader>,
    /// When the open window began.
    opened: Timestamp,
    /// When the window was closed that could not be read yet.
    closed: Option<Timestamp>,
    /// What a failure kept from its end. The next reader goes on with it.
    extraction: Option<Extraction>,
    undelivered: Undelivered,
    skipped: Arc<AtomicU64>,
    /// Closed with the probe.
    gone: watch::Sender<()>,
    pending: Vec<Pending>,
}

/// One metric and where its content is.
#[derive(Debug)]
pub(super) struct Reader {
    direction: Direction,
    /// Index of the direction among the attached ones, and of the metric in it.
    position: (usize, usize),
    config: MetricConfig,
    metric: Arc<Metric>,
    /// The sum of all windows so far, for a snapshot that is not reset.
    total: Option<Accumulator>,
    /// What the deployment before has counted of the open window.
    carried: Option<Accumulator>,
}

/// A reading whose maps have not been read to their end.
#[derive(Debug)]
struct Extraction {
    reading: Arc<Reading>,
    /// Whether the idle twin has not been read and reset yet.
    window: bool,
    /// One for each reader.
    tables: Vec<Extract>,
}

/// How far one map is.
#[derive(Debug, Default)]
struct Extract {
    taken: Taken,
    done: bool,
    /// Where it goes; `None`: nobody sees it.
    spool: Option<Arc<Spool>>,
    /// Of a window that is added to a total.
    partial: RawTable,
}

impl Running {
    pub fn new(config: ProbeConfig, attached: Attached, readers: Vec<Reader>, opened: Timestamp) -> Self {
        attached.set_opened(nanoseconds(opened));
        Self {
            config,
            attached,
            readers,
            opened,
            closed: None,
            extraction: None,
            undelivered: Undelivered::default(),
            skipped: Arc::default(),
            gone: watch::Sender::default(),
            pending: Vec::new(),
        }
    }

    /// What keeps it from being where it should be.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    pub fn set_pending(&mut self, pending: Vec<Pending>) {
        self.pending = pending;
    }

    /// Attaches it to the interfaces there are now, and detaches it from those that have gone.
    pub fn follow(&mut self, gone: &BTreeSet<u32>) {
        match wanted(&self.config, false) {
            Ok(Wanted { interfaces, pending }) => {
                self.pending = pending;
                self.pending.extend(refused(self.attached.place(&interfaces, gone)));
            }
            Err(rejection) => tracing::error!(?rejection, "a probe can't follow its interfaces"),
        }
    }

    /// Takes the place of `old`, which sees packets no more, with all that it has not handed on yet.
    pub fn succeed(&mut self, old: Self) {
        let Self { attached, readers, undelivered, skipped, opened, closed, .. } = old;
        (self.undelivered, self.skipped) = (undelivered, skipped);
        (self.opened, self.closed) = (opened, closed);
        self.attached.set_opened(nanoseconds(opened));
        let remains = self.attached.retire(&attached);
        for reader in self.readers.iter_mut().filter(|reader| reader.config.on_replace() == OnReplace::Carry)
        {
            let map = reader.config.map();
            let same = |old: &&Reader| old.direction == reader.direction && old.config.map() == map;
            if let Some(old) = readers.iter().find(same) {
                reader.succeed(old);
            }
            let direction = reader.direction.name();
            for remains in remains.iter().filter(|remains| remains.direction == direction) {
                reader.add_remains(remains);
            }
        }
    }

    /// So that nothing is left in maps that are about to be replaced.
    pub fn finish_extraction(&mut self) -> Result<(), KernelError> {
        let Some(mut extraction) = self.extraction.take() else { return Ok(()) };
        extraction.spools().for_each(|spool| spool.reopen());
        let taken = self.take(&mut extraction);
        if taken.is_err() {
            self.extraction = Some(extraction);
        }
        taken
    }

    pub const fn attached(&self) -> &Attached {
        &self.attached
    }

    pub fn detach(self) {
        drop(self.gone);
        self.attached.detach();
    }

    /// A reading that an error or a client kept from its end, else a new one. Its header is known; its rows
    /// are there once [`Self::extract`] has taken them.
    pub fn begin(&mut self, name: &str) -> Result<Delivery, KernelError> {
        if let Some(extraction) = &self.extraction {
            extraction.spools().for_each(|spool| spool.reopen());
            return Ok(self.undelivered.again(&extraction.reading));
        }
        if let Some(abandoned) = self.undelivered.abandoned() {
            return Ok(abandoned);
        }
        let window = self.close_window()?;
        let tables: Vec<Extract> = self.readers.iter().map(|reader| reader.extract(&self.attached)).collect();
        let reading = Arc::new(Reading {
            probe: name.to_owned(),
            interfaces: self.interfaces(),
            format: self.config.format(),
            parts: self.parts(&tables),
            skipped: Arc::clone(&self.skipped),
            window,
        });
        let takes = tables.iter().any(|table| !table.done);
        let delivery = self.undelivered.deliver(Arc::clone(&reading), takes);
        if takes {
            self.extraction = Some(Extraction { window: reading.window.is_some(), reading, tables });
        }
        Ok(delivery)
    }

    /// Takes out of the maps what the reading that was begun consists of. After an error nothing is lost:
    /// the next reader goes on where this one ended.
    pub fn extract(&mut self) {
        let Some(mut extraction) = self.extraction.take() else { return };
        if let Err(error) = self.take(&mut extraction) {
            let reason = with_causes(&error);
            tracing::error!(
                probe = extraction.reading.probe,
                reason,
                "a reading failed; the next one goes on"
            );
            extraction.spools().for_each(|spool| spool.fail(&reason));
            self.extraction = Some(extraction);
        }
    }

    /// By name; those that patterns stand for now.
    fn interfaces(&self) -> Vec<String> {
        if !self.config.patterns().iter().any(InterfacePattern::is_pattern) {
            return self.config.interfaces().to_vec();
        }
        let mut names: Vec<String> =
            self.attached.places().iter().map(|at| at.place.interface.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Flips and waits until the twin that was left is at rest.
    fn close_window(&mut self) -> Result<Option<Window>, KernelError> {
        if !self.config.has_snapshot() {
            return Ok(None);
        }
        let end = *self.closed.get_or_insert_with(Timestamp::now);
        let quiesced = self.attached.flip()?;
        let window = Window {
            seq: quiesced.epoch(),
            start: timestamp(self.opened),
            end: timestamp(end),
            quiesce_us: u64::try_from(quiesced.quiesced().as_micros()).unwrap_or(u64::MAX),
        };
        self.opened = end;
        self.attached.set_opened(nanoseconds(end));
        self.closed = None;
        Ok(Some(window))
    }

    fn parts(&self, tables: &[Extract]) -> Vec<Part> {
        let mut parts = Vec::new();
        for (reader, table) in self.readers.iter().zip(tables) {
            let rows = match (&table.spool, reader.live(&self.attached)) {
                (Some(spool), _) => Rows::Kept(Arc::clone(spool)),
                (None, Some(map)) if reader.is_shown() => {
                    Rows::Live(LiveMap::new(Arc::clone(map), self.gone.subscribe()))
                }
                _ => continue,
            };
            let direction = match reader.direction {
                Direction::Ingress => twinprobe_exporter::Direction::Ingress,
                Direction::Egress => twinprobe_exporter::Direction::Egress,
            };
            parts.push(Part { direction, metric: Arc::clone(&reader.metric), rows });
        }
        parts
    }

    fn take(&mut self, extraction: &mut Extraction) -> Result<(), KernelError> {
        if extraction.window {
            // The flip has been made: this gives its guard again.
            let quiesced = self.attached.flip()?;
            for (reader, table) in self.readers.iter_mut().zip(&mut extraction.tables) {
                let (direction, metric) = reader.position;
                if let Some(map) = quiesced.map(direction, metric) {
                    reader.take(map, table)?;
                }
            }
            quiesced.finish();
            extraction.window = false;
        }
        for (reader, table) in self.readers.iter_mut().zip(&mut extraction.tables) {
            let (direction, metric) = reader.position;
            if let Some(map) = self.attached.live_map(direction, metric) {
                reader.take(map, table)?;
            }
        }
        Ok(())
    }
}

impl Extraction {
    fn spools(&self) -> impl Iterator<Item = &Arc<Spool>> {
        self.tables.iter().filter_map(|table| table.spool.as_ref())
    }
}

impl Reader {
    /// What has to be done for a new reading. A live map that is not reset is read by the one who renders it.
    fn extract(&self, attached: &Attached) -> Extract {
        let (direction, metric) = self.position;
        let live = attached.live_map(direction, metric).is_some();
        let done = live && self.config.after_read() == AfterRead::Keep;
        Extract { done, spool: (!done && self.is_shown()).then(Arc::default), ..Extract::default() }
    }

    fn live<'a>(&self, attached: &'a Attached) -> Option<&'a Arc<MetricMap>> {
        attached.live_map(self.position.0, self.position.1)
    }

    fn is_shown(&self) -> bool {
        self.config.visibility() == Visibility::Export
    }

    /// Goes on with what `old` knows beside its map: the sum of the windows it has read, and what it was
    /// given of the open one.
    fn succeed(&mut self, old: &Self) {
        let converted = |known: &Accumulator| convert(known.table(), &old.metric.layout, &self.metric.layout);
        let sum = old.total.as_ref().and_then(converted);
        let open = old.carried.as_ref().and_then(converted);
        if let (Some(total), Some(rows)) = (&mut self.total, sum) {
            total.add(&rows);
        }
        open.iter().for_each(|rows| self.add(rows));
    }

    /// Goes on with what the maps before have counted and nobody has read.
    fn add_remains(&mut self, remains: &Remains) {
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

    /// Takes everything out of the map. A cumulative snapshot is reset, too: its windows are added up here.
    fn take(&mut self, map: &MetricMap, table: &mut Extract) -> Result<(), KernelError> {
        if table.done {
            return Ok(());
        }
        let Extract { taken, spool, partial, .. } = table;
        match &mut self.total {
            Some(total) => {
                map.read(AfterRead::Reset, taken, partial)?;
                total.add(&std::mem::take(partial));
                spool.iter().for_each(|spool| spool.push(total.table()));
            }
            None if self.carried.is_some() => {
                map.read(AfterRead::Reset, taken, partial)?;
                if let Some(mut window) = self.carried.take() {
                    window.add(&std::mem::take(partial));
                    spool.iter().for_each(|spool| spool.push(window.table()));
                }
            }
            None => {
                let mut keep = |chunk: &RawTable| {
                    spool.iter().for_each(|spool| spool.push(chunk));
                    ControlFlow::Continue(())
                };
                let _ = map.read_chunks(AfterRead::Reset, taken, &mut keep)?;
            }
        }
        spool.iter().for_each(|spool| spool.complete());
        table.done = true;
        Ok(())
    }
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

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or_default()
}

/// RFC 3339 with nanoseconds, in UTC.
pub(super) fn timestamp(at: Timestamp) -> String {
    format!("{at:.9}")
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
                carried: None,
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
