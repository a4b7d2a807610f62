//! The plan of a probe: which maps and programs it has, and how each metric is read from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::{EventKind, Layout, MapKind, TableLayout};

use crate::plan::map_spec::MapSpec;
use crate::plan::request::{AttachRequest, MetricRequest};
use crate::plan::shape::MapShape;

/// What a probe will be in the kernel. Computed once for each load, by [`ProbePlan::build`].
#[derive(Debug, Default)]
pub struct ProbePlan {
    /// Ingress comes first.
    pub directions: Vec<Arc<DirectionPlan>>,
    pub warnings: Vec<Finding>,
}

/// One direction of a probe.
#[derive(Debug)]
pub struct DirectionPlan {
    pub attach: AttachRequest,
    /// The function that is called for each packet.
    pub entry: String,
    /// All maps of the source, ordered by name.
    pub maps: Vec<MapPlan>,
    /// In the order of the configuration.
    pub metrics: Vec<MetricPlan>,
}

/// One map of the source, whether a metric reads it or not.
#[derive(Debug)]
pub struct MapPlan {
    pub name: String,
    pub spec: MapSpec,
    pub shape: MapShape,
    /// True if each twin has a map of its own; otherwise both twins share one.
    pub private: bool,
    /// For maps of maps: the maps that are in it from the start, as indices into [`DirectionPlan::maps`], by slot.
    pub slots: BTreeMap<u32, usize>,
    pub on_replace: OnReplace,
}

/// One metric, and where it is read.
#[derive(Debug)]
pub struct MetricPlan {
    pub request: MetricRequest,
    /// The index of the metric's map in [`DirectionPlan::maps`]; of a variable, that of its section.
    pub map: usize,
    pub source: MetricSource,
    pub extraction: Extraction,
}

/// What a metric is read from.
#[derive(Debug)]
pub enum MetricSource {
    Table(Arc<TableLayout>),
    Variable(VariableSpec),
    /// A stream of events, with the layout of an event if its type is known.
    Events(EventKind, Option<Layout>),
}

/// A global variable in a data section.
#[derive(Debug)]
pub struct VariableSpec {
    pub layout: Arc<TableLayout>,
    /// From the start of the section, in bytes.
    pub offset: usize,
    /// The bytes that a reset writes: zeros in `.bss`, else what the source says.
    pub initial: Box<[u8]>,
}

/// What a reading does to the map of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extraction {
    /// Each twin has its own map, which is at rest after the flip: it is read, and emptied once the window is stored.
    Clear,
    /// Packets change the map meanwhile, and its content is taken out of it.
    Drain,
    /// Nothing is taken out of the map: it is shown as it is.
    Copy,
    /// The map is emptied with each window and shown nowhere.
    Discard,
    /// The events are read as a stream.
    Stream,
}

impl MapPlan {
    /// Tells whether the map with this number is in it from the start.
    pub fn holds(&self, map: usize) -> bool {
        self.slots.values().any(|inner| *inner == map)
    }
}

impl DirectionPlan {
    /// As configurations call it.
    pub const fn direction(&self) -> &'static str {
        self.attach.hook.direction()
    }

    /// The map with this name.
    pub fn map(&self, name: &str) -> Option<&MapPlan> {
        self.maps.iter().find(|map| map.name == name)
    }

    /// For maps of maps: the names of the maps that are in it from the start, by slot.
    pub fn inner_names(&self, map: &MapPlan) -> impl Iterator<Item = (u32, &str)> {
        map.slots.iter().map(|(slot, inner)| (*slot, self.maps[*inner].name.as_str()))
    }

    /// True if two copies of the program are loaded, since some maps are private to each.
    pub fn has_twins(&self) -> bool {
        self.maps.iter().any(|map| map.private)
    }
}

impl MetricPlan {
    /// The layout of the rows; `None` for events.
    pub const fn layout(&self) -> Option<&Arc<TableLayout>> {
        match &self.source {
            MetricSource::Table(layout) => Some(layout),
            MetricSource::Variable(variable) => Some(&variable.layout),
            MetricSource::Events(..) => None,
        }
    }

    /// The name of the map's type.
    pub fn kind_name(&self) -> &'static str {
        match &self.source {
            MetricSource::Events(kind, _) => kind.name(),
            MetricSource::Table(layout) => layout.kind.name(),
            MetricSource::Variable(_) => MapKind::Global.name(),
        }
    }
}
