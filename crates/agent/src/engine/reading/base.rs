//! The base of a deployment: the sums of all windows so far, and rows of the open window, from the
//! predecessor or from disk.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use twinprobe_ebpf_common::{RawTable, TableLayout, carries_over};
use twinprobe_faults::crash;
use twinprobe_kernel::{Deployable, LoadedDirection, Remains};
use twinprobe_store::Durable;
use twinprobe_windows::{BaseError, BaselinePart, Windows};

use crate::engine::deploy::lineage::EarlierSerial;
use crate::engine::error::CloseError;
use crate::engine::reading::group::groups;
use crate::engine::reading::metric::MetricState;
use crate::engine::reading::open::OpenWindow;

/// Makes the metrics continue with the base on disk.
fn go_on<'a>(
    readers: impl Iterator<Item = &'a mut MetricState>,
    windows: &Windows,
    EarlierSerial(serial): EarlierSerial,
) -> Result<(), BaseError> {
    let base = windows.base(serial)?.unwrap_or_default();
    for reader in readers {
        if !reader.go_on(base.through, &base.parts) {
            let metric = &reader.metric.name;
            tracing::error!(
                metric,
                "the earlier counts have another layout; the metric starts without them"
            );
        }
    }
    Ok(())
}

/// Lets the metrics of a new deployment continue with the rows that `old` keeps, or else with the
/// previous deployment's base on disk. Writes the result to disk, so that the deployment has its
/// base once it is committed. Returns the deployment whose base could not be read.
pub fn begin(
    readers: &mut [MetricState],
    deployable: &Deployable,
    old: Option<&OpenWindow>,
    before: Option<EarlierSerial>,
    replaces: bool,
    windows: &Windows,
) -> Result<Option<EarlierSerial>, CloseError> {
    let serial = deployable.record().serial;
    let kept_ones = readers
        .iter_mut()
        .filter(|reader| !replaces || reader.carries());
    match (old, before) {
        (Some(old), _) => {
            for reader in kept_ones {
                let before = old.readers_of(reader, deployable.directions());
                before.into_iter().for_each(|old| reader.succeed(old));
            }
        }
        (None, Some(before)) => match go_on(kept_ones, windows, before) {
            Ok(()) => {}
            Err(BaseError { .. }) => {
                windows.pass_baseline_on(before.0, serial)?;
                return Ok(Some(EarlierSerial(Some(serial))));
            }
        },
        // A new probe has no base.
        (None, None) => {}
    }
    if old.is_some() || before.is_some() || windows.last_seq() > 0 {
        let open = deployable.open_rows()?;
        let parts: Vec<BaselinePart> = readers
            .iter()
            .flat_map(|reader| reader.parts(&open))
            .collect();
        // The next commit of the deployment makes the baseline durable.
        windows.write_baseline((deployable.epoch(), serial), &parts, Durable::Soon)?;
    }
    Ok(None)
}

impl OpenWindow {
    /// Reads the base that an earlier deployment has left, unless the base is known already.
    pub fn load_base(&mut self) -> Result<(), BaseError> {
        if let Some(before) = self.awaited {
            go_on(self.metrics.iter_mut(), &self.windows, before)?;
            self.awaited = None;
            self.show_sums();
        }
        Ok(())
    }

    /// Takes over the rows of the open window that the replaced programs have counted, and writes
    /// them to disk.
    pub fn take_over(&mut self, probe: &str, remains: &[Remains]) {
        for reader in self.metrics.iter_mut().filter(|reader| reader.carries()) {
            remains
                .iter()
                .for_each(|remains| reader.add_remains(remains));
        }
        let (epoch, serial) = (self.attached.epoch.current(), self.attached.record.serial);
        if !remains.is_empty() {
            let parts: Vec<BaselinePart> = self
                .metrics
                .iter()
                .flat_map(|reader| reader.parts(&[]))
                .collect();
            if let Err(error) = self
                .windows
                .write_baseline((epoch, serial), &parts, Durable::Now)
            {
                tracing::error!(probe, %error, "replaced programs' counts wait for the next window");
            }
        }
        crash::point("rewritten");
        self.windows.forget_other_baselines(serial);
    }

