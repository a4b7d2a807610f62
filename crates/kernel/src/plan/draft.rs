//! One direction of a probe while it is planned.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::ipfix::element::FieldElements;
use twinprobe_ebpf_common::metric::{OnReplace, Visibility};

use crate::admit::maps::refusal;
use crate::plan::map_spec::MapSpec;
use crate::plan::metric::source::{extraction, source};
use crate::plan::metric::{elements, fill, losses};
use crate::plan::object::Definitions;
use crate::plan::probe_plan::{DirectionPlan, MapPlan, MetricPlan, MetricSource};
use crate::plan::request::{DeclaredAt, DirectionRequest, KernelFacts, PlanFindings};
use crate::plan::shape::MapShape;
use twinprobe_ebpf_common::request::{AttachRequest, Fills, MetricRequest};

/// The plan of a direction with its warnings, or the findings because of which the direction is
/// refused.
pub type Planned = Result<(DirectionPlan, Vec<String>), Vec<Finding>>;

/// A direction that is being planned.
pub struct DirectionDraft<'a> {
    attach: AttachRequest,
    code: String,
    places: BTreeMap<String, DeclaredAt>,
    defined: &'a Definitions,
    pub maps: Vec<MapPlan>,
    metrics: Vec<MetricRequest>,
    sources: Vec<Option<MetricSource>>,
    /// The map of each metric; `None` if the source does not define it.
    read: Vec<Option<usize>>,
    /// The names of the maps that a metric of either direction shows.
    shown: BTreeSet<String>,
    fill: Arc<Fills>,
    anew: BTreeSet<String>,
    cpus: usize,
    pub notes: PlanFindings,
}

impl<'a> DirectionDraft<'a> {
    /// Begins the plan of a direction. `others` are the metrics of the other direction that read
    /// maps of both.
    pub fn new(
        request: DirectionRequest,
        others: &[MetricRequest],
        defined: &'a Definitions,
        facts: KernelFacts,
    ) -> Self {
        let mut notes = PlanFindings::default();
        let DirectionRequest {
            attach,
            fill,
            anew,
            code,
            on_replace,
            mut metrics,
            places,
            ..
        } = request;
        let mut sources: Vec<Option<MetricSource>> = metrics
            .iter()
            .map(|metric| source(defined, metric, facts, &mut notes))
            .collect();
        let all: Vec<&MetricRequest> = metrics.iter().chain(others).collect();
        let shown = all
            .iter()
            .filter(|metric| metric.visibility == Visibility::Export);
        let shown = shown.map(|metric| metric.map.clone()).collect();
        let counters = losses::requests(defined, &all, &code, on_replace);
        sources.extend(
            counters
                .iter()
                .map(|counter| losses::source(defined, counter)),
        );
        metrics.extend(counters);
        let mut maps = plan_maps(defined, &metrics, on_replace);
        fill_slots(&mut maps, defined, &code, &mut notes);
        let read = metrics
            .iter()
            .map(|metric| number(&maps, metric.map_name()))
            .collect();
        let cpus = facts.possible_cpus;
        Self {
            attach,
            code,
            places,
            defined,
            maps,
            metrics,
            sources,
            read,
            shown,
            fill,
            anew,
            cpus,
            notes,
        }
    }

    /// Returns the name of the direction in configurations.
    pub fn direction(&self) -> &'static str {
        self.attach.hook.direction()
    }

    pub const fn sample(&self) -> Option<NonZeroU32> {
        self.attach.sample
    }

    /// Returns the metrics whose map the source defines, each with the index of the map.
    pub fn readers(&self) -> impl Iterator<Item = (&MetricRequest, usize)> {
        self.metrics
            .iter()
            .zip(&self.read)
            .filter_map(|(metric, map)| Some((metric, (*map)?)))
    }

    pub fn finish(mut self) -> Planned {
        warn_of_neighbours(self.defined, &self.maps, &self.metrics, &mut self.notes);
        self.fill_maps();
        let entries = self.entries();
        let metrics = self.metrics.into_iter().zip(self.sources).zip(self.read);
        let metrics = metrics.filter_map(|((request, source), map)| Some((request, source?, map?)));
        let metrics = metrics.chain(entries).map(|(request, source, map)| {
            let extraction = extraction(&source, &request);
            let elements = match source {
                MetricSource::Table(_) => {
                    elements::plan(&self.defined.btf, &request, &mut self.notes.findings)
                }
                _ => FieldElements::default(),
            };
            MetricPlan {
                request,
                map,
                source,
                extraction,
                elements,
            }
        });
        let metrics: Vec<MetricPlan> = metrics.collect();
        let counter = |(index, metric): (usize, &MetricPlan)| {
            Some((losses::counted(&metric.request.map)?.to_owned(), index))
        };
        let counters = metrics.iter().enumerate().filter_map(counter).collect();
        let (attach, code) = (self.attach, self.code);
        let (entry, frags, sees) = (
            self.defined.entry.clone(),
            self.defined.frags,
            self.defined.sees,
        );
        let (places, maps) = (Arc::new(self.places), self.maps);
        let others = self.defined.others.clone();
        let calls = self.defined.calls.clone();
        let own_interface = None;
        let plan = DirectionPlan {
            attach,
            own_interface,
            code,
            places,
            entry,
            others,
            frags,
            joined: false,
            maps,
            counters,
            metrics,
            sees,
            calls,
        };
        if self.notes.findings.is_empty() {
            Ok((plan, self.notes.warnings))
        } else {
            Err(self.notes.findings)
        }
    }
}

