//! The maps of a probe: made, filled with what the source says, and handed to those who read them.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use twinprobe_ebpf_common::TableLayout;
use twinprobe_ebpf_common::metric::StrategyChoice;

use crate::capabilities::Capabilities;
use crate::load::carry::predecessor::Predecessor;
use crate::plan::inherit::{Inherited, inherit};
use crate::plan::map_spec::MapSpec;
use crate::plan::probe_plan::{DirectionPlan, MapPlan, MetricSource};
use crate::plan::request::MetricRequest;
use crate::read::access::Access;
use crate::read::events::event_map::EventMap;
use crate::read::table::{MetricMap, Table};
use crate::read::variable::{Section, Variable};
use crate::sys::call::{self, KernelError};
use crate::sys::map::{self, MapCreate};
use crate::sys::mapping;

/// A metric's map: one for both twins, or one each. Events go into one for both.
#[derive(Debug)]
pub enum TwinMap {
    /// Shared with those who read it at their client's pace.
    Shared(Arc<MetricMap>),
    Private([MetricMap; 2]),
    Events(Arc<EventMap>),
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

/// All maps of a loaded direction, as planned.
#[derive(Debug)]
pub struct ProbeMaps {
    plan: Arc<DirectionPlan>,
    fds: Vec<TwinFds>,
    inherited: Vec<Inherited>,
    expected_twin: Option<usize>,
}

impl ProbeMaps {
    /// Each map of the plan with its descriptors.
    pub fn each(&self) -> impl Iterator<Item = (&MapPlan, &TwinFds)> {
        self.plan.maps.iter().zip(&self.fds)
    }

    /// The map with this name and its descriptors.
    pub fn by_name(&self, name: &str) -> Option<(&MapPlan, &TwinFds)> {
        self.each().find(|(map, _)| map.name == name)
    }

    /// Where the content of a map of the plan comes from.
    pub fn inherited(&self, map: usize) -> Inherited {
        self.inherited[map]
    }

    /// The twin of the replaced deployment that has to see packets when these maps take over, since maps were chosen by
    /// it: those that were shared and become private to each twin, or the other way round. `None` if there are none.
    pub const fn expected_twin(&self) -> Option<usize> {
        self.expected_twin
    }

    /// Makes the maps, and takes over those that are the same in `old` with their content. Nothing is written to a map
    /// of `old`: packets are still counted there, and the new source may yet be refused.
    pub fn create(
        plan: Arc<DirectionPlan>,
        btf: Option<BorrowedFd<'_>>,
        old: Option<&Predecessor>,
    ) -> Result<Self, KernelError> {
        let inherited = match old {
            Some(old) => inherit(&old.maps.plan, &plan, &old.more_known),
            None => vec![Inherited::New; plan.maps.len()],
        };
        let from_active = inherited.contains(&Inherited::FromActive);
        let expected_twin = old.filter(|_| from_active).map(|old| old.active & 1);
        let (mut fds, mut empty) = (Vec::new(), Vec::new());
        for (index, (map, inherited)) in plan.maps.iter().zip(&inherited).enumerate() {
            let old = old.filter(|_| inherited.is_taken_over());
            let [first, second] = old
                .map_or(Ok([None, None]), |old| old.reuse(map))
                .map_err(|source| KernelError::new("taking over", format!("map {}", map.name), source))?;
            let twins = [first.is_none(), map.private && second.is_none()].into_iter().enumerate();
            empty.extend(twins.filter(|(_, is_new)| *is_new).map(|(twin, _)| (index, twin)));
            let own = |fd: Option<OwnedFd>| fd.map_or_else(|| create_map(&map.name, &map.spec, btf), Ok);
            fds.push(match map.private {
                true => TwinFds::Private([own(first)?, own(second)?]),
                false => TwinFds::Shared(own(first)?),
            });
        }
        let made = Self { plan, fds, inherited, expected_twin };
        empty.into_iter().try_for_each(|(map, twin)| made.fill(map, twin))?;
        Ok(made)
    }

