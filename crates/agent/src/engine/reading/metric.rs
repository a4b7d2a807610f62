//! One metric of a running probe: the place of its content, and the rows that are kept outside of
//! its map.

use std::borrow::Cow;
use std::sync::Arc;

use twinprobe_ebpf_common::field::leaf::Leaves;
use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_ebpf_common::metric::{AfterRead, Counting, Visibility};
use twinprobe_ebpf_common::request::MetricRequest;
use twinprobe_ebpf_common::{
    Completeness, EventKind, Layout, MapFamily, MapKind, MetricHead, RawTable, SeriesRules, Shape,
    TableLayout, Temporality,
};
use twinprobe_exporter::{Accumulator, Metric};
use twinprobe_kernel::{
    Extraction, KernelError, LoadedDirection, MapPlan, MetricMap, MetricSource,
};

use crate::engine::reading::sum::{self, Sum};
use twinprobe_config::{MetricConfig, ProbeConfig};

/// The maps whose rows a metric has: one, or one for each interface.
#[derive(Debug)]
pub struct MetricMaps {
    pub maps: Vec<MapOfInterface>,
    /// The layout of the rows that the maps have, which do not name their interface.
    pub layout: Arc<TableLayout>,
}

/// The place of a map.
#[derive(Clone, Debug)]
pub struct MapOfInterface {
    /// The index of the direction among the attached directions, and the index of the metric in
    /// that direction.
    pub position: (usize, usize),
    /// The interface of a map that serves only one, as the name for its rows; `None` if the map
    /// serves all interfaces.
    pub interface: Option<String>,
}

impl MetricMaps {
    /// Tells whether the rows name their interface.
    pub fn name_interfaces(&self) -> bool {
        self.maps.iter().any(|map| map.interface.is_some())
    }

    /// Reads all maps. `map` returns a map by its position. Maps for which it returns `None` are
    /// left out.
    pub fn read<'a>(
        &self,
        map: impl Fn((usize, usize)) -> Option<&'a MetricMap>,
    ) -> Result<RawTable, KernelError> {
        if let [
            MapOfInterface {
                position,
                interface: None,
            },
        ] = self.maps[..]
        {
            return map(position)
                .map_or_else(|| Ok(RawTable::default()), |map| map.read(AfterRead::Keep));
        }
        let mut all = RawTable::default();
        for (of, map) in self
            .maps
            .iter()
            .filter_map(|of| Some((of, map(of.position)?)))
        {
            all.append(&of.named(&map.read(AfterRead::Keep)?, &self.layout));
        }
        Ok(all)
    }
}

impl MapOfInterface {
    /// Returns the rows of the map, with the interface added if rows must name it.
    pub fn named<'a>(&self, rows: &'a RawTable, layout: &TableLayout) -> Cow<'a, RawTable> {
        match &self.interface {
            None => Cow::Borrowed(rows),
            Some(name) => Cow::Owned(rows.with_interface(layout, name)),
        }
    }
}

/// The state of one metric, and the place of its content.
#[derive(Debug)]
pub struct MetricState {
    /// The index of the direction among the attached directions, and the index of the metric in
    /// that direction.
    pub position: (usize, usize),
    /// The index of the first metric that reads the same map, among all metrics of the probe that
    /// have a layout. One reading serves all metrics of a map.
    pub group: usize,
    /// True if both directions use the map.
    pub common: bool,
    /// The maps whose rows the metric has.
    pub maps: Arc<MetricMaps>,
    pub request: MetricRequest,
    pub metric: Arc<Metric>,
    /// The sum, for a snapshot that is not reset.
    pub sum: Option<Sum>,
    /// The rows of the open window that earlier deployments have counted.
    pub carried: Option<Accumulator>,
    /// True if the window that has ended fits into the layout of the map together with these rows.
    pub carried_fits: bool,
    pub extraction: Extraction,
    /// The positions of the counters of failed insertions into the map: one for each direction that
    /// uses it.
    pub losses: Vec<(usize, usize)>,
    /// The sum of these counters at the end of the last window, if it is known.
    pub lost_before: Option<u64>,
}

