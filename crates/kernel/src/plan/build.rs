//! The planning of a probe from its objects and its configuration. A refusal lists every mistake at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::metric::{OnReplace, Source, Visibility};
use twinprobe_ebpf_common::{EventKind, MapFamily};

use crate::plan::object::{Definitions, ProbeObject};
use crate::plan::probe_plan::{DirectionPlan, Extraction, MapPlan, MetricPlan, MetricSource, ProbePlan};
use crate::plan::request::{DirectionRequest, KernelFacts, MetricRequest, Notes};
use crate::plan::shape::MapShape;
use crate::plan::{events, losses, tables, variables};

impl ProbePlan {
    /// Plans a probe. `wanted` has the request and the compiled source of each direction. Returns the plan of the
    /// directions without mistakes, their objects in the same order, and the findings about the other directions.
    pub fn build<'a>(
        wanted: impl IntoIterator<Item = (DirectionRequest, &'a [u8])>,
        facts: KernelFacts,
    ) -> (Self, Vec<ProbeObject>, Vec<Finding>) {
        let (mut plan, mut objects, mut findings) = (Self::default(), Vec::new(), Vec::new());
        for (request, elf) in wanted {
            let hook = request.attach.hook;
            let source = format!("{}.source", hook.direction());
            let planned = ProbeObject::parse(elf, hook.kind(), facts)
                .map_err(|error| vec![error.finding(&source)])
                .and_then(|object| Ok((direction(request, &object.defined, facts)?, object)));
            match planned {
                Ok(((direction, warnings), object)) => {
                    let warnings = object.defined.warnings.iter().chain(&warnings);
                    plan.warnings.extend(warnings.map(|text| Finding::new(Stage::Load, &source, text)));
                    plan.directions.push(Arc::new(direction));
                    objects.push(object);
                }
                Err(refused) => findings.extend(refused),
            }
        }
        (plan, objects, findings)
    }
}

/// Plans one direction. Returns the plan and its warnings, or the findings by which the direction is refused.
pub fn direction(
    request: DirectionRequest,
    defined: &Definitions,
    facts: KernelFacts,
) -> Result<(DirectionPlan, Vec<String>), Vec<Finding>> {
    let mut notes = Notes::default();
    let DirectionRequest { attach, on_replace, mut metrics } = request;
    let mut sources: Vec<Option<MetricSource>> =
        metrics.iter().map(|metric| source(defined, metric, facts, &mut notes)).collect();
    let counters = losses::requests(defined, &metrics);
    sources.extend(counters.iter().map(|counter| losses::source(defined, counter)));
    metrics.extend(counters);
    let names: Vec<&str> = defined.maps.keys().map(String::as_str).collect();
    let number = |name: &str| names.iter().position(|known| *known == name);
    let maps = defined.maps.iter().map(|(name, spec)| MapPlan {
        name: name.clone(),
        shape: MapShape::new(&defined.btf, name, spec),
        spec: spec.clone(),
        private: false,
        slots: BTreeMap::new(),
        on_replace,
    });
    let mut maps: Vec<MapPlan> = maps.collect();
    for (outer, slot, inner) in &defined.slots {
        if let (Some(outer), Some(inner)) = (number(outer), number(inner)) {
            maps[outer].slots.insert(*slot, inner);
        } else {
            let message = format!("map {outer}, slot {slot}: the source defines no map {inner}");
            let source = format!("{}.source", attach.hook.direction());
            notes.findings.push(Finding::new(Stage::Load, source, message));
        }
    }
    let read = metrics.iter().filter_map(|metric| Some((metric, number(metric.map_name())?)));
    let read: Vec<(&MetricRequest, usize)> = read.collect();
    set_private(&mut maps, &read);
    set_on_replace(&mut maps, &read);
    check_together(&maps, &read, &mut notes);
    warn_of_neighbours(defined, &maps, &metrics, &mut notes);
    let counters: Vec<Option<usize>> =
        metrics.iter().map(|metric| losses::position(&metric.map, metrics.iter())).collect();
    let metrics = metrics.into_iter().zip(sources).zip(counters).filter_map(|((request, source), losses)| {
        let (map, source) = (number(request.map_name())?, source?);
        let extraction = extraction(&source, &request);
        Some(MetricPlan { request, map, source, extraction, losses })
    });
    let plan = DirectionPlan { attach, entry: defined.entry.clone(), maps, metrics: metrics.collect() };
    if notes.findings.is_empty() { Ok((plan, notes.warnings)) } else { Err(notes.findings) }
}