    /// Maps that an earlier daemon has made; `open` gives the descriptor of a map's twin.
    pub fn adopt(
        plan: Arc<DirectionPlan>,
        mut open: impl FnMut(&str, usize) -> Result<OwnedFd, String>,
    ) -> Result<Self, String> {
        let fds = plan.maps.iter().map(|map| match map.private {
            true => Ok(TwinFds::Private([open(&map.name, 0)?, open(&map.name, 1)?])),
            false => Ok(TwinFds::Shared(open(&map.name, 0)?)),
        });
        let (fds, inherited) = (fds.collect::<Result<_, String>>()?, vec![Inherited::Same; plan.maps.len()]);
        Ok(Self { plan, fds, inherited, expected_twin: None })
    }

    /// What a twin's program is bound to.
    pub fn of_twin(&self, twin: usize) -> HashMap<&str, RawFd> {
        self.each().map(|(map, fds)| (map.name.as_str(), fds.of_twin(twin).as_raw_fd())).collect()
    }

    /// Puts the inner maps into the new map `outer` of a twin. Private inner maps are those of the same twin.
    fn fill(&self, outer: usize, twin: usize) -> Result<(), KernelError> {
        let map = &self.plan.maps[outer];
        for (slot, inner) in &map.slots {
            let value = self.fds[*inner].of_twin(twin).as_raw_fd().to_ne_bytes();
            map::map_update(self.fds[outer].of_twin(twin), &slot.to_ne_bytes(), &value).map_err(
                |source| {
                    let inner = &self.plan.maps[*inner].name;
                    let object = format!("map {}, slot {slot} ({inner})", map.name);
                    KernelError::new("initialisation", object, source)
                },
            )?;
        }
        Ok(())
    }

    /// What the metrics read, in the order of the plan.
    pub fn readers(&self, capabilities: &Capabilities) -> Result<Vec<TwinMap>, KernelError> {
        let mut sections = [Sections::default(), Sections::default()];
        let mut maps = Vec::new();
        for metric in &self.plan.metrics {
            let map = &self.plan.maps[metric.map];
            let (name, entries) = (&map.name, map.spec.max_entries);
            let clone = |fd: BorrowedFd<'_>| {
                fd.try_clone_to_owned()
                    .map_err(|source| KernelError::new("opening", format!("map {name}"), source))
            };
            let mut readers = Vec::new();
            for (twin, fd) in self.fds[metric.map].each() {
                readers.push(match &metric.source {
                    MetricSource::Variable(variable) => {
                        let section = sections[twin].open(map, fd)?;
                        let (layout, initial) = (Arc::clone(&variable.layout), variable.initial.clone());
                        MetricMap::Variable(Variable::new(section, layout, variable.offset, initial))
                    }
                    MetricSource::Table(layout) => {
                        let access = access(&metric.request, layout, capabilities);
                        let members = map.slots.values().map(|inner| clone(self.fds[*inner].of_twin(twin)));
                        let members = members.collect::<Result<_, _>>()?;
                        let table = Table::new(clone(fd)?, name, Arc::clone(layout), entries, access);
                        let table = table.with_members(members).map_err(|source| {
                            KernelError::new("identification", format!("the maps in map {name}"), source)
                        })?;
                        MetricMap::Table(table)
                    }
                    MetricSource::Events(..) => break,
                });
            }
            if let MetricSource::Events(kind, layout) = &metric.source {
                let fd = clone(self.fds[metric.map].of_twin(0))?;
                maps.push(TwinMap::Events(Arc::new(EventMap::new(fd, name, *kind, entries, layout.clone()))));
                continue;
            }
            let mut readers = readers.into_iter();
            maps.extend(twin_map(readers.next(), readers.next()));
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
        if request.strategy == StrategyChoice::Iterative { access.iterative() } else { access }
    })
}

/// The mapped sections of one twin.
#[derive(Default)]
struct Sections(BTreeMap<String, Arc<Section>>);

impl Sections {
    fn open(&mut self, map: &MapPlan, fd: BorrowedFd<'_>) -> Result<Arc<Section>, KernelError> {
        let MapPlan { name, spec, .. } = map;
        if let Some(section) = self.0.get(name) {
            return Ok(Arc::clone(section));
        }
        let memory = if spec.frozen { mapping::Access::Read } else { mapping::Access::ReadWrite };
        let section = Section::new(fd, spec.value_size as usize, memory)
            .map_err(|source| KernelError::new("mapping", format!("section {name}"), source))?;
        self.0.insert(name.clone(), Arc::clone(&section));
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
        max_entries: spec.max_entries,
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