impl MetricState {
    /// Tells whether a reading shows the metric.
    pub fn is_shown(&self) -> bool {
        self.request.visibility == Visibility::Export
    }

    /// Tells whether the rows of a window are moved into a journal before they are stored.
    pub fn is_drained(&self) -> bool {
        let popped = self.metric.layout.kind.family() == MapFamily::Fifo;
        self.extraction == Extraction::Drain || self.extraction == Extraction::Clear && popped
    }
}

/// The help text of a map that no metric shows.
const LOSSES: &str =
    "Insertions and events that found no room. No metric shows the entries of this map";

/// The layout of metrics without rows: events, and metrics that only have losses.
const fn no_rows(kind: MapKind) -> TableLayout {
    TableLayout {
        kind,
        key: Layout::opaque(0),
        value: Layout::opaque(0),
        slots: 1,
        inner: None,
    }
}

/// Returns the state of each metric that has a layout or a counter of losses. Refuses settings that
/// do not fit the map.
pub fn readers(
    config: &ProbeConfig,
    loaded: &[LoadedDirection],
) -> Result<Vec<MetricState>, Rejection> {
    let mut readers: Vec<MetricState> = Vec::new();
    let mut findings = Vec::new();
    let subsystem = &config.subsystem;
    let own_interfaces = config.places.own_interfaces();
    // The directions of the first interface come first, then the equal plans for the second one.
    let directions = config.directions().count();
    for (at, ((direction, config), own)) in config.directions().zip(loaded).enumerate() {
        for (index, planned) in own.plan.metrics.iter().enumerate() {
            // The counters of losses, and maps that no metric shows, come after the metrics of the
            // configuration.
            let other = || MetricConfig {
                help: Some(LOSSES.to_owned()),
                ..MetricConfig::new(planned.request.clone())
            };
            let metric = &config.metrics.get(index).cloned().unwrap_or_else(other);
            let MapPlan { common, spec, .. } = &own.plan.maps[planned.map];
            let common = *common;
            // Each direction that uses a map without a metric counts losses of this map.
            let is_losses = matches!(planned.source, MetricSource::Losses(_));
            let counters = loaded.iter().enumerate().filter_map(|(direction, loaded)| {
                let is_of = direction % directions == at || common && !is_losses;
                Some((
                    direction,
                    *loaded
                        .plan
                        .counters
                        .get(&planned.request.map)
                        .filter(|_| is_of)?,
                ))
            });
            let losses: Vec<(usize, usize)> = counters.collect();
            let events = EventKind::from_bpf_type(spec.map_type).filter(|_| !losses.is_empty());
            let kind = MapKind::from_bpf_type(spec.map_type).filter(|_| is_losses);
            let without_rows =
                || Some(Arc::new(no_rows(events.map(|_| MapKind::Global).or(kind)?)));
            let Some(plain) = planned.layout().cloned().or_else(without_rows) else {
                continue;
            };
            let of_interface = |(lane, interface): (usize, Option<&String>)| MapOfInterface {
                position: (lane * directions + at, index),
                interface: interface.cloned(),
            };
            let each = own_interfaces
                .iter()
                .flat_map(|names| names.iter())
                .map(Some);
            let each: Vec<Option<&String>> = each.collect();
            let each = if each.is_empty() { vec![None] } else { each };
            let maps = each.into_iter().enumerate().map(of_interface).collect();
            let maps = Arc::new(MetricMaps {
                maps,
                layout: Arc::clone(&plain),
            });
            let key = metric.key_label.as_deref().unwrap_or("key");
            let names_interfaces = own_interfaces.is_some() && planned.layout().is_some();
            let layout = &if names_interfaces {
                Arc::new(plain.with_interface(key))
            } else {
                Arc::clone(&plain)
            };
            let extraction = planned.extraction;
            let temporality = match metric.request.counting {
                Counting::Sum(_) => Temporality::Cumulative,
                // Reading a queue always takes its values out, for any configuration.
                Counting::Window(_) | Counting::Live if extraction.resets() => Temporality::Window,
                Counting::Window(_) | Counting::Live => Temporality::Live,
            };
            let entries = spec.max_entries.saturating_mul(maps.maps.len() as u32);
            let bounded =
                extraction != Extraction::Stream && layout.kind.family() != MapFamily::Global;
            let sum =
                sum::sum(metric, entries as usize, layout).unwrap_or_else(|(field, message)| {
                    findings.push(planned.request.finding(field, message));
                    None
                });
            if let Some((field, message)) = unfit_for_series(metric, &plain) {
                findings.push(planned.request.finding(field, message));
            }
            let reads_it = |other: &MetricState| {
                let both_read = ![extraction, other.extraction].contains(&Extraction::Stream);
                both_read
                    && other.metric.map == metric.request.map
                    && (other.metric.direction == direction || common)
            };
            let group = readers.iter().position(reads_it).unwrap_or(readers.len());
            let head = MetricHead {
                help: metric.help.clone().unwrap_or_default(),
                agg: metric.request.aggregation,
                sample: config.attach.sample,
                temporality,
                events,
                completeness: Completeness {
                    max_entries: bounded.then_some(entries),
                    ..Completeness::default()
                },
                series: SeriesRules {
                    merge: metric.request.rules().cloned(),
                    key_label: metric.key_label.clone().filter(|_| !names_interfaces),
                    max_series: metric.max_series,
                    series_by: metric.series_by.clone(),
                    subsystem: subsystem.clone(),
                },
                elements: match names_interfaces {
                    true => planned.elements.clone().beside_interface(key),
                    false => planned.elements.clone(),
                },
                ..MetricHead::new(
                    direction,
                    &metric.request.name,
                    &metric.request.map,
                    Arc::clone(layout),
                )
            };
            readers.push(MetricState {
                position: (at, index),
                group,
                common,
                maps,
                request: metric.request.clone(),
                metric: Arc::new(head.into()),
                sum,
                carried: None,
                carried_fits: false,
                extraction,
                losses,
                lost_before: None,
            });
        }
    }
    if findings.is_empty() {
        Ok(readers)
    } else {
        Err(Rejection {
            findings,
            log: None,
        })
    }
}

