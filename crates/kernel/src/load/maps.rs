//! The maps of a probe: their creation, their initial content, and the views through which metrics
//! read them.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use twinprobe_ebpf_common::TableLayout;
use twinprobe_ebpf_common::metric::StrategyChoice;

use crate::capabilities::Capabilities;
use crate::load::both::both;
use crate::load::fill::fill;
use crate::plan::inherit::{self, Inherited, ReplacedDirection};
use crate::plan::map_spec::MapSpec;
use crate::plan::probe_plan::{DirectionPlan, MapPlan, MetricPlan, MetricSource};
use crate::read::access::MapAccess;
use crate::read::events::event_map::EventMap;
use crate::read::map::MetricMap;
use crate::read::table::MapTable;
use crate::read::variable::Variable;
use crate::sys::call::{self, KernelError};
use crate::sys::map::{self, MapCreate};
use crate::sys::mapping::{self, Mapping};
use twinprobe_ebpf_common::request::MetricRequest;

/// The map of a metric: one that both twins share, or one for each twin. Both twins write events
/// into the same map.
#[derive(Debug)]
pub enum TwinMap {
    /// The map in which both twins count. Readers share it, and read it at the pace of their
    /// clients.
    Shared(Arc<MetricMap>),
    Private([MetricMap; 2]),
    Events(Arc<EventMap>),
    /// A map without a reader.
    Unread,
}

/// One object that both twins share, or one object for each twin.
#[derive(Debug)]
pub enum Twins<T> {
    Shared(T),
    Private([T; 2]),
}

impl<T> Twins<T> {
    /// Makes one object for each twin if `private` is true, or else one object that both twins
    /// share.
    pub fn make<E>(private: bool, mut make: impl FnMut(usize) -> Result<T, E>) -> Result<Self, E> {
        Ok(if private {
            Self::Private([make(0)?, make(1)?])
        } else {
            Self::Shared(make(0)?)
        })
    }

    pub const fn of_twin(&self, twin: usize) -> &T {
        match self {
            Self::Shared(one) => one,
            Self::Private(both) => &both[twin & 1],
        }
    }

    /// Returns the objects, in the order of the twins: one or two.
    pub const fn each(&self) -> &[T] {
        match self {
            Self::Shared(one) => std::slice::from_ref(one),
            Self::Private(both) => both,
        }
    }
}

/// The deployment that is being replaced.
#[derive(Clone, Debug)]
pub struct Predecessor {
    /// The maps of each direction, and the names of maps with counts that are kept outside of them:
    /// sums of windows, and the counts of earlier maps.
    pub directions: Vec<(Arc<ProbeMaps>, BTreeSet<String>)>,
    /// The index of the twin that sees packets, if there are twins.
    pub active: usize,
}

/// All maps of a loaded direction, as planned.
#[derive(Debug)]
pub struct ProbeMaps {
    pub plan: Arc<DirectionPlan>,
    fds: Vec<Twins<OwnedFd>>,
    /// The origin of each map's content, in the order of the plan.
    pub inherited: Vec<Inherited>,
    /// The directions of the replaced deployment whose map continues in each map, in the order of
    /// the plan.
    pub origins: Vec<Vec<usize>>,
    /// True if the maps that both directions use were made by the direction before this direction.
    pub is_second: bool,
    /// The twin of the replaced deployment that must be active when the new maps take over, because
    /// maps of this twin were chosen where a map changes between shared and private. `None` if
    /// there are no such maps.
    pub expected_twin: Option<usize>,
}

impl Predecessor {
    fn replaced(&self) -> Vec<ReplacedDirection<'_>> {
        self.directions
            .iter()
            .map(|(maps, more_known)| ReplacedDirection {
                plan: &maps.plan,
                more_known,
            })
            .collect()
    }
}

impl ProbeMaps {
    /// Returns each map of the plan with its descriptors.
    pub fn each(&self) -> impl Iterator<Item = (&MapPlan, &Twins<OwnedFd>)> {
        self.plan.maps.iter().zip(&self.fds)
    }

    /// Returns the origin of the content of the map with this name, and its descriptors.
    fn find(&self, name: &str) -> Option<(Inherited, &Twins<OwnedFd>)> {
        let (index, _) = self
            .plan
            .maps
            .iter()
            .enumerate()
            .find(|(_, map)| map.name == name)?;
        Some((self.inherited[index], &self.fds[index]))
    }

    pub fn by_name(&self, name: &str) -> Option<(&MapPlan, &Twins<OwnedFd>)> {
        self.each().find(|(map, _)| map.name == name)
    }

