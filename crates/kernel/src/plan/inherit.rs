//! The maps that a replacement takes over from the deployment before it. Both deployments use the
//! same map if the new source defines it as the old one did: its content needs no copying, and the
//! counts of both add up while interfaces are switched one after the other.

use std::collections::{BTreeSet, HashSet};

use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_PROG_ARRAY;
use twinprobe_ebpf_common::EventKind;
use twinprobe_ebpf_common::metric::OnReplace;

use crate::plan::map_spec::MapSpec;
use crate::plan::probe_plan::{DirectionPlan, FillEntry, MapPlan};

/// The origin of the content of a new deployment's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// The map is new and starts with its initial content.
    New,
    /// The map is the map of the replaced deployment, or both maps if each twin has one.
    Same,
    /// The map continues that of the replaced deployment's active twin, and changes from shared to
    /// private or from private to shared. If each twin has a map of its own now, the other twin
    /// gets a new map.
    FromActive,
    /// The map is new and gets the content of the replaced deployment's map of the same name.
    Convert,
}

impl Inherited {
    pub const fn is_taken_over(self) -> bool {
        matches!(self, Self::Same | Self::FromActive)
    }

    /// Returns the twin of the replaced deployment whose map continues as the map of `twin`; `None`
    /// if `twin` gets a new map. `private` is true if each twin has a map of its own now, and
    /// `active` is the twin that gets packets.
    pub const fn twin(self, private: bool, twin: usize, active: usize) -> Option<usize> {
        match self {
            Self::Same => Some(twin),
            // A map that was shared becomes the map of the active twin. In the other direction, the
            // map of the active twin becomes the shared map.
            Self::FromActive if !private || twin == active => Some(active),
            Self::New | Self::Convert | Self::FromActive => None,
        }
    }
}

/// One direction of the deployment that is replaced.
#[derive(Clone, Copy, Debug)]
pub struct ReplacedDirection<'a> {
    pub plan: &'a DirectionPlan,
    /// The names of maps whose counts are partly kept outside of the maps: sums of windows, and the
    /// counts of earlier maps.
    pub more_known: &'a BTreeSet<String>,
}

