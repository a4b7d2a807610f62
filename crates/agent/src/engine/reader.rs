//! One metric of a probe that runs: where its content is, and what is known of it beside the maps.

mod more;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use twinprobe_ebpf_common::{MapFamily, RawTable, TableLayout};
use twinprobe_exporter::{Accumulator, Cache, Metric, Temporality};
use twinprobe_kernel::{Attached, Journal, KernelError, LoadedDirection, MetricMap, Taken, crash};

use self::more::Sum;
use super::reading::CloseError;
use super::spool::Spool;
use crate::config::{AfterRead, Direction, MetricConfig, ProbeConfig, Visibility};
use twinprobe_ebpf_common::finding::Rejection;

/// One metric and where its content is.
#[derive(Debug)]
pub(super) struct Reader {
    pub direction: Direction,
    /// Index of the direction among the attached ones, and of the metric in it.
    pub position: (usize, usize),
    pub config: MetricConfig,
    pub metric: Arc<Metric>,
    /// The sum, for a snapshot that is not reset.
    sum: Option<Sum>,
    /// The rows of the open window that earlier deployments have counted.
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

    /// Hands on the rows of a window. The maps keep the rows until [`Self::clear`]; rows that can only be popped are
    /// kept by the journal in the directory `journal`.
    pub fn window(&self, map: &MetricMap, journal: &Path, out: &mut Out<'_>) -> Result<(), CloseError> {
        if let Some(sum) = &self.sum {
            pieces(sum.rows.table(), &self.metric.layout, out)?;
            crash::point("summed");
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
            all.add(&window, 0);
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
    pub fn forget_window(&mut self) {
        self.carried = None;
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

/// A reader for each metric. `merge` rules must name fields that the value has.
pub(super) fn readers(config: &ProbeConfig, loaded: &[LoadedDirection]) -> Result<Vec<Reader>, Rejection> {
    let mut readers = Vec::new();
    let mut findings = Vec::new();
    for (at, ((direction, config), loaded)) in config.directions().zip(loaded).enumerate() {
        for (index, (metric, planned)) in config.metrics().iter().zip(&loaded.plan.metrics).enumerate() {
            let Some(layout) = planned.layout() else { continue };
            let entries = loaded.plan.maps[planned.map].spec.max_entries as usize;
            let sum = more::sum(metric, entries, layout).unwrap_or_else(|(field, message)| {
                findings.push(planned.request.finding(field, message));
                None
            });
            readers.push(Reader {
                direction,
                position: (at, index),
                config: metric.clone(),
                metric: Arc::new(Metric {
                    name: metric.name().to_owned(),
                    map: metric.map().to_owned(),
                    help: metric.help().unwrap_or_default().to_owned(),
                    agg: metric.aggregation(),
                    layout: Arc::clone(layout),
                    temporality: counted_from(metric),
                    dropped: 0,
                    cache: Cache::default(),
                }),
                sum,
                carried: None,
                taken: Popped::default(),
            });
        }
    }
    if findings.is_empty() { Ok(readers) } else { Err(Rejection { findings, log: None }) }
}

fn counted_from(metric: &MetricConfig) -> Temporality {
    match (metric.merge(), metric.after_read()) {
        (Some(_), _) => Temporality::Cumulative,
        (None, AfterRead::Reset) => Temporality::Window,
        (None, AfterRead::Keep) => Temporality::Live,
    }
}
