//! What metrics ask of the maps of a source, checked against what the source defines: all mistakes at once.

use std::sync::Arc;

use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::{EventKind, Layout, MapKind, TableLayout};

use crate::plan::events;
use crate::plan::object::{MapSpec, ProbeObject};
use crate::plan::variables::{self, VariableSpec};

/// The descriptor of a map with this flag can't be written through, or not be read.
const BPF_F_RDONLY: u32 = 1 << 3;
const BPF_F_WRONLY: u32 = 1 << 4;

/// A metric's wish, by map name.
#[derive(Clone, Debug)]
pub struct MetricRequest {
    /// The configuration's path of the metric, for findings.
    pub field: String,
    pub map: String,
    pub snapshot: bool,
    pub aggregated: bool,
    pub reset: bool,
    pub hidden: bool,
    /// Rules for adding up windows, other than the default ones.
    pub merged: bool,
    /// The C name of the type that events are decoded by.
    pub event_type: Option<String>,
    /// Entry by entry, whatever the kernel offers.
    pub iterative: bool,
    /// A replacement takes over the map's content.
    pub carry: bool,
}

/// What a metric is read from.
pub enum Content {
    Table(Arc<TableLayout>),
    Variable(VariableSpec),
    Events(EventKind, Option<Layout>),
}

impl MetricRequest {
    /// The map it is about; for `.bss:VAR` that of the section.
    pub fn map_name(&self) -> &str {
        self.map.split_once(':').map_or(&self.map, |(section, _)| section)
    }

    /// Whether the daemon writes to it: a snapshot is cleared before it is used again.
    const fn writes(&self) -> bool {
        self.reset || self.snapshot
    }

    fn finding(&self, field: &str, message: impl Into<String>) -> Finding {
        Finding::config(format!("{}.{field}", self.field), message)
    }
}

pub fn check(
    object: &ProbeObject,
    requests: &[MetricRequest],
    possible_cpus: usize,
    warnings: &mut Vec<String>,
) -> Result<Vec<Content>, Rejection> {
    let mut findings = Vec::new();
    let mut contents = Vec::new();
    for request in requests {
        let content = if request.map.contains(':') {
            variables::check(object, request, warnings).map(Content::Variable)
        } else {
            map(object, request, possible_cpus, warnings, &mut findings)
        };
        match content {
            Ok(content) => {
                if !matches!(content, Content::Events(..)) && request.event_type.is_some() {
                    let message = format!(
                        "the types of {} are known from its definition: type is for events, leave it out",
                        request.map
                    );
                    findings.push(request.finding("type", message));
                }
                contents.push(content);
            }
            Err(finding) => findings.push(finding),
        }
    }
    check_together(object, requests, &mut findings);
    variables::warn_of_neighbours(object, requests, warnings);
    if findings.is_empty() { Ok(contents) } else { Err(Rejection { findings, log: None }) }
}

fn map(
    object: &ProbeObject,
    request: &MetricRequest,
    possible_cpus: usize,
    warnings: &mut Vec<String>,
    findings: &mut Vec<Finding>,
) -> Result<Content, Finding> {
    let name = &request.map;
    let Some(spec) = object.maps().get(name).filter(|_| !name.starts_with('.')) else {
        let names: Vec<&str> =
            object.maps().keys().map(String::as_str).filter(|name| !name.starts_with('.')).collect();
        let known = if names.is_empty() {
            "it defines none".into()
        } else {
            format!("it defines {}", names.join(", "))
        };
        return Err(request.finding("map", format!("the source defines no map {name}; {known}")));
    };
    if let Some(kind) = EventKind::from_bpf_type(spec.map_type) {
        if request.event_type.is_none() {
            warnings.push(format!("map {name}: no type is given, its events are shown in hex"));
        }
        return Ok(Content::Events(kind, events::check(object, request, kind, findings)));
    }
    let kind = readable(&format!("map {name} is"), spec, |kind| kind != MapKind::Global)
        .map_err(|message| request.finding("map", message))?;
    // Of the values that are shown.
    let value_kind = if kind.is_nested() { inner_kind(request, spec)? } else { kind };
    if request.aggregated && !value_kind.is_percpu() {
        let message = format!(
            "map {name} is of type {}, which has one value per entry: agg is for PERCPU maps, leave it out",
            value_kind.name()
        );
        findings.push(request.finding("agg", message));
    }
    if kind.is_nested() && request.snapshot && !request.reset {
        let message =
            format!("the windows of map {name} can't be added up, since its values are maps; add init: true");
        findings.push(request.finding("init", message));
    }
    if spec.flags & BPF_F_WRONLY != 0 {
        let message = format!("map {name} has BPF_F_WRONLY: the daemon can't read it; leave the flag out");
        findings.push(request.finding("map", message));
    }
    if spec.flags & BPF_F_RDONLY != 0 && request.writes() {
        let field = if request.reset { "init" } else { "snapshot" };
        let message =
            format!("map {name} has BPF_F_RDONLY: the daemon can't reset it; leave the flag or {field} out");
        findings.push(request.finding(field, message));
    }
    let (layout, doubt) = object.table_layout(name, spec, kind, possible_cpus);
    warnings.extend(doubt);
    Ok(Content::Table(Arc::new(layout)))
}

