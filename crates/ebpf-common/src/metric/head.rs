//! The description of a metric without its values, for documents and stored windows.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event_kind::EventKind;
use crate::hook::Direction;
use crate::ipfix::element::FieldElements;
use crate::layout::{Render, Shape};
use crate::map_kind::MapFamily;
use crate::metric::{Aggregation, Completeness, SeriesRules, Temporality};
use crate::table::{TableLayout, known};
use crate::window::is_default;

/// The number of bytes in the index of an array.
const SLOT: usize = 4;

/// The properties of a metric, in a running probe or at the end of a stored window. Fields that
/// earlier versions did not store have defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricHead {
    pub direction: Direction,
    /// The name of the metric in documents.
    pub name: String,
    /// The name of the map, or of the variable, in the source.
    pub map: String,
    /// The operator's text about the metric, which may be empty.
    pub help: String,
    /// The aggregation of the values of the CPUs, only for PERCPU maps; `None` if the values are
    /// shown one by one.
    pub agg: Option<Aggregation>,
    /// The sampling: the program has seen one packet out of this many, chosen at random; `None` if
    /// it has seen all packets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sample: Option<NonZeroU32>,
    /// The kind of the map and the types of its keys and values.
    #[serde(deserialize_with = "known::layout")]
    pub layout: Arc<TableLayout>,
    /// The beginning of the counts.
    #[serde(rename = "reading")]
    pub temporality: Temporality,
    /// The number of entries that the sum of windows has dropped so far because it was full.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dropped: u64,
    /// The kind of a map of events, whose metric has no rows; `None` for all other maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventKind>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub completeness: Completeness,
    /// The way in which OpenMetrics shows the metric.
    #[serde(default, skip_serializing_if = "is_default")]
    pub series: SeriesRules,
    /// The elements of IPFIX that tags of fields name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub elements: FieldElements,
}

/// The fill of a map that has a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub used: u64,
    pub max: u32,
    /// True if some entries did not fit, or if the next entry would not fit.
    pub full: bool,
}

impl Fill {
    /// Returns the used share of the entries, from 0 to 1; `None` if the map can have no entries.
    pub fn share(self) -> Option<f64> {
        (self.max > 0).then(|| self.used as f64 / f64::from(self.max))
    }
}

impl MetricHead {
    /// Makes the description of a metric with defaults for missing fields.
    pub fn new(direction: Direction, name: &str, map: &str, layout: Arc<TableLayout>) -> Self {
        Self {
            direction,
            name: name.to_owned(),
            map: map.to_owned(),
            help: String::new(),
            agg: None,
            sample: None,
            layout,
            temporality: Temporality::default(),
            dropped: 0,
            events: None,
            completeness: Completeness::default(),
            series: SeriesRules::default(),
            elements: FieldElements::default(),
        }
    }

    /// Tells whether both heads describe the same metric in different windows, so that they differ
    /// at most in the numbers of these windows.
    pub fn is_alike(&self, other: &Self) -> bool {
        let Self {
            direction,
            name,
            map,
            help,
            agg,
            sample,
            layout,
            temporality,
            dropped: _,
            events,
            completeness: _,
            series,
            elements,
        } = self;
        *direction == other.direction
            && *name == other.name
            && *map == other.map
            && *help == other.help
            && *agg == other.agg
            && *sample == other.sample
            && *layout == other.layout
            && *temporality == other.temporality
            && *events == other.events
            && *series == other.series
            && *elements == other.elements
    }

    /// Returns the name of the map's type.
    pub fn type_name(&self) -> &'static str {
        self.events
            .map_or_else(|| self.layout.kind.name(), EventKind::name)
    }

    /// Tells whether the entries are the slots of a histogram: entry `i` counts values whose
    /// highest bit is `i`.
    pub fn is_histogram(&self) -> bool {
        self.has_slots() && self.layout.key.size == SLOT
    }

    /// Tells whether the entries are the slots of a histogram, or of one histogram for each
    /// interface.
    pub fn has_slots(&self) -> bool {
        let TableLayout {
            kind, key, value, ..
        } = &*self.layout;
        let is_count = matches!(value.shape, Shape::Int { signed: false })
            && matches!(value.size, 1 | 2 | 4 | 8 | 16);
        value.render == Some(Render::Histogram)
            && kind.family() == MapFamily::Array
            && key.size == self.layout.interface_bytes() + SLOT
            && is_count
    }

    /// Returns the name of the counter of losses.
    pub const fn losses_name(&self) -> &'static str {
        if self.events.is_some() {
            "failed_reserves"
        } else {
            "failed_inserts"
        }
    }

    /// Returns the fill of the map, which shows `rows` entries; `None` if the map has no bound. All
    /// entries of an array exist from the start, so an array is never full.
    pub fn fill(&self, rows: u64) -> Option<Fill> {
        let Completeness {
            max_entries,
            entries_used,
            losses,
        } = self.completeness;
        let max = max_entries?;
        let lost = losses.is_some_and(|losses| losses.shown > 0);
        let grows = self.layout.kind.family() != MapFamily::Array;
        // Packets may add entries during the removal of others. Before the first window an array
        // has no rows yet.
        let used = if grows {
            entries_used.unwrap_or(rows)
        } else {
            u64::MAX
        }
        .min(u64::from(max));
        Some(Fill {
            used,
            max,
            full: grows && (lost || used == u64::from(max)),
        })
    }
}
