//! The plan of a probe: its maps and programs, and the way in which the daemon reads each metric
//! from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::hook::{ProgramKind, XdpKind};
use twinprobe_ebpf_common::ipfix::element::FieldElements;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::unit::Calls;
use twinprobe_ebpf_common::{EventKind, Layout, MapKind, TableLayout};

use crate::plan::map_spec::MapSpec;
use crate::plan::request::DeclaredAt;
use crate::plan::sees::Sees;
use crate::plan::shape::MapShape;
use twinprobe_ebpf_common::request::{AttachRequest, MetricRequest};

/// The plan of a probe in the kernel. [`ProbePlan::build`] computes it once for each load.
#[derive(Debug, Default)]
pub struct ProbePlan {
    /// The directions, ingress first.
    pub directions: Vec<Arc<DirectionPlan>>,
    pub warnings: Vec<Finding>,
}

/// One direction of a probe.
#[derive(Debug)]
pub struct DirectionPlan {
    pub attach: AttachRequest,
    /// The interface that the programs and maps serve alone; `None` if they serve all interfaces.
    pub own_interface: Option<OwnInterface>,
    /// The field of the configuration that contains the program, for findings.
    pub code: String,
    /// The places in which names are declared.
    pub places: Arc<BTreeMap<String, DeclaredAt>>,
    /// The function that is called for each packet.
    pub entry: String,
    /// The names of the object's other programs.
    pub others: Vec<String>,
    /// True if the program is loaded for packets of several buffers, which only XDP has:
    /// `SEC("xdp.frags")`.
    pub frags: bool,
    /// True if the program is loaded to be called through libxdp's dispatcher.
    pub joined: bool,
    /// All maps of the source, ordered by name.
    pub maps: Vec<MapPlan>,
    /// The indices of the metrics that count failed insertions into a map, by the name of the map.
    pub counters: BTreeMap<String, usize>,
    /// The metrics, in the order of the configuration; then the counters of losses, which no
    /// document shows as metrics; then the maps whose losses alone a document shows.
    pub metrics: Vec<MetricPlan>,
    pub sees: Sees,
    /// The programs in the slots of tables for `bpf_tail_call`, which do not count as maps here.
    pub calls: Calls,
}

/// The interface that a direction serves alone, because each interface of the probe has programs
/// and maps of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnInterface {
    /// All interfaces of the probe, by the names of the configuration.
    pub all: Arc<[String]>,
    /// The index of this interface among them.
    pub index: usize,
}

/// One map of the source, whether a metric reads it or not.
#[derive(Clone, Debug)]
pub struct MapPlan {
    pub name: String,
    pub spec: MapSpec,
    pub shape: MapShape,
    /// True if each twin has a map of its own; false if both twins use one map.
    pub private: bool,
    /// True if both directions use the map, or the maps of its twins.
    pub common: bool,
    /// True if a metric of any direction reads the map.
    pub is_read: bool,
    /// The initial inner maps of a map of maps, by slot, as indices into [`DirectionPlan::maps`].
    pub slots: BTreeMap<u32, usize>,
    pub on_replace: OnReplace,
    /// The entries with which the map begins.
    pub fill: Vec<FillEntry>,
}

/// An entry with which a map begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FillEntry {
    pub key: Box<[u8]>,
    /// The value. In a PERCPU map, every CPU gets it.
    pub value: Box<[u8]>,
}

/// A metric, and the map from which it is read.
#[derive(Debug)]
pub struct MetricPlan {
    pub request: MetricRequest,
    /// The index of the metric's map in [`DirectionPlan::maps`]. The map of a variable is its
    /// section.
    pub map: usize,
    pub source: MetricSource,
    pub extraction: Extraction,
    /// The elements of IPFIX that tags of fields name.
    pub elements: FieldElements,
}

/// The source of a metric's content.
#[derive(Debug)]
pub enum MetricSource {
    Table(Arc<TableLayout>),
    Variable(VariableSpec),
    /// A stream of events, with the layout of an event if its type is known.
    Events(EventKind, Option<Layout>),
    /// A map that no metric shows, of which only the losses are shown. The text is the name of its
    /// type.
    Losses(&'static str),
}

/// A global variable in a data section.
#[derive(Debug)]
pub struct VariableSpec {
    pub layout: Arc<TableLayout>,
    /// The offset of the variable in the section, in bytes.
    pub offset: usize,
    /// The bytes that a reset writes: zeros in `.bss`, or else the initial value in the source.
    pub initial: Box<[u8]>,
}

/// The effect of a reading on the map of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extraction {
    /// The map of the idle twin is read and, once the window is stored, emptied. No program writes
    /// to this map after the flip.
    Clear,
    /// The content is moved into a journal, because packets change the map meanwhile. The window is
    /// made from the journal.
    Drain,
    /// The content is copied and stays in the map.
    Copy,
    /// The map is emptied with each window and shown nowhere.
    Discard,
    /// The events are read as a stream, or only the losses are read.
    Stream,
}

impl Extraction {
    /// Tells whether a reading removes anything from the map. A probe has windows if this is true
    /// for any of its metrics.
    pub const fn resets(self) -> bool {
        matches!(self, Self::Clear | Self::Drain | Self::Discard)
    }
}

impl OwnInterface {
    pub fn name(&self) -> &str {
        &self.all[self.index]
    }
}

