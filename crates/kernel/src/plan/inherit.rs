//! What a replacement takes over from the deployment before it. A map that the new source defines just as the old one
//! did is the same map for both: its content needs no copying, and what the two count at the same time, while
//! interfaces are switched one after the other, adds up.

use std::collections::BTreeSet;

use twinprobe_ebpf_common::EventKind;
use twinprobe_ebpf_common::metric::OnReplace;

use crate::plan::map_spec::MapSpec;
use crate::plan::probe_plan::{DirectionPlan, MapPlan};

const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;

/// Where the content of a new deployment's map comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// The map is new, and what a map of that name held before is not wanted.
    New,
    /// The map is the replaced deployment's own, or both its maps if each twin has one.
    Same,
    /// The map is the replaced deployment's own, which was shared and is private to each twin now, or the other way
    /// round: what packets are counted in goes on, and the other twin, if it has a map, gets a new one.
    FromActive,
    /// The map is new, and gets what the replaced deployment's map of that name holds.
    Convert,
}

impl Inherited {
    /// True if the map is the replaced deployment's own.
    pub const fn is_taken_over(self) -> bool {
        matches!(self, Self::Same | Self::FromActive)
    }

    /// Returns the twin of the replaced deployment whose map goes on as the map of `twin`; `None` if that is a new one.
    /// `private` tells whether each twin has a map now, `active` is the twin that sees packets.
    pub const fn twin(self, private: bool, twin: usize, active: usize) -> Option<usize> {
        match self {
            Self::Same => Some(twin),
            // What was live becomes the open window, and the other way round.
            Self::FromActive if !private || twin == active => Some(active),
            Self::New | Self::Convert | Self::FromActive => None,
        }
    }
}

/// Decides for each map of `new`, which replaces `old`, where its content comes from. `more_known` are the names of old
/// maps with counts that are kept elsewhere: sums of windows, and what an earlier map had counted.
pub fn inherit(old: &DirectionPlan, new: &DirectionPlan, more_known: &BTreeSet<String>) -> Vec<Inherited> {
    let begin_anew = begin_anew(old, new);
    let kept = |index: usize| {
        let is_kept = new.maps[index].on_replace == OnReplace::Carry && !begin_anew.contains(&index);
        old.map(&new.maps[index].name).filter(|_| is_kept)
    };
    let inherited = |index: usize| {
        let map = &new.maps[index];
        match kept(index) {
            None => Inherited::New,
            Some(before) if !is_same(before, old, map, new) => Inherited::Convert,
            Some(before) if before.private == map.private => Inherited::Same,
            // A new map can get the counts that are kept elsewhere before packets are counted in it.
            Some(before) if before.private && more_known.contains(&map.name) => Inherited::Convert,
            Some(_) => Inherited::FromActive,
        }
    };
    let alone: Vec<Inherited> = (0..new.maps.len()).map(inherited).collect();
    let with_inner = new.maps.iter().zip(&alone).map(|(map, inherited)| {
        let inner_are_same = map.slots.values().all(|inner| alone[*inner].is_taken_over());
        if inherited.is_taken_over() && !inner_are_same { Inherited::Convert } else { *inherited }
    });
    with_inner.collect()
}

/// Returns the maps in those maps of maps that metrics read and that `old` has, but that can't be taken over: such a map
/// of maps starts empty, even if some of the maps in it are the same as before.
fn begin_anew(old: &DirectionPlan, new: &DirectionPlan) -> BTreeSet<usize> {
    let goes_on = |index: usize| {
        let map = &new.maps[index];
        let before = old.map(&map.name).filter(|_| map.on_replace == OnReplace::Carry);
        before.is_some_and(|before| is_same(before, old, map, new))
    };
    let is_read = |outer: usize| new.metrics.iter().any(|metric| metric.map == outer);
    let outer = new
        .maps
        .iter()
        .enumerate()
        .filter(|(index, map)| !map.slots.is_empty() && is_read(*index) && old.map(&map.name).is_some());
    outer
        .filter(|(index, map)| !goes_on(*index) || !map.slots.values().all(|inner| goes_on(*inner)))
        .flat_map(|(_, map)| map.slots.values().copied())
        .collect()
}

/// Tells whether a map of `new` is defined as the one in `old` was.
fn is_same(before: &MapPlan, old: &DirectionPlan, map: &MapPlan, new: &DirectionPlan) -> bool {
    let figures = |spec: &MapSpec| {
        let MapSpec { map_type, key_size, value_size, max_entries, flags, extra, .. } = *spec;
        (map_type, key_size, value_size, max_entries, flags, extra)
    };
    let definition = |map: &MapPlan| (figures(&map.spec), map.spec.inner.as_deref().map(figures));
    let streams =
        EventKind::from_bpf_type(map.spec.map_type).is_some() || map.spec.map_type == BPF_MAP_TYPE_PROG_ARRAY;
    !streams
        && !map.spec.frozen
        && definition(before) == definition(map)
        // A new initial value is meant to be seen.
        && before.spec.initial == map.spec.initial
        && old.inner_names(before).eq(new.inner_names(map))
        && before.shape == map.shape
}
