//! The maps of a probe: made, filled with what the source says, and handed to those who read them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use twinprobe_ebpf_common::TableLayout;

use crate::capabilities::Capabilities;
use crate::load::carry::predecessor::{MapShape, Predecessor};
use crate::plan::build::{Content, MetricRequest, private_maps};
use crate::plan::object::{MapSpec, ProbeObject};
use crate::read::access::Access;
use crate::read::events::event_map::{self, EventMap};
use crate::read::table::{MetricMap, Table};
use crate::read::variable::{Section, Variable};
use crate::sys::call::{self, KernelError};
use crate::sys::map::{self, MapCreate};
use crate::sys::mapping;
use crate::trial::maps::BPF_F_MMAPABLE;

/// A metric's map: one for both twins, or one each. Events go into one for both.
#[derive(Debug)]
pub enum TwinMap {
    /// Shared with those who read it at their client's pace.
    Shared(Arc<MetricMap>),
    Private([MetricMap; 2]),
    Events(Arc<EventMap>),
}

impl TwinMap {
    /// `None` for events.
    pub fn layout(&self) -> Option<&Arc<TableLayout>> {
        match self {
            Self::Shared(map) => Some(map.layout()),
            Self::Private(maps) => Some(maps[0].layout()),
            Self::Events(_) => None,
        }
    }

    /// Returns the number of entries that the map has room for; `None` for events and variables.
    pub fn max_entries(&self) -> Option<usize> {
        match self {
            Self::Shared(map) => map.max_entries(),
            Self::Private(maps) => maps[0].max_entries(),
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

/// A map of a loaded direction, whether a metric reads it or not.
#[derive(Debug)]
pub struct ProbeMap {
    pub spec: MapSpec,
    pub shape: MapShape,
    pub fds: TwinFds,
    pub origin: Origin,
}

/// Where a map's content comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is new, and what a map of that name held before is not wanted.
    New,
    /// It is new, and is to get what the replaced deployment's map of that name holds.
    Successor,
    /// It is the replaced deployment's own.
    TakenOver,
}

/// One map for both twins, or one each.
#[derive(Debug)]
pub enum TwinFds {
    Shared(OwnedFd),
    Private([OwnedFd; 2]),
}

impl TwinFds {
    pub fn of_twin(&self, twin: usize) -> BorrowedFd<'_> {
        match self {
            Self::Shared(fd) => fd.as_fd(),
            Self::Private(fds) => fds[twin & 1].as_fd(),
        }
    }

    /// The descriptors there are, each with the first twin it belongs to.
    pub fn each(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let (first, second) = match self {
            Self::Shared(fd) => (fd, None),
            Self::Private([first, second]) => (first, Some(second)),
        };
        std::iter::once(first).chain(second).map(AsFd::as_fd).enumerate()
    }
}

/// All maps of a loaded direction by name.
#[derive(Debug, Default)]
pub struct ProbeMaps {
    maps: BTreeMap<String, ProbeMap>,
    expected_twin: Option<usize>,
}

impl ProbeMaps {
    pub const fn by_name(&self) -> &BTreeMap<String, ProbeMap> {
        &self.maps
    }

    /// The twin of the replaced deployment that has to see packets when these maps take over, since maps were chosen by
    /// it: those that were shared and become private to each twin, or the other way round. `None` if there are none.
    pub const fn expected_twin(&self) -> Option<usize> {
        self.expected_twin
    }

    /// Makes the maps, and takes over those that are the same in `old` with their content. Nothing is written to a map
    /// of `old`: packets are still counted there, and the new source may yet be refused.
    pub fn create(
        object: &ProbeObject,
        btf: Option<BorrowedFd<'_>>,
        requests: &[MetricRequest],
        old: Option<&Predecessor>,
    ) -> Result<Self, KernelError> {
        // A map in a map of maps is read through the outer map, and begins anew with that map.
        let is_read_by = |name: &str, request: &MetricRequest| {
            let of = request.map_name();
            of == name
                || object.maps().get(of).is_some_and(|outer| outer.slots.values().any(|inner| inner == name))
        };
        let kept = |name: &str| {
            let mut of_map = requests.iter().filter(|request| is_read_by(name, request)).peekable();
            match of_map.peek() {
                Some(_) => of_map.all(|request| request.carry),
                None => old.is_some_and(|old| old.unnamed),
            }
        };
        let begin_anew = begin_anew(object, requests, old, &kept);
        let mut made = Self::default();
        let mut empty = Vec::new();
        // A map of maps comes after the maps in it: the outer map can be taken over only together with them.
        let (outer, plain): (Vec<_>, Vec<_>) =
            definitions(object, requests).partition(|(_, spec, ..)| !spec.slots.is_empty());
        for (name, spec, shape, private) in plain.into_iter().chain(outer) {
            let taken_over =
                |inner| made.maps.get(inner).is_some_and(|map: &ProbeMap| map.origin == Origin::TakenOver);
            let content_is_same = spec.slots.values().all(taken_over);
            let goes_on = kept(name) && !begin_anew.contains(name.as_str());
            let old = old.filter(|old| goes_on && old.maps.by_name().contains_key(name));
            let reused = old.filter(|_| content_is_same).map(|old| old.reuse(name, &spec, &shape, private));
            let reused = reused
                .transpose()
                .map_err(|source| KernelError::new("taking over", format!("map {name}"), source))?
                .flatten();
            if let (Some(old), Some(_)) = (old, &reused)
                && old.is_private(name) != private
            {
                made.expected_twin = Some(old.active & 1);
            }
            let origin = match (old, &reused) {
                (None, _) => Origin::New,
                (Some(_), None) => Origin::Successor,
                (Some(_), Some(_)) => Origin::TakenOver,
            };
            let [first, second] = reused.unwrap_or_default();
            let twins = [first.is_none(), private && second.is_none()].into_iter().enumerate();
            empty.extend(twins.filter(|(_, is_new)| *is_new).map(|(twin, _)| (name, twin)));
            let own = |fd: Option<OwnedFd>| fd.map_or_else(|| create_map(name, &spec, btf), Ok);
            let fds = match private {
                true => TwinFds::Private([own(first)?, own(second)?]),
                false => TwinFds::Shared(own(first)?),
            };
            made.maps.insert(name.clone(), ProbeMap { spec, shape, fds, origin });
        }
        empty.into_iter().try_for_each(|(name, twin)| made.fill(name, twin))?;
        Ok(made)
    }

