//! One metric of a probe that runs: where its content is, and what is known of it beside the maps.

use std::ops::ControlFlow;
use std::sync::Arc;

use twinprobe_ebpf_common::convert::convert;
use twinprobe_ebpf_common::{MapFamily, RawTable, Shape, TableLayout};
use twinprobe_exporter::{Accumulator, MergeRules, Metric, Plans};

use super::spool::Spool;
use super::totals::Totals;
use crate::config::{AfterRead, Direction, DirectionConfig, MetricConfig, ProbeConfig, Source, Visibility};
use crate::crash;
use crate::kernel::{Attached, KernelError, LoadedDirection, MetricMap, Remains, Taken};
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
    pub total: Option<Accumulator>,
    /// The last window in it.
    pub summed: u64,
    /// What the deployment before has counted of the open window.
    carried: Option<Accumulator>,
}

/// How far one map is.
#[derive(Debug, Default)]
pub(super) struct Extract {
    taken: Taken,
    pub done: bool,
    /// Where it goes; `None`: nobody sees it.
    pub spool: Option<Arc<Spool>>,
    /// Of a window that is added to a total.
    partial: RawTable,
}

impl Reader {
    /// What has to be done for a new reading. A live map that is not reset is read by the one who renders it.
    pub fn extract(&self, attached: &Attached) -> Extract {
        let (direction, metric) = self.position;
        let live = attached.live_map(direction, metric).is_some();
        let done = live && self.config.after_read() == AfterRead::Keep;
        Extract { done, spool: (!done && self.is_shown()).then(Arc::default), ..Extract::default() }
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

    /// Saves the sum, of which `epoch` is the last window.
    pub fn save(&mut self, totals: &Totals, epoch: u64) {
        let Some(total) = &self.total else { return };
        self.summed = epoch;
        if let Err(error) = totals.save(&self.file(), &self.metric.layout, epoch, total.table()) {
            let metric = self.config.name();
            tracing::error!(metric, %error, "a sum of windows can't be saved: it will not survive a crash");
        }
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

    /// Takes everything out of the map. A cumulative snapshot is reset, too: its windows are added up here.
    pub fn take(
        &mut self,
        map: &MetricMap,
        table: &mut Extract,
        window: Option<(u64, &Totals)>,
    ) -> Result<(), KernelError> {
        if table.done {
            return Ok(());
        }
        if let (Some((epoch, totals)), Some(total)) = (window, &mut self.total)
            && self.summed != epoch
        {
            // Before the map is cleared: after a crash in between, the window is in the sum once.
            map.read(AfterRead::Keep, &mut Taken::default(), &mut table.partial)?;
            total.add(&std::mem::take(&mut table.partial));
            self.save(totals, epoch);
            crash::point("summed");
        }
        let Extract { taken, spool, partial, .. } = table;
        match &self.total {
            Some(total) => {
                let mut forget = |_: &RawTable| ControlFlow::Continue(());
                let _ = map.read_chunks(AfterRead::Reset, taken, &mut forget)?;
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
