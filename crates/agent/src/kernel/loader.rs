//! Twins from one object: one compilation, two loads. The twins differ only in the maps bound to them: maps
//! of snapshot metrics are private to each, everything else is shared (Algorithm 1 of the paper, lines
//! 12-21, without its second compilation).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aya_obj::Function;
use twinprobe_ebpf_common::{EventKind, Layout, MapKind, TableLayout};

use super::events::{self, EventMap};
use super::hook::ProgramKind;
use super::map::MetricMap;
use super::object::{MapSpec, ObjectError, ProbeObject};
use super::sys::{self, InfoRecords, KernelError, MapCreate, ProgLoad};
use super::verifier;
use crate::report::{Finding, Rejection, Stage};

/// Characters of a source line that a finding quotes.
const MAX_QUOTE: usize = 120;

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
}

/// A direction's program as it is in the kernel, attached to nothing.
#[derive(Debug)]
pub struct LoadedTwins {
    pub entry: String,
    pub programs: Programs,
    /// In the order of the requests.
    pub maps: Vec<TwinMap>,
    pub warnings: Vec<String>,
}

#[derive(Debug)]
pub enum Programs {
    /// No metric wants a snapshot: there is nothing to swap.
    Single(OwnedFd),
    Twins([OwnedFd; 2]),
}

impl Programs {
    /// The program that runs while the epoch has this parity.
    pub fn of_parity(&self, parity: usize) -> BorrowedFd<'_> {
        match self {
            Self::Single(program) => program.as_fd(),
            Self::Twins(programs) => programs[parity & 1].as_fd(),
        }
    }

    pub const fn are_twins(&self) -> bool {
        matches!(self, Self::Twins(_))
    }
}

/// A metric's map: one for both twins, or one each. Events go into one for both.
#[derive(Debug)]
pub enum TwinMap {
    Shared(MetricMap),
    Private([MetricMap; 2]),
    Events(Arc<EventMap>),
}

impl TwinMap {
    /// `None` for events.
    pub const fn layout(&self) -> Option<&Arc<TableLayout>> {
        match self {
            Self::Shared(map) => Some(map.layout()),
            Self::Private(maps) => Some(maps[0].layout()),
            Self::Events(_) => None,
        }
    }

    /// The name of the map's type.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Shared(map) => map.layout().kind.name(),
            Self::Private(maps) => maps[0].layout().kind.name(),
            Self::Events(map) => map.kind().name(),
        }
    }
}

/// What a map of the source will be read as.
enum Content {
    Table(Arc<TableLayout>),
    Events(EventKind, Option<Layout>),
}

/// Loads the twins of `elf` as `requests` want them. `field` is the configuration's path of the direction.
pub fn load(
    elf: &[u8],
    kind: ProgramKind,
    field: &str,
    requests: &[MetricRequest],
    possible_cpus: usize,
) -> Result<LoadedTwins, Rejection> {
    let source = format!("{field}.source");
    let no_features = aya_obj::btf::BtfFeatures::default();
    let features = aya::features().btf().unwrap_or(&no_features);
    let object = ProbeObject::parse(elf, kind, features)
        .map_err(|error| Finding::new(Stage::Load, &source, with_causes(&error)))?;
    let mut warnings = object.warnings().to_vec();
    let layouts = metric_layouts(&object, requests, possible_cpus, &mut warnings)?;

    let refuse = |error: KernelError| Rejection::from(map_finding(&source, &error));
    let btf = sys::btf_load(object.btf_blob())
        .map_err(|error| warnings.push(format!("the kernel takes no type information: {error}")))
        .ok();
    let snapshot: BTreeSet<&str> = requests.iter().filter(|r| r.snapshot).map(|r| r.map.as_str()).collect();
    let first = create_maps(object.maps(), &btf, |_| true).map_err(refuse)?;
    let second = create_maps(object.maps(), &btf, |name| snapshot.contains(name)).map_err(refuse)?;

    let programs = if snapshot.is_empty() {
        Programs::Single(load_program(&object, kind, &btf, &source, &first, &BTreeMap::new())?)
    } else {
        Programs::Twins([
            load_program(&object, kind, &btf, &source, &first, &BTreeMap::new())?,
            load_program(&object, kind, &btf, &source, &first, &second)?,
        ])
    };
    let maps = metric_maps(&object, requests, layouts, first, second);
    Ok(LoadedTwins { entry: object.entry().to_owned(), programs, maps, warnings })
}