    /// Makes the maps, and takes over the maps that are the same in `old`, with their content. Maps
    /// that both directions use are those of `first`, the direction that was loaded before. Nothing
    /// is written to a map of `old`: packets are still counted there, and the new source may yet be
    /// refused.
    pub fn create(
        plan: Arc<DirectionPlan>,
        btf: Option<BorrowedFd<'_>>,
        old: Option<&Predecessor>,
        first: Option<&Self>,
    ) -> Result<Self, KernelError> {
        let replaced: Vec<ReplacedDirection<'_>> = old.map_or(Vec::new(), Predecessor::replaced);
        let earlier = first.map(|first| &*first.plan);
        let origins = plan
            .maps
            .iter()
            .map(|map| inherit::origins(&replaced, &plan, earlier, map));
        let origins: Vec<Vec<usize>> = origins.collect();
        let mut inherited = inherit::inherit(&replaced, &plan, &origins);
        let active = old.map_or(0, |old| old.active & 1);
        // The maps that are taken over and not made here, by twin.
        let mut taken: Vec<[Option<&OwnedFd>; 2]> = Vec::new();
        for (index, map) in plan.maps.iter().enumerate() {
            if let Some((place, of_first)) = first
                .filter(|_| map.common)
                .and_then(|first| first.find(&map.name))
            {
                inherited[index] = place;
                taken.push([0, 1].map(|twin| Some(of_first.of_twin(twin))));
                continue;
            }
            let before = old.zip(origins[index].first());
            let before =
                before.and_then(|(old, origin)| old.directions[*origin].0.by_name(&map.name));
            taken.push([0, 1].map(|twin| {
                let of = inherited[index].twin(map.private, twin, active)?;
                before.map(|(_, fds)| fds.of_twin(of))
            }));
        }
        let fds = make_twins(&plan, &taken, btf)?;
        let is_new = |&(map, twin): &(usize, usize)| {
            (twin == 0 || plan.maps[map].private) && taken[map][twin].is_none()
        };
        let new = (0..plan.maps.len())
            .flat_map(|map| [(map, 0), (map, 1)])
            .filter(is_new);
        let new: Vec<(usize, usize)> = new.collect();
        let expected_twin = inherited.contains(&Inherited::FromActive).then_some(active);
        let made = Self {
            plan,
            fds,
            inherited,
            origins,
            is_second: first.is_some(),
            expected_twin,
        };
        new.into_iter()
            .try_for_each(|(map, twin)| made.begin(map, twin))?;
        Ok(made)
    }

    /// Adopts the maps that an earlier daemon has made; `open` returns the descriptor of a map,
    /// given its name and twin.
    pub fn adopt(
        plan: Arc<DirectionPlan>,
        mut open: impl FnMut(&str, usize) -> Result<OwnedFd, String>,
    ) -> Result<Self, String> {
        let fds = plan
            .maps
            .iter()
            .map(|map| Twins::make(map.private, |twin| open(&map.name, twin)));
        let (fds, inherited) = (
            fds.collect::<Result<_, _>>()?,
            vec![Inherited::Same; plan.maps.len()],
        );
        let origins = vec![Vec::new(); plan.maps.len()];
        Ok(Self {
            plan,
            fds,
            inherited,
            origins,
            is_second: false,
            expected_twin: None,
        })
    }

    /// Returns the descriptors that a twin's program is bound to, in the order of the plan.
    pub fn of_twin(&self, twin: usize) -> Vec<RawFd> {
        self.fds
            .iter()
            .map(|fds| fds.of_twin(twin).as_raw_fd())
            .collect()
    }

    /// Gives a new map its first content.
    fn begin(&self, map: usize, twin: usize) -> Result<(), KernelError> {
        self.hold(map, twin)?;
        fill(&self.plan.maps[map], self.fds[map].of_twin(twin).as_fd())
    }

    /// Puts the inner maps into the new map `outer` of a twin. Private inner maps are those of the
    /// same twin.
    fn hold(&self, outer: usize, twin: usize) -> Result<(), KernelError> {
        let (map, fd) = (&self.plan.maps[outer], self.fds[outer].of_twin(twin));
        for (slot, inner) in &map.slots {
            let value = self.fds[*inner].of_twin(twin).as_raw_fd().to_ne_bytes();
            map::map_update(fd.as_fd(), &slot.to_ne_bytes(), &value).map_err(|source| {
                let object = format!(
                    "map {}, slot {slot} ({})",
                    map.name, self.plan.maps[*inner].name
                );
                KernelError::new("initialisation", object, source)
            })?;
        }
        Ok(())
    }

