//! One metric of a probe that runs: the location of its content, and the rows that are kept beside its map.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_ebpf_common::hook::Direction;
use twinprobe_ebpf_common::metric::{AfterRead, Visibility};
use twinprobe_ebpf_common::{Completeness, Layout, MapFamily, MapKind, RawTable, TableLayout, Temporality};
use twinprobe_exporter::{Accumulator, Cache, Metric};
use twinprobe_kernel::{Extraction, KernelError, LoadedDirection, MetricMap, MetricRequest, Quiesced, crash};

use crate::config::probe::{MetricConfig, ProbeConfig};
use crate::engine::error::CloseError;
use crate::engine::probe::sum::{self, Sum};

/// The state of one metric, and the location of its content.
#[derive(Debug)]
pub struct MetricState {
    pub direction: Direction,
    /// The index of the direction among the attached directions, and the index of the metric in that direction.
    pub position: (usize, usize),
    pub request: MetricRequest,
    pub metric: Arc<Metric>,
    /// The sum, for a snapshot that is not reset.
    pub sum: Option<Sum>,
    /// The rows of the open window that earlier deployments have counted.
    pub carried: Option<Accumulator>,
    pub extraction: Extraction,
    /// The position of the counter of what found no room in the map.
    pub losses: Option<(usize, usize)>,
    /// For such a counter: its number when the last window ended, if this is known.
    pub lost_before: Option<u64>,
}

/// The receiver of a window's rows.
type Out<'a> = dyn FnMut(&RawTable) -> io::Result<()> + 'a;

impl MetricState {
    /// Tells whether a reading shows the metric.
    pub fn is_shown(&self) -> bool {
        self.request.visibility == Visibility::Export
    }

    /// Moves rows that packets may change meanwhile, or that can only be popped, out of the map into the journal of the
    /// window that has ended, and adds the window to the sum. A second call changes nothing.
    pub fn gather(&mut self, quiesced: &Quiesced<'_>) -> Result<(), CloseError> {
        let Some(map) = quiesced.map(self.position) else { return Ok(()) };
        if self.is_drained() {
            map.drain_into(&quiesced.journal(self.position))?;
        }
        if self.extraction == Extraction::Clear {
            self.sum_up(map, quiesced.epoch)?;
        }
        Ok(())
    }

    /// Hands on the rows of a window after [`Self::gather`]. The map or its journal keeps the rows until
    /// [`Self::clear`].
    pub fn window(&self, quiesced: &Quiesced<'_>, out: &mut Out<'_>) -> Result<(), CloseError> {
        let Some(map) = quiesced.map(self.position) else { return Ok(()) };
        let layout = &self.metric.layout;
        if let Some(sum) = &self.sum {
            pieces(sum.rows.table(), layout, out)?;
            crash::point("summed");
        } else if self.is_drained() {
            if let Some(carried) = &self.carried {
                pieces(carried.table(), layout, out)?;
            }
            written(out, |sink| map.read_drained(&quiesced.journal(self.position), sink))?;
        } else if let Some(carried) = &self.carried {
            let mut all = carried.clone();
            all.add(&map.read(AfterRead::Keep)?, 0);
            pieces(all.table(), layout, out)?;
        } else {
            written(out, |sink| map.read_chunks(AfterRead::Keep, sink))?;
        }
        Ok(())
    }

    /// Removes the content of the stored window: empties the map at rest, or forgets the journal. A map that packets
    /// change and that no document shows is emptied, too.
    pub fn clear(&self, quiesced: &Quiesced<'_>) -> Result<(), CloseError> {
        let Some(map) = quiesced.map(self.position) else { return Ok(()) };
        if matches!(self.extraction, Extraction::Clear | Extraction::Discard) {
            map.empty()?;
        }
        if self.is_drained() {
            MetricMap::forget_drained(&quiesced.journal(self.position))?;
            crash::point("discarded");
        }
        Ok(())
    }

    /// Tells whether the rows of a window are moved into a journal.
    fn is_drained(&self) -> bool {
        let popped = self.metric.layout.kind.family() == MapFamily::Fifo;
        self.extraction == Extraction::Drain || self.extraction == Extraction::Clear && popped
    }
}

/// The approximate size in bytes of the pieces in which the rows of a window are stored.
const PIECE: usize = 256 << 10;

fn pieces(table: &RawTable, layout: &TableLayout, out: &mut Out<'_>) -> Result<(), CloseError> {
    let rows = (PIECE / (layout.key.size + layout.value_stride()).max(1)).max(1);
    for from in (0..table.len(layout)).step_by(rows) {
        out(&table.slice(from, from + rows, layout))?;
    }
    Ok(())
}

/// Hands the rows that `read` reads on to `out`.
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

/// The layout of events, which are no rows.
const fn no_rows() -> TableLayout {
    TableLayout {
        kind: MapKind::Global,
        key: Layout::opaque(0),
        value: Layout::opaque(0),
        slots: 1,
        inner: None,
    }
}

/// Returns the state of each metric that has a layout or a counter of losses. Rejects `merge` rules and `sum_entries` that do not fit the map.
pub fn readers(config: &ProbeConfig, loaded: &[LoadedDirection]) -> Result<Vec<MetricState>, Rejection> {
    let mut readers = Vec::new();
    let mut findings = Vec::new();
    for (at, ((direction, config), loaded)) in config.directions().zip(loaded).enumerate() {
        for (index, planned) in loaded.plan.metrics.iter().enumerate() {
            // Behind the metrics of the configuration are the counters of losses.
            let counter = || MetricConfig { request: planned.request.clone(), help: None, sum_entries: None };
            let metric = &config.metrics.get(index).cloned().unwrap_or_else(counter);
            let events = planned.events().filter(|_| planned.losses.is_some());
            let layout = planned.layout().cloned().or_else(|| events.map(|_| Arc::new(no_rows())));
            let Some(layout) = &layout else { continue };
            let extraction = planned.extraction;
            let temporality = match metric.request.merge {
                Some(_) => Temporality::Cumulative,
                None if extraction.resets() => Temporality::Window,
                None => Temporality::Live,
            };
            let entries = loaded.plan.maps[planned.map].spec.max_entries;
            let bounded = events.is_none() && layout.kind.family() != MapFamily::Global;
            let sum = sum::sum(metric, entries as usize, layout).unwrap_or_else(|(field, message)| {
                findings.push(planned.request.finding(field, message));
                None
            });
            readers.push(MetricState {
                direction,
                position: (at, index),
                request: metric.request.clone(),
                metric: Arc::new(Metric {
                    name: metric.request.name.clone(),
                    map: metric.request.map.clone(),
                    help: metric.help.clone().unwrap_or_default(),
                    agg: metric.request.aggregation,
                    sample: config.attach.sample,
                    layout: Arc::clone(layout),
                    temporality,
                    dropped: 0,
                    events,
                    completeness: Completeness {
                        max_entries: bounded.then_some(entries),
                        ..Completeness::default()
                    },
                    cache: Cache::default(),
                }),
                sum,
                carried: None,
                extraction,
                losses: planned.losses.map(|counter| (at, counter)),
                lost_before: None,
            });
        }
    }
    if findings.is_empty() { Ok(readers) } else { Err(Rejection { findings, log: None }) }
}