/// The kind of a map, or what to say of one that metrics can't read.
fn readable(what: &str, spec: &MapSpec, possible: impl Fn(MapKind) -> bool) -> Result<MapKind, String> {
    MapKind::from_bpf_type(spec.map_type).filter(|kind| possible(*kind)).ok_or_else(|| {
        let maps = MapKind::ALL.into_iter().filter(|kind| possible(*kind)).map(MapKind::name);
        let kinds: Vec<&str> = maps.chain(EventKind::ALL.map(EventKind::name)).collect();
        let (number, kinds) = (spec.map_type, kinds.join(", "));
        format!("{what} of BPF map type {number}, which can't be read as a metric; possible are {kinds}")
    })
}

fn inner_kind(request: &MetricRequest, spec: &MapSpec) -> Result<MapKind, Finding> {
    let name = &request.map;
    let Some(inner) = &spec.inner else {
        let message =
            format!("map {name} does not say what its maps are; use __array(values, struct {{...}})");
        return Err(request.finding("map", message));
    };
    let table = |kind: MapKind| kind != MapKind::Global && !kind.is_nested();
    readable(&format!("the maps in map {name} are"), inner, table)
        .map_err(|message| request.finding("map", message))
}

/// What is private to the twins is so for every metric that reads it, and no map is read twice.
fn check_together(object: &ProbeObject, requests: &[MetricRequest], findings: &mut Vec<Finding>) {
    let private = private_maps(object, requests);
    for request in requests.iter().filter(|request| !request.snapshot && private.contains(request.map_name()))
    {
        let message = match request.map_name() {
            section if section.starts_with('.') => {
                format!(
                    "another variable of {section} is a snapshot, so all of {section} is; add snapshot: true"
                )
            }
            map => format!("map {map} belongs to the snapshot of another metric; add snapshot: true"),
        };
        findings.push(request.finding("snapshot", message));
    }
    for outer in requests {
        let Some(spec) = object.maps().get(&outer.map) else { continue };
        for request in
            requests.iter().filter(|request| spec.slots.values().any(|inner| *inner == request.map))
        {
            let message = format!("map {} is already read as part of map {}", request.map, outer.map);
            findings.push(request.finding("map", message));
        }
    }
}

/// The maps of which each twin has its own: those of snapshots, the maps in them, and what those are in.
pub fn private_maps(object: &ProbeObject, requests: &[MetricRequest]) -> std::collections::BTreeSet<String> {
    let snapshots = requests.iter().filter(|request| request.snapshot);
    let mut private: std::collections::BTreeSet<String> =
        snapshots.map(|request| request.map_name().to_owned()).collect();
    loop {
        let before = private.len();
        for (name, spec) in object.maps() {
            if private.contains(name) {
                private.extend(spec.slots.values().cloned());
            } else if spec.slots.values().any(|inner| private.contains(inner)) {
                private.insert(name.clone());
            }
        }
        if private.len() == before {
            return private;
        }
    }
}