/// Returns the directions of `old` whose map continues in `map` of `new`. `earlier` is the
/// direction of the new deployment that comes before `new`. A map that both directions use
/// continues with ingress's map, to which egress's is added. A map that both directions have used
/// continues in the first direction that still defines it.
pub fn origins(
    old: &[ReplacedDirection<'_>],
    new: &DirectionPlan,
    earlier: Option<&DirectionPlan>,
    map: &MapPlan,
) -> Vec<usize> {
    let before = |(index, old): (usize, &ReplacedDirection<'_>)| {
        Some((index, old.plan.map(&map.name)?.common))
    };
    let mut found: Vec<(usize, bool)> = old.iter().enumerate().filter_map(before).collect();
    found.retain(|(index, _)| goes_on_at(old, *index, new, map));
    // A map of the same interface comes first.
    found.sort_by_key(|(index, _)| is_of_another_interface(old[*index].plan, new));
    if !map.common {
        let is_heir = earlier.is_none_or(|earlier| earlier.map(&map.name).is_none());
        found.retain(|(index, common)| {
            old[*index].plan.direction() == new.direction() && (!common || is_heir)
        });
    } else if found.first().is_some_and(|(_, common)| *common) {
        // Both directions share a map; with maps per interface, each interface has one.
        let mut interfaces = BTreeSet::new();
        found.retain(|(index, _)| interfaces.insert(old[*index].plan.interface()));
    }
    found.into_iter().map(|(index, _)| index).collect()
}

/// Tells whether the counts of the direction of `old` with this index can continue in `map` of
/// `new`. Counts for other interfaces than that of `new` can move only with the open window, whose
/// rows name them.
fn goes_on_at(
    old: &[ReplacedDirection<'_>],
    index: usize,
    new: &DirectionPlan,
    map: &MapPlan,
) -> bool {
    let before = old[index].plan;
    let Some(own) = &new.own_interface else {
        return true;
    };
    if before.interface() == Some(own.name()) {
        return true;
    }
    let has_heir = before
        .interface()
        .is_some_and(|name| own.all.iter().any(|other| other == name));
    let is_private = map.private && before.map(&map.name).is_some_and(|before| before.private);
    own.index == 0 && is_private && !has_heir
}

/// Tells whether `new` serves one interface alone, while `old` serves another interface or all
/// interfaces.
fn is_of_another_interface(old: &DirectionPlan, new: &DirectionPlan) -> bool {
    new.own_interface.is_some() && old.interface() != new.interface()
}

/// Decides the origin of the content of each map of `new`, which replaces a direction of `old`.
/// `origins` are the [directions](origins) of `old` whose map continues in each map.
pub fn inherit(
    old: &[ReplacedDirection<'_>],
    new: &DirectionPlan,
    origins: &[Vec<usize>],
) -> Vec<Inherited> {
    let before = |index: usize| {
        let old = old[*origins[index].first()?];
        Some((old, old.plan.map(&new.maps[index].name)?))
    };
    let begin_anew = begin_anew(new, &before);
    let inherited = |index: usize| {
        let map = &new.maps[index];
        let is_kept = map.on_replace == OnReplace::Carry && !begin_anew.contains(&index);
        match before(index).filter(|_| is_kept) {
            None => Inherited::New,
            Some((old, _)) if is_of_another_interface(old.plan, new) => Inherited::Convert,
            Some((old, before)) if !is_same(before, old.plan, map, new) => Inherited::Convert,
            // The content of two maps can come together in a new one, before it counts packets. The
            // counts of private maps move with the open window.
            Some(_) if origins[index].len() > 1 && !map.private => Inherited::Convert,
            Some((_, before)) if before.private == map.private => Inherited::Same,
            // A new map, unlike an inherited one, can get the counts from outside the maps before
            // it counts packets.
            Some((old, before)) if before.private && old.more_known.contains(&map.name) => {
                Inherited::Convert
            }
            Some(_) => Inherited::FromActive,
        }
    };
    let alone: Vec<Inherited> = (0..new.maps.len()).map(inherited).collect();
    let with_inner = new.maps.iter().zip(&alone).map(|(map, inherited)| {
        let inner_are_same = map
            .slots
            .values()
            .all(|inner| alone[*inner].is_taken_over());
        if inherited.is_taken_over() && !inner_are_same {
            Inherited::Convert
        } else {
            *inherited
        }
    });
    with_inner.collect()
}

/// Returns the inner maps that must begin anew: the inner maps of each map of maps that a metric
/// reads, that was there `before`, and that can't be inherited. Such a map of maps starts empty,
/// even if some of its inner maps are the same as before.
fn begin_anew<'a>(
    new: &DirectionPlan,
    before: &impl Fn(usize) -> Option<(ReplacedDirection<'a>, &'a MapPlan)>,
) -> BTreeSet<usize> {
    let goes_on = |index: usize| {
        let map = &new.maps[index];
        let before = before(index).filter(|_| map.on_replace == OnReplace::Carry);
        before.is_some_and(|(old, before)| is_same(before, old.plan, map, new))
    };
    let outer = new.maps.iter().enumerate();
    let outer = outer
        .filter(|(index, map)| !map.slots.is_empty() && map.is_read && before(*index).is_some());
    outer
        .filter(|(index, map)| !goes_on(*index) || !map.slots.values().all(|inner| goes_on(*inner)))
        .flat_map(|(_, map)| map.slots.values().copied())
        .collect()
}

/// Tells whether `before` began with all entries with which `map` begins.
fn begins_alike(before: &MapPlan, map: &MapPlan) -> bool {
    let known: HashSet<&FillEntry> = before.fill.iter().collect();
    map.fill.iter().all(|entry| known.contains(entry))
}

/// Tells whether `new` defines `map` in the same way as `old` defined `before`.
fn is_same(before: &MapPlan, old: &DirectionPlan, map: &MapPlan, new: &DirectionPlan) -> bool {
    let figures = |spec: &MapSpec| {
        let MapSpec {
            map_type,
            key_size,
            value_size,
            max_entries,
            flags,
            extra,
            ..
        } = *spec;
        (map_type, key_size, value_size, max_entries, flags, extra)
    };
    let definition = |map: &MapPlan| (figures(&map.spec), map.spec.inner.as_deref().map(figures));
    let map_type = map.spec.map_type;
    let streams =
        EventKind::from_bpf_type(map_type).is_some() || map_type == BPF_MAP_TYPE_PROG_ARRAY as u32;
    !streams
        && !map.spec.frozen
        && definition(before) == definition(map)
        // A changed initial value must take effect, so the old map does not continue.
        && before.spec.initial == map.spec.initial
        && begins_alike(before, map)
        && old.inner_names(before).eq(new.inner_names(map))
        && before.shape == map.shape
}