/// An error and what caused it, in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

/// Checks each request against the maps of the source; all mistakes at once.
fn metric_layouts(
    object: &ProbeObject,
    requests: &[MetricRequest],
    possible_cpus: usize,
    warnings: &mut Vec<String>,
) -> Result<Vec<Content>, Rejection> {
    let mut findings = Vec::new();
    let mut layouts = Vec::new();
    for request in requests {
        let map_field = format!("{}.map", request.field);
        let Some(spec) = object.maps().get(&request.map).filter(|_| !request.map.starts_with('.')) else {
            let names: Vec<&str> =
                object.maps().keys().map(String::as_str).filter(|name| !name.starts_with('.')).collect();
            let known = if names.is_empty() {
                "it defines none".into()
            } else {
                format!("it defines {}", names.join(", "))
            };
            findings.push(Finding::config(
                map_field,
                format!("the source defines no map {}; {known}", request.map),
            ));
            continue;
        };
        if let Some(kind) = EventKind::from_bpf_type(spec.map_type) {
            layouts.push(Content::Events(kind, events::request::check(object, request, kind, &mut findings)));
            if request.event_type.is_none() {
                let message = format!("map {}: no type is given, its events are shown in hex", request.map);
                warnings.push(message);
            }
            continue;
        }
        let Some(kind) = MapKind::from_bpf_type(spec.map_type) else {
            let events = EventKind::ALL.iter().map(|kind| kind.name());
            let kinds: Vec<&str> = MapKind::ALL.iter().map(|kind| kind.name()).chain(events).collect();
            let message = format!(
                "map {} is of BPF map type {}, which can't be read as a metric; possible are {}",
                request.map,
                spec.map_type,
                kinds.join(", ")
            );
            findings.push(Finding::config(map_field, message));
            continue;
        };
        if request.aggregated && !kind.is_percpu() {
            let message = format!(
                "map {} is of type {}, which has one value per entry: agg is for PERCPU maps, leave it out",
                request.map,
                kind.name()
            );
            findings.push(Finding::config(format!("{}.agg", request.field), message));
        }
        if request.event_type.is_some() {
            let message = format!(
                "map {} is of type {}, whose types are known from its definition: type is for events, leave it out",
                request.map,
                kind.name()
            );
            findings.push(Finding::config(format!("{}.type", request.field), message));
        }
        let (layout, doubt) = object.table_layout(&request.map, spec, kind, possible_cpus);
        warnings.extend(doubt);
        layouts.push(Content::Table(Arc::new(layout)));
    }
    if findings.is_empty() { Ok(layouts) } else { Err(Rejection { findings, log: None }) }
}

fn create_maps(
    specs: &BTreeMap<String, MapSpec>,
    btf: &Option<OwnedFd>,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, OwnedFd>, KernelError> {
    specs
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, spec)| Ok((name.clone(), create_map(name, spec, btf)?)))
        .collect()
}

fn create_map(name: &str, spec: &MapSpec, btf: &Option<OwnedFd>) -> Result<OwnedFd, KernelError> {
    let error = |call| move |source| KernelError::new(call, format!("map {name}"), source);
    let inner = spec.inner.as_ref().map(|inner| create_map(name, inner, &None)).transpose()?;
    let untyped = MapCreate {
        name: name.trim_start_matches('.'),
        map_type: spec.map_type,
        key_size: spec.key_size,
        value_size: spec.value_size,
        max_entries: events::max_entries(spec.map_type, spec.max_entries),
        flags: spec.flags,
        extra: spec.extra,
        inner: inner.as_ref().map(AsFd::as_fd),
        btf: None,
    };
    let (key, value) = spec.btf_types;
    let typed = btf.as_ref().filter(|_| key != 0 || value != 0).map(|btf| (btf.as_fd(), key, value));
    let fd = match sys::map_create(&MapCreate { btf: typed, ..untyped }) {
        // Some map types take no types; decoding does not need the kernel's copy.
        Err(source) if typed.is_some() && sys::is_unsupported(&source) => sys::map_create(&untyped),
        result => result,
    }
    .map_err(error("creation"))?;
    if !spec.initial.is_empty() {
        sys::map_update(fd.as_fd(), &0_u32.to_ne_bytes(), &spec.initial).map_err(error("initialisation"))?;
    }
    if spec.frozen {
        sys::map_freeze(fd.as_fd()).map_err(error("freezing"))?;
    }
    Ok(fd)
}