    /// Maps that an earlier daemon has made; `open` gives the descriptor of a map's twin.
    pub fn adopt(
        object: &ProbeObject,
        requests: &[MetricRequest],
        mut open: impl FnMut(&str, usize) -> Result<OwnedFd, String>,
    ) -> Result<Self, String> {
        let mut maps = BTreeMap::new();
        for (name, spec, shape, private) in definitions(object, requests) {
            let fds = match private {
                true => TwinFds::Private([open(name, 0)?, open(name, 1)?]),
                false => TwinFds::Shared(open(name, 0)?),
            };
            maps.insert(name.clone(), ProbeMap { spec, shape, fds, origin: Origin::TakenOver });
        }
        Ok(Self { maps, expected_twin: None })
    }

    /// What a twin's program is bound to.
    pub fn of_twin(&self, twin: usize) -> HashMap<&str, RawFd> {
        self.maps.iter().map(|(name, map)| (name.as_str(), map.fds.of_twin(twin).as_raw_fd())).collect()
    }

    /// Whether the twins differ at all.
    pub fn are_twins(&self) -> bool {
        self.maps.values().any(|map| matches!(map.fds, TwinFds::Private(_)))
    }

    /// Puts the inner maps into the new map `outer` of a twin. Private inner maps are those of the same twin.
    fn fill(&self, outer: &str, twin: usize) -> Result<(), KernelError> {
        let map = &self.maps[outer];
        for (slot, inner) in &map.spec.slots {
            let what = || format!("map {outer}, slot {slot} ({inner})");
            let error = |source| KernelError::new("initialisation", what(), source);
            let inner = self.maps.get(inner).ok_or_else(|| error(std::io::ErrorKind::NotFound.into()))?;
            let value = inner.fds.of_twin(twin).as_raw_fd().to_ne_bytes();
            map::map_update(map.fds.of_twin(twin), &slot.to_ne_bytes(), &value).map_err(error)?;
        }
        Ok(())
    }

    /// What the metrics read, in the order of the requests.
    pub fn readers(
        &self,
        requests: &[MetricRequest],
        contents: Vec<Content>,
        capabilities: &Capabilities,
    ) -> Result<Vec<TwinMap>, KernelError> {
        let mut sections = [Sections::default(), Sections::default()];
        let mut maps = Vec::new();
        for (request, content) in requests.iter().zip(contents) {
            let name = request.map_name();
            let ProbeMap { spec, fds, .. } = &self.maps[name];
            let clone = |fd: BorrowedFd<'_>| {
                fd.try_clone_to_owned()
                    .map_err(|source| KernelError::new("opening", format!("map {name}"), source))
            };
            let mut readers = Vec::new();
            for (twin, fd) in fds.each() {
                readers.push(match &content {
                    Content::Variable(variable) => {
                        let section = sections[twin].open(name, spec, fd)?;
                        let (layout, initial) = (Arc::clone(&variable.layout), variable.initial.clone());
                        MetricMap::Variable(Variable::new(section, layout, variable.offset, initial))
                    }
                    Content::Table(layout) => {
                        let access = access(request, layout, capabilities);
                        let entries = spec.max_entries;
                        let members =
                            spec.slots.values().map(|inner| clone(self.maps[inner].fds.of_twin(twin)));
                        let members = members.collect::<Result<_, _>>()?;
                        let table = Table::new(clone(fd)?, name, Arc::clone(layout), entries, access);
                        let table = table.with_members(members).map_err(|source| {
                            KernelError::new("identification", format!("the maps in map {name}"), source)
                        })?;
                        MetricMap::Table(table)
                    }
                    Content::Events(..) => break,
                });
            }
            if let Content::Events(kind, layout) = content {
                let entries = event_map::max_entries(spec.map_type, spec.max_entries);
                let map = EventMap::new(clone(fds.of_twin(0))?, name, kind, entries, layout);
                maps.push(TwinMap::Events(Arc::new(map)));
                continue;
            }
            let mut readers = readers.into_iter();
            maps.extend(twin_map(readers.next(), readers.next()));
        }
        Ok(maps)
    }
}