/// Returns the source that the metric is read from; `None` if it can't be read, for which `notes` get the finding.
fn source(
    defined: &Definitions,
    request: &MetricRequest,
    facts: KernelFacts,
    notes: &mut Notes,
) -> Option<MetricSource> {
    let name = &request.map;
    let source = match (name.split_once(':'), defined.maps.get(name).filter(|_| !name.starts_with('.'))) {
        (Some(variable), _) => variables::plan(defined, request, variable, notes),
        (None, Some(spec)) => match EventKind::from_bpf_type(spec.map_type) {
            Some(kind) => Ok(events::plan(defined, request, kind, notes)),
            None => tables::plan(defined, request, spec, facts, notes),
        },
        (None, None) => Err(request.finding("map", unknown(defined, name))),
    };
    if let Ok(MetricSource::Table(_) | MetricSource::Variable(_)) = source
        && request.event_type.is_some()
    {
        let message =
            format!("the types of {name} are known from its definition: type is for events, leave it out");
        notes.findings.push(request.finding("type", message));
    }
    source.map_err(|finding| notes.findings.push(finding)).ok()
}

fn unknown(defined: &Definitions, name: &str) -> String {
    let names = defined.maps.keys().map(String::as_str).filter(|name| !name.starts_with('.'));
    let names: Vec<&str> = names.collect();
    let known = match names.is_empty() {
        true => "it defines none".to_owned(),
        false => format!("it defines {}", names.join(", ")),
    };
    format!("the source defines no map {name}; {known}")
}

/// Returns the effect of a reading on the metric's map. Reading a queue or stack always takes its values out.
fn extraction(source: &MetricSource, request: &MetricRequest) -> Extraction {
    let pops = match source {
        MetricSource::Events(..) => return Extraction::Stream,
        MetricSource::Table(layout) => layout.kind.family() == MapFamily::Fifo,
        MetricSource::Variable(_) => false,
    };
    match (request.source, request.visibility) {
        (Source::Snapshot, _) => Extraction::Clear,
        (Source::Live, Visibility::Export) if pops || request.is_reset() => Extraction::Drain,
        (Source::Live, Visibility::Hidden) if request.is_reset() => Extraction::Discard,
        (Source::Live, _) => Extraction::Copy,
    }
}

/// Makes private to each twin: the maps that snapshots read, the maps inside of these, and the maps of maps that
/// contain one of them.
fn set_private(maps: &mut [MapPlan], read: &[(&MetricRequest, usize)]) {
    let snapshots = read.iter().filter(|(request, _)| request.is_snapshot());
    let mut todo: Vec<usize> = snapshots.map(|(_, map)| *map).collect();
    while let Some(map) = todo.pop() {
        if !std::mem::replace(&mut maps[map].private, true) {
            todo.extend((0..maps.len()).filter(|&other| maps[map].holds(other) || maps[other].holds(map)));
        }
    }
}

/// Decides for each map whether a replacement keeps its content: only if all metrics that read the map ask for that. A
/// map in a map of maps is read through the outer map, and begins anew together with the outer map.
fn set_on_replace(maps: &mut [MapPlan], read: &[(&MetricRequest, usize)]) {
    for map in 0..maps.len() {
        let readers = read.iter().filter(|(_, of)| *of == map || maps[*of].holds(map));
        let wishes = readers.map(|(request, _)| request.on_replace);
        if let Some(wish) = wishes.reduce(|all, one| if all == OnReplace::Carry { one } else { all }) {
            maps[map].on_replace = wish;
        }
    }
}

/// Reports metrics that can't go together: a private map has to be private for every metric that reads it, and no map
/// may be read both directly and through a map of maps.
fn check_together(maps: &[MapPlan], read: &[(&MetricRequest, usize)], notes: &mut Notes) {
    for (request, _) in read.iter().filter(|(request, map)| !request.is_snapshot() && maps[*map].private) {
        let message = match request.map_name() {
            section if section.starts_with('.') => {
                format!(
                    "another variable of {section} is a snapshot, so all of {section} is; add snapshot: true"
                )
            }
            map => format!("map {map} belongs to the snapshot of another metric; add snapshot: true"),
        };
        notes.findings.push(request.finding("snapshot", message));
    }
    for outer in read.iter().map(|(_, map)| &maps[*map]) {
        for (request, _) in read.iter().filter(|(_, map)| outer.holds(*map)) {
            let message = format!("map {} is already read as part of map {}", request.map, outer.name);
            notes.findings.push(request.finding("map", message));
        }
    }
}

/// Warns of variables that become private although no metric names them: a section is private as a whole.
fn warn_of_neighbours(
    defined: &Definitions,
    maps: &[MapPlan],
    requests: &[MetricRequest],
    notes: &mut Notes,
) {
    for section in
        maps.iter().filter(|map| map.private && map.name.starts_with('.') && !losses::is_section(&map.name))
    {
        let section = &section.name;
        let variables = defined.btf.section_variables(section);
        let is_metric =
            |name: &str| requests.iter().any(|request| request.map == format!("{section}:{name}"));
        let others: Vec<&str> =
            variables.iter().map(|variable| variable.name.as_str()).filter(|name| !is_metric(name)).collect();
        if !others.is_empty() {
            notes.warnings.push(format!(
                "{section} is private to each twin, because of the snapshots of its variables; so are {}: what one \
                 twin writes there the other does not see",
                others.join(", ")
            ));
        }
    }
}
