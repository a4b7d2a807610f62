//! The metrics of one map. One reading of the map serves all of them, so that all metrics show the
//! same moment, and no value is removed from the map twice.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{RawTable, TableLayout};
use twinprobe_faults::crash;
use twinprobe_kernel::{Extraction, KernelError, MetricMap, Quiesced};

use crate::engine::error::CloseError;
use crate::engine::reading::metric::MetricState;

/// The receiver of a window's rows: it gets the place of a metric in the window, and then rows.
pub type RowSink<'a> = dyn FnMut(usize, &RawTable) -> io::Result<()> + 'a;

/// Returns the index of the first metric of each map.
pub fn groups(metrics: &[MetricState]) -> Vec<usize> {
    let firsts = metrics
        .iter()
        .enumerate()
        .filter(|(index, metric)| metric.group == *index);
    firsts.map(|(index, _)| index).collect()
}

fn members(metrics: &[MetricState], group: usize) -> impl Iterator<Item = &MetricState> {
    metrics.iter().filter(move |metric| metric.group == group)
}

/// Moves rows that packets may change meanwhile, or that can only be popped, out of the map of a
/// group into the journal of the window that has ended, and adds the window to the sums.
/// `boot_time_ns` is the time of the boot by the wall clock, from which its times are measured. A
/// second call changes nothing.
pub fn gather(
    metrics: &mut [MetricState],
    group: usize,
    quiesced: &Quiesced<'_>,
    boot_time_ns: i128,
) -> Result<(), CloseError> {
    let maps = Arc::clone(&metrics[group].maps);
    let is_drained = members(metrics, group).any(MetricState::is_drained);
    let positions = maps.maps.iter().map(|map| map.position);
    for (position, map) in positions.filter_map(|at| Some((at, quiesced.map(at)?))) {
        if is_drained {
            map.drain_into(&quiesced.journal(position))?;
        }
    }
    fit_carried(metrics, group, quiesced, boot_time_ns)?;
    let epoch = quiesced.epoch;
    if members(metrics, group).any(|metric| metric.awaits(epoch)) {
        let window = maps.read(|position| quiesced.map(position))?;
        metrics
            .iter_mut()
            .filter(|metric| metric.group == group)
            .for_each(|metric| metric.sum_up(&window, epoch, boot_time_ns));
    }
    Ok(())
}

/// Chooses the layout of a window with rows of earlier deployments. The head of the window contains
/// the layout before all rows are added. The window has the layout of the map if the numbers fit,
/// so that it has the same shape as other windows.
fn fit_carried(
    metrics: &mut [MetricState],
    group: usize,
    quiesced: &Quiesced<'_>,
    boot_time_ns: i128,
) -> Result<(), CloseError> {
    let is_with_more = |metric: &MetricState| {
        metric.group == group && metric.sum.is_none() && metric.carried.is_some()
    };
    if !metrics.iter().any(is_with_more) {
        return Ok(());
    }
    // The rows of a journal are not merged with other rows.
    let is_drained = members(metrics, group).any(MetricState::is_drained);
    let maps = Arc::clone(&metrics[group].maps);
    let rows = if is_drained {
        None
    } else {
        Some(maps.read(|position| quiesced.map(position))?)
    };
    for metric in metrics.iter_mut().filter(|metric| is_with_more(metric)) {
        let Some(carried) = &mut metric.carried else {
            continue;
        };
        metric.carried_fits = rows.as_ref().is_some_and(|rows| {
            let mut all = carried.clone();
            all.add(rows, 0, boot_time_ns);
            all.fitting(boot_time_ns).is_some()
        });
        if !metric.carried_fits {
            carried.widen();
        }
    }
    Ok(())
}

/// Passes on the rows of a window after [`gather`] to the metrics of a group, each with its place
/// in the window. `first` is the first metric of the group. The map or its journal keeps the rows
/// until [`clear`].
pub fn window(
    metrics: &[(usize, &MetricState)],
    first: &MetricState,
    quiesced: &Quiesced<'_>,
    boot_time_ns: i128,
    out: &mut RowSink<'_>,
) -> Result<(), CloseError> {
    if quiesced.map(first.position).is_none() {
        return Ok(());
    }
    let mut read = Vec::new();
    for (place, metric) in metrics {
        match &metric.sum {
            Some(sum) => {
                pieces(*place, sum.rows.table(), sum.rows.layout(), out)?;
                crash::point("summed");
            }
            None => read.push((*place, *metric)),
        }
    }
    if read.is_empty() {
        return Ok(());
    }
    read_maps(&read, first, quiesced, boot_time_ns, out)
}