/// Returns the setting that does not fit the map's keys, and the reason.
fn unfit_for_series(
    metric: &MetricConfig,
    layout: &Arc<TableLayout>,
) -> Option<(&'static str, String)> {
    let (map, kind) = (&metric.request.map, layout.kind.name());
    let field = if metric.key_label.is_some() {
        "key_label"
    } else {
        "max_series"
    };
    if (metric.key_label.is_some() || metric.max_series.is_some()) && !layout.kind.has_keys() {
        return Some((
            field,
            format!("{map} has no keys, since it is of type {kind}; leave {field} out"),
        ));
    }
    if let Some(path) = &metric.series_by
        && let Err(message) = check_number(&layout.inner.as_ref().unwrap_or(layout).value, path)
    {
        return Some(("series_by", message));
    }
    let has_parts = matches!(layout.key.shape, Shape::Struct(_) | Shape::Union(_))
        && layout.key.render.is_none();
    (metric.key_label.is_some() && (has_parts || layout.inner.is_some())).then(|| {
        let message =
            format!("the key of {map} has parts, whose names are the labels; leave key_label out");
        ("key_label", message)
    })
}

/// Fails unless the value has a number with this path. The error lists the existing paths.
fn check_number(value: &Layout, path: &str) -> Result<(), String> {
    let mut paths = Vec::new();
    Leaves::new(value, &mut |path, _| {
        paths.push(path.to_owned());
        None::<()>
    });
    if paths.iter().any(|known| known == path) {
        return Ok(());
    }
    paths.truncate(20);
    Err(match &paths[..] {
        [] => format!("the value has no number {path} and no other; leave series_by out"),
        [one] if one.is_empty() => {
            format!("the value has no number {path}: it is a number itself; leave series_by out")
        }
        _ => format!(
            "the value has no number {path}; it has {}",
            paths.join(", ")
        ),
    })
}
