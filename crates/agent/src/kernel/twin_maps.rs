//! The maps of a probe: made, filled with what the source says, and handed to those who read them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::TableLayout;

use super::capabilities::Capabilities;
use super::events::{self, EventMap};
use super::map::probe::BPF_F_MMAPABLE;
use super::map::strategy::Access;
use super::map::{MetricMap, Section, Table, Variable};
use super::mapping;
use super::object::{MapSpec, ProbeObject};
use super::request::{Content, MetricRequest, private_maps};
use super::sys::{self, KernelError, MapCreate};

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

    /// The name of the map's type.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Shared(map) => map.layout().kind.name(),
            Self::Private(maps) => maps[0].layout().kind.name(),
            Self::Events(map) => map.kind().name(),
        }
    }
}

/// Descriptors by map name: all of the first twin, and those the second has of its own.
pub struct TwinFds {
    pub first: BTreeMap<String, OwnedFd>,
    pub second: BTreeMap<String, OwnedFd>,
}

impl TwinFds {
    pub fn create(
        object: &ProbeObject,
        btf: Option<BorrowedFd<'_>>,
        requests: &[MetricRequest],
    ) -> Result<Self, KernelError> {
        let private = private_maps(object, requests);
        let mapped: BTreeSet<&str> =
            requests.iter().filter(|r| r.map.contains(':')).map(MetricRequest::map_name).collect();
        let create = |wanted: &dyn Fn(&str) -> bool| -> Result<BTreeMap<String, OwnedFd>, KernelError> {
            let specs = object.maps().iter().filter(|(name, _)| wanted(name));
            specs
                .map(|(name, spec)| {
                    let flags = if mapped.contains(name.as_str()) { BPF_F_MMAPABLE } else { 0 };
                    Ok((name.clone(), create_map(name, spec, flags, btf)?))
                })
                .collect()
        };
        let twins = Self { first: create(&|_| true)?, second: create(&|name| private.contains(name))? };
        twins.fill(object)?;
        Ok(twins)
    }

    /// Puts the inner maps into the outer ones, of each twin its own.
    fn fill(&self, object: &ProbeObject) -> Result<(), KernelError> {
        let no_own = BTreeMap::new();
        for (outer, spec) in object.maps() {
            for (maps, own) in [(&self.first, &no_own), (&self.second, &self.second)] {
                let Some(outer_fd) = maps.get(outer) else { continue };
                for (slot, inner) in &spec.slots {
                    let error = |source| {
                        KernelError::new(
                            "initialisation",
                            format!("map {outer}, slot {slot} ({inner})"),
                            source,
                        )
                    };
                    let inner_fd = own.get(inner).or_else(|| self.first.get(inner));
                    let inner_fd = inner_fd.ok_or_else(|| error(std::io::ErrorKind::NotFound.into()))?;
                    let value = inner_fd.as_raw_fd().to_ne_bytes();
                    sys::map_update(outer_fd.as_fd(), &slot.to_ne_bytes(), &value).map_err(error)?;
                }
            }
        }
        Ok(())
    }

    /// What the metrics read, in the order of the requests. Descriptors of other maps are closed.
    pub fn into_maps(
        mut self,
        object: &ProbeObject,
        requests: &[MetricRequest],
        contents: Vec<Content>,
        capabilities: &Capabilities,
    ) -> Result<Vec<TwinMap>, KernelError> {
        let mut sections = [Sections::default(), Sections::default()];
        let mut maps = Vec::new();
        for (request, content) in requests.iter().zip(contents) {
            let name = request.map_name();
            let spec = &object.maps()[name];
            if let Content::Variable(variable) = content {
                let mut of_twin = |twin: usize, fds: &BTreeMap<String, OwnedFd>| {
                    let section = fds.get(name).map(|fd| sections[twin].open(name, spec, fd)).transpose()?;
                    let (layout, initial) = (Arc::clone(&variable.layout), variable.initial.clone());
                    let variable = |section| Variable::new(section, layout, variable.offset, initial);
                    Ok(section.map(variable).map(MetricMap::Variable))
                };
                maps.extend(twin_map(of_twin(0, &self.first)?, of_twin(1, &self.second)?));
                continue;
            }
            // A map is named by one metric only; the configuration was refused otherwise.
            let (first, second) = (self.first.remove(name), self.second.remove(name));
            let entries = events::max_entries(spec.map_type, spec.max_entries);
            match content {
                Content::Events(kind, layout) => maps.extend(
                    first.map(|fd| TwinMap::Events(Arc::new(EventMap::new(fd, name, kind, entries, layout)))),
                ),
                Content::Table(layout) => {
                    let access = access(request, &layout, capabilities);
                    let table =
                        |fd| MetricMap::Table(Table::new(fd, name, Arc::clone(&layout), entries, access));
                    maps.extend(twin_map(first.map(table), second.map(table)));
                }
                Content::Variable(_) => {}
            }
        }
        Ok(maps)
    }
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
    fn open(&mut self, name: &str, spec: &MapSpec, fd: &OwnedFd) -> Result<Arc<Section>, KernelError> {
        if let Some(section) = self.0.get(name) {
            return Ok(Arc::clone(section));
        }
        let memory = if spec.frozen { mapping::Access::Read } else { mapping::Access::ReadWrite };
        let section = Section::new(fd.as_fd(), spec.value_size as usize, memory)
            .map_err(|source| KernelError::new("mapping", format!("section {name}"), source))?;
        self.0.insert(name.to_owned(), Arc::clone(&section));
        Ok(section)
    }
}

fn create_map(
    name: &str,
    spec: &MapSpec,
    flags: u32,
    btf: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, KernelError> {
    let error = |call| move |source| KernelError::new(call, format!("map {name}"), source);
    let inner = spec.inner.as_ref().map(|inner| create_map(name, inner, 0, btf)).transpose()?;
    let untyped = MapCreate {
        name: name.trim_start_matches('.'),
        map_type: spec.map_type,
        key_size: spec.key_size,
        value_size: spec.value_size,
        max_entries: events::max_entries(spec.map_type, spec.max_entries),
        flags: spec.flags | flags,
        extra: spec.extra,
        inner: inner.as_ref().map(AsFd::as_fd),
        btf: None,
    };
    let (key, value) = spec.btf_types;
    let typed = btf.filter(|_| key != 0 || value != 0).map(|btf| (btf, key, value));
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