/// Passes on the rows of the maps of a group to these metrics.
fn read_maps(
    read: &[(usize, &MetricState)],
    first: &MetricState,
    quiesced: &Quiesced<'_>,
    boot_time_ns: i128,
    out: &mut RowSink<'_>,
) -> Result<(), CloseError> {
    let maps = &first.maps;
    let each = || {
        maps.maps
            .iter()
            .filter_map(|of| Some((of, quiesced.map(of.position)?)))
    };
    if read.iter().any(|(_, metric)| metric.is_drained()) {
        for (place, metric) in read {
            if let Some(carried) = &metric.carried {
                pieces(*place, carried.table(), carried.layout(), out)?;
            }
        }
        let mut to_all = |rows: &RawTable| {
            read.iter()
                .try_for_each(|(place, metric)| match &metric.carried {
                    Some(carried) => out(*place, &carried.converted(rows, boot_time_ns)),
                    None => out(*place, rows),
                })
        };
        for (of, map) in each() {
            let mut named = |rows: &RawTable| to_all(&of.named(rows, &maps.layout));
            written(&mut named, |sink| {
                map.read_drained(&quiesced.journal(of.position), sink)
            })?;
        }
    } else if read.iter().any(|(_, metric)| metric.carried.is_some()) {
        let rows = maps.read(|position| quiesced.map(position))?;
        for (place, metric) in read {
            match metric.carried.clone() {
                Some(mut all) => {
                    all.add(&rows, 0, boot_time_ns);
                    match metric.carried_fits.then(|| all.narrowed(boot_time_ns)) {
                        Some(rows) => pieces(*place, &rows, &metric.metric.layout, out)?,
                        None => pieces(*place, all.table(), all.layout(), out)?,
                    }
                }
                None => pieces(*place, &rows, &metric.metric.layout, out)?,
            }
        }
    } else {
        let mut to_all = |rows: &RawTable| read.iter().try_for_each(|(place, _)| out(*place, rows));
        for (of, map) in each() {
            let mut named = |rows: &RawTable| to_all(&of.named(rows, &maps.layout));
            written(&mut named, |sink| map.read_chunks(AfterRead::Keep, sink))?;
        }
    }
    Ok(())
}

/// Removes the content of the stored window: empties the map at rest, or removes the journal. A map
/// that packets change and that no document shows is also emptied.
pub fn clear(
    metrics: &[MetricState],
    group: usize,
    quiesced: &Quiesced<'_>,
) -> Result<(), CloseError> {
    let is_drained = members(metrics, group).any(MetricState::is_drained);
    let is_emptied = |metric: &MetricState| match metric.extraction {
        Extraction::Clear => true,
        Extraction::Discard => !is_drained,
        Extraction::Drain | Extraction::Copy | Extraction::Stream => false,
    };
    let is_emptied = members(metrics, group).any(is_emptied);
    let positions = metrics[group].maps.maps.iter().map(|map| map.position);
    for (position, map) in positions.filter_map(|at| Some((at, quiesced.map(at)?))) {
        if is_emptied {
            map.empty()?;
        }
        if is_drained {
            MetricMap::forget_drained(&quiesced.journal(position))?;
            crash::point("discarded");
        }
    }
    Ok(())
}

/// The approximate size in bytes of the pieces in which the rows of a window are stored.
const PIECE: usize = 256 << 10;

fn pieces(
    place: usize,
    table: &RawTable,
    layout: &TableLayout,
    out: &mut RowSink<'_>,
) -> Result<(), CloseError> {
    let rows = (PIECE / (layout.key.size + layout.value_stride()).max(1)).max(1);
    for from in (0..table.len(layout)).step_by(rows) {
        out(place, &table.slice(from, from + rows, layout))?;
    }
    Ok(())
}

/// Passes on the rows that `read` reads to `out`.
fn written(
    out: &mut dyn FnMut(&RawTable) -> io::Result<()>,
    read: impl FnOnce(
        &mut dyn FnMut(&mut RawTable) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, KernelError>,
) -> Result<(), CloseError> {
    let mut failed = None;
    let mut sink = |chunk: &mut RawTable| match out(chunk) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    };
    let _ = read(&mut sink)?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}