    /// Returns the maps that the metrics read, in the order of the plan.
    pub fn readers(&self, capabilities: &Capabilities) -> Result<Vec<TwinMap>, KernelError> {
        let mut sections = HashMap::new();
        let reader = |metric: &MetricPlan| {
            let (map, fds) = (&self.plan.maps[metric.map], &self.fds[metric.map]);
            let (name, entries) = (&map.name, map.spec.max_entries);
            let failed = |call| move |source| KernelError::new(call, format!("map {name}"), source);
            let clone = |fd: &OwnedFd| fd.try_clone().map_err(failed("opening"));
            let maps = match &metric.source {
                MetricSource::Events(kind, layout) => {
                    let map =
                        EventMap::new(clone(fds.of_twin(0))?, name, *kind, entries, layout.clone());
                    return Ok(TwinMap::Events(Arc::new(map)));
                }
                MetricSource::Losses(_) => return Ok(TwinMap::Unread),
                MetricSource::Variable(variable) => Twins::make(map.private, |twin| {
                    let memory = match sections.entry((metric.map, twin)) {
                        Entry::Occupied(known) => Arc::clone(known.get()),
                        Entry::Vacant(place) => {
                            let memory =
                                memory(map, fds.of_twin(twin)).map_err(failed("mapping"))?;
                            Arc::clone(place.insert(Arc::new(memory)))
                        }
                    };
                    let (layout, initial) =
                        (Arc::clone(&variable.layout), variable.initial.clone());
                    Ok(MetricMap::Variable(Variable {
                        memory,
                        layout,
                        offset: variable.offset,
                        initial,
                    }))
                })?,
                MetricSource::Table(layout) => Twins::make(map.private, |twin| {
                    let access = access(&metric.request, layout, capabilities);
                    let members = map
                        .slots
                        .values()
                        .map(|inner| clone(self.fds[*inner].of_twin(twin)));
                    let members = members.collect::<Result<_, _>>()?;
                    let table = MapTable::new(
                        clone(fds.of_twin(twin))?,
                        name,
                        Arc::clone(layout),
                        entries,
                        access,
                    );
                    table
                        .with_members(members)
                        .map(MetricMap::Table)
                        .map_err(failed("identification"))
                })?,
            };
            Ok(match maps {
                Twins::Shared(map) => TwinMap::Shared(Arc::new(map)),
                Twins::Private(maps) => TwinMap::Private(maps),
            })
        };
        self.plan.metrics.iter().map(reader).collect()
    }
}

/// Makes the maps of the plan, for each twin of a private map. Opens the maps that are `taken` over
/// again, by twin.
fn make_twins(
    plan: &DirectionPlan,
    taken: &[[Option<&OwnedFd>; 2]],
    btf: Option<BorrowedFd<'_>>,
) -> Result<Vec<Twins<OwnedFd>>, KernelError> {
    let of_twin = |twin: usize| {
        plan.maps
            .iter()
            .zip(taken)
            .filter(move |(map, _)| twin == 0 || map.private)
    };
    let make = |twin: usize| {
        let made = of_twin(twin).map(|(map, taken)| match taken[twin] {
            Some(fd) => fd.try_clone().map_err(|source| {
                KernelError::new("taking over", format!("map {}", map.name), source)
            }),
            None => create_map(&map.name, &map.spec, btf),
        });
        made.collect::<Result<Vec<OwnedFd>, _>>()
    };
    let [firsts, seconds] = if plan.has_twins() {
        both(make)?
    } else {
        [make(0)?, Vec::new()]
    };
    let mut seconds = seconds.into_iter();
    let twins = firsts.into_iter().zip(&plan.maps).map(|(first, map)| {
        match map.private.then(|| seconds.next()).flatten() {
            Some(second) => Twins::Private([first, second]),
            None => Twins::Shared(first),
        }
    });
    Ok(twins.collect())
}

/// Returns the access to the map and, for maps of maps, to its inner maps.
fn access(
    request: &MetricRequest,
    layout: &TableLayout,
    capabilities: &Capabilities,
) -> [MapAccess; 2] {
    let inner = layout
        .inner
        .as_ref()
        .map_or(layout.kind, |inner| inner.kind);
    [layout.kind, inner].map(|kind| {
        let access = capabilities.access(kind);
        if request.strategy == StrategyChoice::Iterative {
            access.iterative()
        } else {
            access
        }
    })
}

fn memory(map: &MapPlan, fd: &OwnedFd) -> std::io::Result<Mapping> {
    let access = if map.spec.frozen {
        mapping::MappingAccess::Read
    } else {
        mapping::MappingAccess::ReadWrite
    };
    Mapping::new(fd.as_fd(), 0, map.spec.value_size as usize, access)
}

pub fn create_map(
    name: &str,
    spec: &MapSpec,
    btf: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, KernelError> {
    let error = |call| move |source| KernelError::new(call, format!("map {name}"), source);
    let inner = spec
        .inner
        .as_ref()
        .map(|inner| create_map(name, inner, btf))
        .transpose()?;
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
    let typed = btf
        .filter(|_| key != 0 || value != 0)
        .map(|btf| (btf, key, value));
    let fd = match map::map_create(&MapCreate {
        btf: typed,
        ..untyped
    }) {
        // Some map types accept no BTF types. The map is made without them, since decoding does not
        // need the kernel's copy.
        Err(source) if typed.is_some() && call::is_unsupported(&source) => {
            map::map_create(&untyped)
        }
        result => result,
    }
    .map_err(error("creation"))?;
    if !spec.initial.is_empty() {
        map::map_update(fd.as_fd(), &0_u32.to_ne_bytes(), &spec.initial)
            .map_err(error("initialisation"))?;
    }
    if spec.frozen {
        map::map_freeze(fd.as_fd()).map_err(error("freezing"))?;
    }
    Ok(fd)
}

#[cfg(test)]
mod tests;