    /// Returns the metrics that have read the map of `next` before: one metric for each map that
    /// continues in the map of `next`. If several metrics have read such a map, the result has the
    /// metric with the name of `next`.
    fn readers_of(&self, next: &MetricState, loaded: &[LoadedDirection]) -> Vec<&MetricState> {
        let positions = next.maps.maps.iter().map(|map| map.position);
        let origins = positions.flat_map(|(direction, metric)| loaded[direction].origins(metric));
        let origins: BTreeSet<usize> = origins.copied().collect();
        let goes_on = |old: &MetricState| {
            let is_origin = old
                .maps
                .maps
                .iter()
                .any(|map| origins.contains(&map.position.0));
            old.metric.map == next.metric.map && (is_origin || old.common && !origins.is_empty())
        };
        let of_map = |group: usize| {
            let members = self
                .metrics
                .iter()
                .filter(|old| old.group == group && goes_on(old));
            let is_other = |old: &&MetricState| {
                (
                    old.metric.name != next.metric.name,
                    old.metric.direction != next.metric.direction,
                )
            };
            members.min_by_key(is_other)
        };
        groups(&self.metrics)
            .into_iter()
            .filter_map(of_map)
            .collect()
    }

    /// Returns the metrics of a direction, one for each map.
    fn of_direction(&self, direction: &str) -> impl Iterator<Item = &MetricState> {
        let firsts = groups(&self.metrics)
            .into_iter()
            .map(|group| &self.metrics[group]);
        firsts.filter(move |reader| reader.metric.direction.name() == direction || reader.common)
    }

    /// Adds the rows that are kept outside of a map to the `rows` of the map.
    pub fn with_more(
        &self,
        direction: &str,
        map: &str,
        layout: &TableLayout,
        rows: RawTable,
    ) -> RawTable {
        self.of_direction(direction)
            .fold(rows, |rows, reader| reader.with_more(map, layout, rows))
    }

    /// Returns the maps of a direction whose metrics have rows that are not in the map.
    pub fn more_known(&self, direction: &str) -> BTreeSet<String> {
        let knowing = self
            .of_direction(direction)
            .filter(|reader| reader.knows_more());
        knowing
            .map(|reader| reader.request.map_name().to_owned())
            .collect()
    }

    /// Tells whether the sum of a metric is lost, because `next` reads the map of the open window,
    /// and the rows of the sum name interfaces. Such rows can't be added to the map of one
    /// interface.
    pub fn leaves_sum(&self, next: &MetricState, loaded: &[LoadedDirection]) -> bool {
        let is_left = |old: &&MetricState| old.sum.is_some() && old.maps.name_interfaces();
        let is_live = next.sum.is_none() && !next.extraction.resets();
        is_live && next.carries() && self.readers_of(next, loaded).iter().any(is_left)
    }

    /// Returns the sampling rate of the metric so far: one packet out of this many. `None` if the
    /// metric ends or keeps its rate.
    pub fn sample_before(&self, next: &MetricState, loaded: &[LoadedDirection]) -> Option<u32> {
        let mut before = self.readers_of(next, loaded).into_iter().map(one_in);
        before.find(|before| next.carries() && *before != one_in(next))
    }

    /// Tells whether `next` can take over nothing of what its map has counted.
    pub fn is_cut(&self, next: &MetricState, loaded: &[LoadedDirection]) -> bool {
        let positions = || next.maps.maps.iter().map(|map| map.position);
        let constant = next.metric.map.starts_with(".rodata");
        let fits = |old: &&MetricState| {
            positions().any(|(direction, metric)| loaded[direction].takes_over(metric))
                || carries_over(&old.metric.layout, &next.metric.layout)
        };
        let before = self.readers_of(next, loaded);
        !constant && !before.is_empty() && !before.iter().any(fits)
    }

    /// Tells whether the open window of a deployment with the metrics `next` continues the open
    /// window of this deployment.
    pub fn goes_on(&self, next: &[MetricState], loaded: &[LoadedDirection]) -> bool {
        let goes_on = |reader: &MetricState| {
            reader.extraction.resets()
                && reader.carries()
                && !self.readers_of(reader, loaded).is_empty()
                && !self.is_cut(reader, loaded)
        };
        self.resets() || next.iter().any(goes_on)
    }
}

/// Returns the sampling rate of the metric: one packet out of this many.
pub fn one_in(reader: &MetricState) -> u32 {
    reader.metric.sample.map_or(1, NonZeroU32::get)
}
