//! The completeness of a metric's map: its capacity, its entries, and the number of failed
//! insertions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinprobe_ebpf_common::{Completeness, Losses, MetricHead, RawTable, TableLayout, Temporality};
use twinprobe_exporter::{Accumulator, Metric};
use twinprobe_kernel::{KernelError, MetricMap, Quiesced, TwinMap, exactness, is_unsure};
use twinprobe_windows::WindowHead;

use crate::engine::error::CloseError;
use crate::engine::reading::metric::MetricState;
use crate::engine::reading::open::OpenWindow;

/// Returns the completeness of a metric in the window that has ended, once all metrics have been
/// gathered.
pub fn at_close(
    metric: &MetricState,
    all: &[MetricState],
    quiesced: &Quiesced<'_>,
) -> Result<Completeness, CloseError> {
    let mut completeness = metric.metric.completeness;
    completeness.entries_used = metric.sum.as_ref().map(|sum| sum.used);
    let (mut lost, mut total, mut is_reset) = (0, 0, true);
    for counter in metric.counters(all) {
        let own = count(counter, |position| quiesced.map(position))?;
        let carried = counter.carried.as_ref().map_or(0, number_of);
        lost += own + carried;
        total += counter.sum.as_ref().map_or(own, |sum| number_of(&sum.rows));
        // The counter of a map that both twins share has no sum. It is never reset, unless a
        // replacement begins anew.
        is_reset &= counter.sum.is_some();
    }
    if !metric.losses.is_empty() {
        let since = total
            .checked_sub(metric.lost_before.unwrap_or(0))
            .unwrap_or(total);
        let losses = Losses {
            shown: if is_reset { lost } else { since },
            total,
        };
        completeness.losses = Some(metric.shown(losses));
    }
    Ok(completeness)
}

/// Returns the reasons why the ended window is approximate that its packets give, once all metrics
/// are gathered. If a metric is cumulative, all packets so far count.
pub fn unsure(
    all: &[MetricState],
    quiesced: &Quiesced<'_>,
) -> Result<BTreeSet<String>, CloseError> {
    let mut reasons = BTreeSet::new();
    for counter in all.iter().filter(|counter| is_unsure(&counter.request.map)) {
        let is_cumulative = |metric: &MetricState| {
            metric.is_shown()
                && metric.metric.direction == counter.metric.direction
                && metric.metric.temporality == Temporality::Cumulative
        };
        let so_far = counter
            .sum
            .as_ref()
            .filter(|_| all.iter().any(is_cumulative));
        let packets = match so_far {
            Some(sum) => number_of(&sum.rows),
            None => count(counter, |position| quiesced.map(position))?,
        };
        reasons.extend((packets > 0).then(|| unsure_in(counter)));
    }
    Ok(reasons)
}

fn unsure_in(counter: &MetricState) -> String {
    format!(
        "{}: {}",
        counter.metric.direction,
        exactness::unknown_headers()
    )
}

impl MetricState {
    fn counters<'a>(&self, all: &'a [Self]) -> impl Iterator<Item = &'a Self> {
        all.iter()
            .filter(|reader| self.losses.contains(&reader.position))
    }

    /// Returns the metric with the number of insertions into its map that have failed so far. `map`
    /// returns the map of a counter by its position. A counter that can't be read is left out.
    pub fn with_losses<'a>(
        &self,
        all: &[Self],
        map: impl Fn((usize, usize)) -> Option<&'a MetricMap>,
    ) -> Arc<Metric> {
        let metric = &self.metric;
        let totals = self.counters(all).map(|counter| {
            let before = counter.sum.as_ref().map_or(0, |sum| number_of(&sum.rows));
            map(counter.position)?;
            Some(count(counter, &map).ok()? + before)
        });
        let totals: Option<Vec<u64>> = totals.collect();
        let Some(totals) = totals.filter(|totals| !totals.is_empty()) else {
            return Arc::clone(metric);
        };
        let total = totals.into_iter().sum();
        let losses = Some(Losses {
            shown: total,
            total,
        });
        Arc::new(Metric::clone(metric).with(|head| head.completeness.losses = losses))
    }

    /// Returns the losses for a document. Only a counter that each window resets shows the losses
    /// of that window alone.
    fn shown(&self, losses: Losses) -> Losses {
        match self.metric.temporality {
            Temporality::Window => losses,
            Temporality::Cumulative | Temporality::Live => Losses {
                shown: losses.total,
                ..losses
            },
        }
    }
}

impl OpenWindow {
    /// Returns the metric with the number of failed insertions so far. A counter that can't be read
    /// is left out.
    pub fn with_losses(&self, reader: &MetricState) -> Arc<Metric> {
        reader.with_losses(&self.metrics, |position| self.map_now(position))
    }

    pub fn map_now(&self, (direction, index): (usize, usize)) -> Option<&MetricMap> {
        match self.attached.map(direction, index) {
            TwinMap::Shared(map) => Some(map),
            TwinMap::Private(maps) => Some(&maps[(self.attached.epoch.current() & 1) as usize]),
            TwinMap::Events(_) | TwinMap::Unread => None,
        }
    }

    /// Returns the reasons that the packets so far give why numbers outside of windows are
    /// approximate.
    pub fn unsure_so_far(&self) -> BTreeSet<String> {
        let live = self
            .metrics
            .iter()
            .filter(|reader| reader.sum.is_none() && is_unsure(&reader.request.map));
        let is_counted = |counter: &&MetricState| {
            count(counter, |position| self.map_now(position)).is_ok_and(|packets| packets > 0)
        };
        live.filter(is_counted).map(unsure_in).collect()
    }

    /// Reads the losses at the end of the newest window from that window, unless they are known.
    pub fn know_losses(&mut self) {
        if self
            .metrics
            .iter()
            .any(|reader| reader.lost_before.is_none())
        {
            let newest = self.windows.newest().and_then(|newest| newest.open().ok());
            note_losses(
                &mut self.metrics,
                newest.as_ref().map(|newest| &*newest.head),
            );
        }
    }
}

/// Keeps the losses at the end of the window with this head. Returns the losses since the previous
/// window.
pub fn note_losses(readers: &mut [MetricState], head: Option<&WindowHead>) -> u64 {
    let mut new = BTreeMap::new();
    for reader in readers {
        let is_its = |stored: &&MetricHead| {
            stored.direction == reader.metric.direction && stored.map == reader.metric.map
        };
        let stored = head.and_then(|head| head.metrics.iter().find(is_its));
        let losses = stored.and_then(|stored| stored.completeness.losses);
        let total = losses.map_or(0, |losses| losses.total);
        let before = reader.lost_before.replace(total).unwrap_or(total);
        // Several metrics may show one map.
        let map = (reader.metric.direction, reader.metric.map.clone());
        new.insert(map, total.checked_sub(before).unwrap_or(total));
    }
    new.into_values().fold(0, u64::saturating_add)
}

/// Returns the number that is in the maps of a counter.
fn count<'a>(
    counter: &MetricState,
    map: impl Fn((usize, usize)) -> Option<&'a MetricMap>,
) -> Result<u64, KernelError> {
    Ok(number(&counter.maps.read(map)?, &counter.metric.layout))
}

fn number_of(rows: &Accumulator) -> u64 {
    number(rows.table(), rows.layout())
}

/// Returns the number in the only row of a counter, or the sum over its interfaces.
fn number(rows: &RawTable, layout: &TableLayout) -> u64 {
    let numbers = rows
        .entries(layout)
        .filter_map(|(_, value)| value.first_chunk().copied());
    numbers.map(u64::from_ne_bytes).sum()
}