impl ProbePlan {
    /// Makes the programs and maps serve one interface alone.
    pub fn on_interface(mut self, own: &OwnInterface) -> Self {
        for direction in &mut self.directions {
            // A plan is not shared before it is loaded.
            let direction = Arc::get_mut(direction).into_iter();
            direction.for_each(|direction| direction.own_interface = Some(own.clone()));
        }
        self
    }

    /// Loads every program for packets of a single buffer, because this kernel has no other XDP
    /// programs.
    pub fn without_frags(mut self) -> Self {
        for direction in &mut self.directions {
            // A plan is not shared before it is loaded.
            Arc::get_mut(direction)
                .into_iter()
                .for_each(|direction| direction.frags = false);
        }
        self
    }

    /// Demands that libxdp's dispatcher can call the XDP programs.
    pub fn beside_libxdp(mut self) -> Self {
        for direction in &mut self.directions {
            // A plan is not shared before it is loaded.
            let direction = Arc::get_mut(direction).into_iter();
            direction.for_each(|direction| match direction.attach.hook.kind() {
                ProgramKind::Xdp => (direction.frags, direction.joined) = (false, true),
                ProgramKind::Tc => {}
            });
        }
        self
    }

    /// Plans without twins: one program of each direction sees all packets, and its maps are not
    /// read while it runs.
    pub fn without_twins(mut self) -> Self {
        for direction in &mut self.directions {
            // A plan is not shared before it is loaded.
            let direction = Arc::get_mut(direction).into_iter();
            direction
                .flat_map(|direction| &mut direction.maps)
                .for_each(|map| map.private = false);
        }
        self
    }
}

impl MapPlan {
    /// Returns the name of the map's type; `None` for types that no metric reads.
    pub fn kind_name(&self) -> Option<&'static str> {
        let kind = MapKind::from_bpf_type(self.spec.map_type).map(MapKind::name);
        kind.or_else(|| EventKind::from_bpf_type(self.spec.map_type).map(EventKind::name))
    }

    /// Tells whether the map with this index is an initial inner map of this map.
    pub fn holds(&self, map: usize) -> bool {
        self.slots.values().any(|inner| *inner == map)
    }
}

impl DirectionPlan {
    /// The kind that the programs are loaded as.
    pub const fn kind(&self) -> XdpKind {
        XdpKind::of(self.frags, self.joined)
    }

    /// Makes the finding about a map, at the line of the source that declares it.
    pub fn about_map(&self, stage: Stage, map: &str, message: impl Into<String>) -> Finding {
        let Some(DeclaredAt { file, line }) = self.places.get(map) else {
            return Finding::new(stage, &self.code, message);
        };
        let beside = file.as_ref().zip(self.code.strip_suffix("source"));
        let field = beside.map_or_else(
            || self.code.clone(),
            |(file, at)| format!("{at}files.{file}"),
        );
        Finding::new(stage, field, message).at(*line, None)
    }

    /// The name of the direction in configurations.
    pub fn direction(&self) -> &'static str {
        self.attach.hook.direction()
    }

    /// Returns the name of the interface that the direction serves alone.
    pub fn interface(&self) -> Option<&str> {
        self.own_interface.as_ref().map(OwnInterface::name)
    }

    /// Returns the name of the direction for pins. No two directions of the deployment have the
    /// same name.
    pub fn pin_name(&self) -> String {
        pin_name(
            self.direction(),
            self.own_interface.as_ref().map(|own| own.index),
        )
    }

    /// Returns the map with this name.
    pub fn map(&self, name: &str) -> Option<&MapPlan> {
        self.maps.iter().find(|map| map.name == name)
    }

    /// Returns the slot and the name of each initial inner map of a map of maps.
    pub fn inner_names(&self, map: &MapPlan) -> impl Iterator<Item = (u32, &str)> {
        map.slots
            .iter()
            .map(|(slot, inner)| (*slot, self.maps[*inner].name.as_str()))
    }

    /// Tells whether the program is loaded twice, because each twin has some maps of its own.
    pub fn has_twins(&self) -> bool {
        self.maps.iter().any(|map| map.private)
    }
}

impl MetricPlan {
    /// Returns the layout of the rows; `None` for a metric without rows.
    pub const fn layout(&self) -> Option<&Arc<TableLayout>> {
        match &self.source {
            MetricSource::Table(layout) => Some(layout),
            MetricSource::Variable(variable) => Some(&variable.layout),
            MetricSource::Events(..) | MetricSource::Losses(_) => None,
        }
    }

    /// Returns the kind of a map of events; `None` for other maps.
    pub const fn events(&self) -> Option<EventKind> {
        match &self.source {
            MetricSource::Events(kind, _) => Some(*kind),
            MetricSource::Table(_) | MetricSource::Variable(_) | MetricSource::Losses(_) => None,
        }
    }

    /// Returns the name of the map's type.
    pub fn kind_name(&self) -> &'static str {
        match &self.source {
            MetricSource::Events(kind, _) => kind.name(),
            MetricSource::Table(layout) => layout.kind.name(),
            MetricSource::Variable(_) => MapKind::Global.name(),
            MetricSource::Losses(kind) => kind,
        }
    }
}

/// Returns the name of a direction for pins. `interface` is the index of the interface that the
/// direction serves alone.
pub fn pin_name(direction: &str, interface: Option<usize>) -> String {
    interface.map_or_else(
        || direction.to_owned(),
        |index| format!("{direction}_{index}"),
    )
}
