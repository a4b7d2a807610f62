//! What a replacement takes over from the deployment before it. A map that the new source defines just as the
//! old one did is the same map for both: its content needs no copying, and what the two count at the same
//! time, while interfaces are switched one after the other, adds up. Of a map whose values look different now,
//! the content is [transferred](Transfers) by the names of its fields.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use twinprobe_ebpf_common::{EventKind, Layout, MapFamily, MapKind, Member, Shape, TableLayout};

use crate::load::maps::{ProbeMap, ProbeMaps, TwinFds};
use crate::plan::object::{MapSpec, ProbeObject};

const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;

/// What the content of a map means. A data section is an array of one struct, whose fields are its variables.
#[derive(Clone, Debug, PartialEq)]
pub struct MapShape {
    pub key: Layout,
    pub value: Layout,
}

impl MapShape {
    pub fn new(object: &ProbeObject, name: &str, spec: &MapSpec) -> Self {
        let layout = |id: Option<u32>, size: usize| {
            let layout = id.and_then(|id| object.btf().layout(id).ok());
            layout.filter(|layout| layout.size == size).unwrap_or_else(|| Layout::opaque(size))
        };
        let (key, value) = (spec.key_size as usize, spec.value_size as usize);
        if name.starts_with('.') {
            let variables = object.btf().section_variables(name).into_iter();
            let members = variables.filter(|variable| variable.offset + variable.size <= value);
            let members = members.map(|variable| Member {
                bit_offset: 8 * variable.offset,
                bitfield: None,
                layout: layout(Some(variable.type_id), variable.size),
                name: variable.name,
            });
            let shape = Shape::Struct(members.collect());
            return Self { key: Layout::unsigned(key), value: Layout { size: value, shape, render: None } };
        }
        let types = object.btf().map_definition(name).unwrap_or_default();
        Self { key: layout(types.key, key), value: layout(types.value, value) }
    }

    /// How the map is read as a table; `None` if it has no rows of values.
    pub fn table(&self, spec: &MapSpec, possible_cpus: usize) -> Option<TableLayout> {
        let kind = MapKind::from_bpf_type(spec.map_type)
            .filter(|kind| !kind.is_nested() && kind.family() != MapFamily::Global)?;
        let slots = if kind.is_percpu() { possible_cpus } else { 1 };
        let key = if kind.has_keys() { self.key.clone() } else { Layout::opaque(0) };
        Some(TableLayout { kind, key, value: self.value.clone(), slots, inner: None })
    }
}

/// The deployment that is being replaced, as one direction sees it.
#[derive(Clone, Debug)]
pub struct Predecessor {
    pub maps: Arc<ProbeMaps>,
    /// Which of its twins sees packets, where it has twins.
    pub active: usize,
    /// Whether maps that no metric names are taken over, too.
    pub unnamed: bool,
    /// Names of maps with counts that are kept elsewhere: sums of windows, and what an earlier map had counted.
    pub more_known: BTreeSet<String>,
}

impl Predecessor {
    /// Tells whether each twin has its own map of this name.
    pub fn is_private(&self, name: &str) -> bool {
        self.maps.by_name().get(name).is_some_and(|map| matches!(map.fds, TwinFds::Private(_)))
    }

    /// Tells whether the deployment has a map of this name with the same definition.
    pub fn has_same(&self, name: &str, spec: &MapSpec, shape: &MapShape) -> bool {
        self.maps.by_name().get(name).is_some_and(|old| is_same(old, spec, shape))
    }

    /// Descriptors of the old map `name` for both twins, or for both at once, if the new one is the same.
    /// `None` in a place: that twin needs a map of its own.
    pub fn reuse(
        &self,
        name: &str,
        spec: &MapSpec,
        shape: &MapShape,
        private: bool,
    ) -> io::Result<Option<[Option<OwnedFd>; 2]>> {
        let Some(old) = self.maps.by_name().get(name).filter(|_| self.has_same(name, spec, shape)) else {
            return Ok(None);
        };
        Ok(Some(match (&old.fds, private) {
            (TwinFds::Shared(fd), false) => [Some(fd.try_clone()?), None],
            (TwinFds::Private(fds), true) => [Some(fds[0].try_clone()?), Some(fds[1].try_clone()?)],
            // What was live becomes the open window, and the other way round.
            (TwinFds::Shared(fd), true) => {
                let mut fds = [None, None];
                fds[self.active & 1] = Some(fd.try_clone()?);
                fds
            }
            // A new map is made: it can get the counts that are kept elsewhere before packets are counted in it.
            (TwinFds::Private(_), false) if self.more_known.contains(name) => return Ok(None),
            (TwinFds::Private(fds), false) => [Some(fds[self.active & 1].try_clone()?), None],
        }))
    }
}

fn is_same(old: &ProbeMap, spec: &MapSpec, shape: &MapShape) -> bool {
    let MapSpec { map_type, key_size, value_size, max_entries, flags, extra, frozen, .. } = *spec;
    let streams = EventKind::from_bpf_type(map_type).is_some() || map_type == BPF_MAP_TYPE_PROG_ARRAY;
    let inner = |spec: &MapSpec| {
        let sizes = |inner: &MapSpec| (inner.map_type, inner.key_size, inner.value_size, inner.max_entries);
        spec.inner.as_ref().map(|inner| (sizes(inner), inner.flags, inner.extra))
    };
    !streams
        && !frozen
        && (map_type, key_size, value_size, max_entries, flags, extra)
            == (
                old.spec.map_type,
                old.spec.key_size,
                old.spec.value_size,
                old.spec.max_entries,
                old.spec.flags,
                old.spec.extra,
            )
        // A new initial value is meant to be seen.
        && spec.initial == old.spec.initial
        && (inner(spec), &spec.slots) == (inner(&old.spec), &old.spec.slots)
        && *shape == old.shape
}