impl DirectionDraft<'_> {
    /// Notes the entries that the configuration gives the maps, and the maps that begin anew.
    fn fill_maps(&mut self) {
        let readers: Vec<(&MetricRequest, usize)> = self.readers().collect();
        match fill::plan(self.defined, &self.maps, &readers, &self.fill, self.cpus) {
            Ok(fills) => self
                .maps
                .iter_mut()
                .zip(fills)
                .for_each(|(map, fill)| map.fill = fill),
            Err(findings) => self.notes.findings.extend(findings),
        }
        for map in self
            .maps
            .iter_mut()
            .filter(|map| self.anew.contains(&map.name))
        {
            map.on_replace = OnReplace::Reset;
        }
    }

    /// Returns the metrics of losses for maps that no metric shows, each with the index of its map.
    fn entries(&self) -> Vec<(MetricRequest, MetricSource, usize)> {
        let counted = self
            .metrics
            .iter()
            .filter_map(|metric| losses::counted(&metric.map));
        let unshown = counted.filter(|map| !self.shown.contains(*map));
        let entries = unshown.filter_map(|name| {
            let map = self.maps.iter().position(|map| map.name == name)?;
            let (request, source) = losses::entry(&self.maps[map], &self.metrics, &self.code)?;
            Some((request, source, map))
        });
        entries.collect()
    }
}

/// Returns the plans of the maps that the program or a metric needs, sorted by the names of the
/// maps.
fn plan_maps(
    defined: &Definitions,
    metrics: &[MetricRequest],
    on_replace: OnReplace,
) -> Vec<MapPlan> {
    // A program that does not run here may have a forbidden map.
    let is_needless = |name: &str, spec: &MapSpec| {
        let is_read = metrics.iter().any(|metric| metric.map_name() == name);
        let is_of_others = !defined.others.is_empty() && defined.unused.contains(name);
        is_of_others && !is_read && refusal(name, spec).is_some()
    };
    let needed = defined
        .maps
        .iter()
        .filter(|(name, spec)| !is_needless(name, spec));
    let maps = needed.map(|(name, spec)| MapPlan {
        name: name.clone(),
        shape: MapShape::new(&defined.btf, name, spec),
        spec: spec.clone(),
        private: false,
        common: false,
        is_read: false,
        slots: BTreeMap::new(),
        on_replace,
        fill: Vec::new(),
    });
    maps.collect()
}

/// Puts the inner maps of the source into the slots of their outer maps.
fn fill_slots(maps: &mut [MapPlan], defined: &Definitions, code: &str, notes: &mut PlanFindings) {
    for (outer, slot, inner) in &defined.slots {
        if let (Some(outer), Some(inner)) = (number(maps, outer), number(maps, inner)) {
            maps[outer].slots.insert(*slot, inner);
        } else {
            let message = format!("map {outer}, slot {slot}: the source defines no map {inner}");
            notes
                .findings
                .push(Finding::new(Stage::Load, code, message));
        }
    }
}

/// Returns the number of the map with this name among maps that are sorted by their names.
fn number(maps: &[MapPlan], name: &str) -> Option<usize> {
    maps.binary_search_by(|map| map.name.as_str().cmp(name))
        .ok()
}

/// Warns of variables that become private although no metric names them: a section is private as a
/// whole.
fn warn_of_neighbours(
    defined: &Definitions,
    maps: &[MapPlan],
    requests: &[MetricRequest],
    notes: &mut PlanFindings,
) {
    for section in maps
        .iter()
        .filter(|map| map.private && map.name.starts_with('.') && !losses::is_section(&map.name))
    {
        let section = &section.name;
        let variables = defined.btf.section_variables(section);
        let is_metric = |name: &str| {
            requests
                .iter()
                .any(|request| request.map == format!("{section}:{name}"))
        };
        let others: Vec<&str> = variables
            .iter()
            .map(|variable| variable.name.as_str())
            .filter(|name| !is_metric(name))
            .collect();
        if !others.is_empty() {
            notes.warnings.push(format!(
                "{section} is private to each twin, because of the snapshots of its variables; so are {}: what one \
                 twin writes there the other does not see",
                others.join(", ")
            ));
        }
    }
}