/// Returns the maps in those maps of maps that metrics read and that `old` has, but that can't be taken over: such a
/// map of maps starts empty, even if some of the maps in it are the same as before.
fn begin_anew<'a>(
    object: &'a ProbeObject,
    requests: &[MetricRequest],
    old: Option<&Predecessor>,
    kept: &dyn Fn(&str) -> bool,
) -> BTreeSet<&'a str> {
    let Some(old) = old else { return BTreeSet::new() };
    let defined: BTreeMap<&String, (MapSpec, MapShape)> =
        definitions(object, requests).map(|(name, spec, shape, _)| (name, (spec, shape))).collect();
    let goes_on = |name: &String| {
        kept(name) && defined.get(name).is_some_and(|(spec, shape)| old.has_same(name, spec, shape))
    };
    let is_read = |outer: &str| requests.iter().any(|request| request.map_name() == outer);
    let outer = object.maps().iter().filter(|(name, spec)| {
        !spec.slots.is_empty() && is_read(name) && old.maps.by_name().contains_key(name.as_str())
    });
    outer
        .filter(|(name, spec)| !goes_on(name) || !spec.slots.values().all(goes_on))
        .flat_map(|(_, spec)| spec.slots.values().map(String::as_str))
        .collect()
}

/// Each map of the source: its name, what it is, and whether each twin has its own.
fn definitions<'a>(
    object: &'a ProbeObject,
    requests: &[MetricRequest],
) -> impl Iterator<Item = (&'a String, MapSpec, MapShape, bool)> {
    let private = private_maps(object, requests);
    object.maps().iter().map(move |(name, spec)| {
        let mut spec = spec.clone();
        if name.starts_with('.') {
            // Metrics read variables in mapped memory.
            spec.flags |= BPF_F_MMAPABLE;
        }
        let shape = MapShape::new(object, name, &spec);
        (name, spec, shape, private.contains(name))
    })
}

fn twin_map(first: Option<MetricMap>, second: Option<MetricMap>) -> Option<TwinMap> {
    Some(match (first?, second) {
        (first, Some(second)) => TwinMap::Private([first, second]),
        (first, None) => TwinMap::Shared(Arc::new(first)),
    })
}

/// Of the map, and of the maps in it.
fn access(request: &MetricRequest, layout: &TableLayout, capabilities: &Capabilities) -> [Access; 2] {
    let inner = layout.inner.as_ref().map_or(layout.kind, |inner| inner.kind);
    [layout.kind, inner].map(|kind| {
        let access = capabilities.access(kind);
        if request.iterative { access.iterative() } else { access }
    })
}

/// The mapped sections of one twin.
#[derive(Default)]
struct Sections(BTreeMap<String, Arc<Section>>);

impl Sections {
    fn open(&mut self, name: &str, spec: &MapSpec, fd: BorrowedFd<'_>) -> Result<Arc<Section>, KernelError> {
        if let Some(section) = self.0.get(name) {
            return Ok(Arc::clone(section));
        }
        let memory = if spec.frozen { mapping::Access::Read } else { mapping::Access::ReadWrite };
        let section = Section::new(fd, spec.value_size as usize, memory)
            .map_err(|source| KernelError::new("mapping", format!("section {name}"), source))?;
        self.0.insert(name.to_owned(), Arc::clone(&section));
        Ok(section)
    }
}

fn create_map(name: &str, spec: &MapSpec, btf: Option<BorrowedFd<'_>>) -> Result<OwnedFd, KernelError> {
    let error = |call| move |source| KernelError::new(call, format!("map {name}"), source);
    let inner = spec.inner.as_ref().map(|inner| create_map(name, inner, btf)).transpose()?;
    let untyped = MapCreate {
        name: name.trim_start_matches('.'),
        map_type: spec.map_type,
        key_size: spec.key_size,
        value_size: spec.value_size,
        max_entries: event_map::max_entries(spec.map_type, spec.max_entries),
        flags: spec.flags,
        extra: spec.extra,
        inner: inner.as_ref().map(AsFd::as_fd),
        btf: None,
    };
    let (key, value) = spec.btf_types;
    let typed = btf.filter(|_| key != 0 || value != 0).map(|btf| (btf, key, value));
    let fd = match map::map_create(&MapCreate { btf: typed, ..untyped }) {
        // Some map types take no types; decoding does not need the kernel's copy.
        Err(source) if typed.is_some() && call::is_unsupported(&source) => map::map_create(&untyped),
        result => result,
    }
    .map_err(error("creation"))?;
    if !spec.initial.is_empty() {
        map::map_update(fd.as_fd(), &0_u32.to_ne_bytes(), &spec.initial).map_err(error("initialisation"))?;
    }
    if spec.frozen {
        map::map_freeze(fd.as_fd()).map_err(error("freezing"))?;
    }
    Ok(fd)
}