fn map_finding(source: &str, error: &KernelError) -> Finding {
    let hint = match error.errno() {
        libc::EINVAL => "; its type, sizes, flags or max_entries do not go together",
        libc::E2BIG | libc::ENOMEM => "; it is larger than the kernel allows, lower max_entries or the sizes",
        libc::EPERM => "; the daemon needs CAP_BPF",
        _ => "",
    };
    Finding::new(Stage::Load, source, format!("{}{hint}", with_causes(error)))
}

/// Binds `own` maps, else the `shared` ones, and loads.
fn load_program(
    object: &ProbeObject,
    kind: ProgramKind,
    btf: &Option<OwnedFd>,
    source: &str,
    shared: &BTreeMap<String, OwnedFd>,
    own: &BTreeMap<String, OwnedFd>,
) -> Result<OwnedFd, Rejection> {
    let fds: HashMap<&str, _> =
        shared.iter().chain(own).map(|(name, fd)| (name.as_str(), fd.as_raw_fd())).collect();
    let function = object
        .bind(&fds)
        .map_err(|error: ObjectError| Finding::new(Stage::Load, source, with_causes(&error)))?;
    let (func_info, line_info) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
    let program = ProgLoad {
        name: object.entry(),
        prog_type: kind.prog_type(),
        expected_attach_type: kind.expected_attach_type(),
        flags: kind.load_flags(),
        license: object.license(),
        instructions: &function.instructions,
        btf: btf.as_ref().map(AsFd::as_fd),
        func_info: InfoRecords {
            bytes: &func_info,
            record_size: function.func_info_rec_size as u32,
            count: function.func_info.len() as u32,
        },
        line_info: InfoRecords {
            bytes: &line_info,
            record_size: function.line_info_rec_size as u32,
            count: function.line_info.len() as u32,
        },
    };
    verifier::load(&program).map_err(|refusal| refused(object, &function, source, refusal))
}

fn refused(object: &ProbeObject, function: &Function, source: &str, refusal: verifier::Refusal) -> Rejection {
    let mut finding = Finding::new(Stage::Load, source, refusal.message);
    if let Some((line, column)) =
        refusal.instruction.and_then(|instruction| source_position(object, function, instruction))
    {
        finding = finding.at(line, Some(column));
    }
    if let Some(quoted) = refusal.quoted {
        let quoted: String = quoted.chars().take(MAX_QUOTE).collect();
        finding.message = format!("{} (at `{quoted}`)", finding.message);
    }
    Rejection::from(finding).with_log(refusal.log)
}

/// The user's line that `instruction` was compiled from: that of the last record before it which is not
/// from a header.
fn source_position(object: &ProbeObject, function: &Function, instruction: u32) -> Option<(u32, u32)> {
    function
        .line_info
        .line_info
        .iter()
        .filter(|record| record.insn_off <= instruction)
        .filter(|record| {
            let file = object.file_name(record.file_name_off);
            file.is_some_and(|file| file.ends_with(crate::compiler::SOURCE_NAME))
        })
        .max_by_key(|record| record.insn_off)
        .map(|record| (record.line_col >> 10, record.line_col & 0x3ff))
}

fn metric_maps(
    object: &ProbeObject,
    requests: &[MetricRequest],
    contents: Vec<Content>,
    mut first: BTreeMap<String, OwnedFd>,
    mut second: BTreeMap<String, OwnedFd>,
) -> Vec<TwinMap> {
    let mut maps = Vec::new();
    for (request, content) in requests.iter().zip(contents) {
        // A map is named by one metric only; the configuration was refused otherwise.
        let Some(fd) = first.remove(&request.map) else { continue };
        let spec = &object.maps()[&request.map];
        let entries = events::max_entries(spec.map_type, spec.max_entries);
        let layout = match content {
            Content::Table(layout) => layout,
            Content::Events(kind, layout) => {
                let map = EventMap::new(fd, &request.map, kind, entries, layout);
                maps.push(TwinMap::Events(Arc::new(map)));
                continue;
            }
        };
        let map = MetricMap::new(fd, &request.map, Arc::clone(&layout), entries);
        maps.push(match second.remove(&request.map) {
            Some(fd) => TwinMap::Private([map, MetricMap::new(fd, &request.map, layout, entries)]),
            None => TwinMap::Shared(map),
        });
    }
    maps
}
