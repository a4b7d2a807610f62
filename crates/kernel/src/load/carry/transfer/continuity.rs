//! The content of replaced maps that continues in the maps of a new direction, as the plans of both
//! have it.

use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::{MapKind, Shape, TableLayout};

use crate::load::maps::ProbeMaps;
use crate::plan::probe_plan::{DirectionPlan, MapPlan};

/// Tells whether the entries of the map are values, not maps.
pub fn is_flat(map: &MapPlan) -> bool {
    MapKind::from_bpf_type(map.spec.map_type).is_some_and(|kind| !kind.is_nested())
}

/// Returns messages about the content of replaced maps that does not continue in `map`, which
/// begins empty. `origins` are the replaced directions whose map continues there.
pub fn gaps(
    old: &[&ProbeMaps],
    plan: &DirectionPlan,
    map: &MapPlan,
    origins: &[usize],
) -> Vec<String> {
    let name = &map.name;
    let mut messages = Vec::new();
    if is_left_behind(old, plan, map, origins) {
        messages.push(format!(
            "map {name} begins empty on each interface: the earlier counts can't be told apart by interfaces"
        ));
    }
    if origins.is_empty() && goes_on_elsewhere(old, plan.direction(), map) {
        messages.push(format!(
            "map {name} begins empty: the other direction continues with the counts of both"
        ));
    }
    messages
}

/// Tells whether the content of a replaced map is lost because no map of a single interface
/// continues it: the map served all interfaces together, or an interface that the probe leaves.
/// Returns true only for the direction of the first interface.
fn is_left_behind(
    old: &[&ProbeMaps],
    plan: &DirectionPlan,
    map: &MapPlan,
    origins: &[usize],
) -> bool {
    let Some(own) = plan.own_interface.as_ref().filter(|own| own.index == 0) else {
        return false;
    };
    let is_left = |(index, old): (usize, &&ProbeMaps)| {
        let is_of = old.plan.direction() == plan.direction() && !origins.contains(&index);
        let has_heir = old
            .plan
            .interface()
            .is_some_and(|name| own.all.iter().any(|other| other == name));
        is_of && !has_heir && old.plan.map(&map.name).is_some_and(|map| !map.spec.frozen)
    };
    map.on_replace == OnReplace::Carry && old.iter().enumerate().any(is_left)
}

/// Tells whether a map that both directions used continues in the other direction.
fn goes_on_elsewhere(old: &[&ProbeMaps], direction: &str, new: &MapPlan) -> bool {
    let was_common = |old: &&ProbeMaps| {
        old.plan.direction() == direction && old.plan.map(&new.name).is_some_and(|map| map.common)
    };
    new.on_replace == OnReplace::Carry && old.iter().any(was_common)
}

/// Removes variables from `from` whose initial value differs in the new source: these begin with
/// the new value.
pub fn forget_new_initials(from: &mut TableLayout, old: &MapPlan, new: &MapPlan) {
    let (Shape::Struct(before), Shape::Struct(now)) =
        (&mut from.value.shape, &new.shape.value.shape)
    else {
        return;
    };
    // Initial values are in data sections only.
    if old.spec.initial.is_empty() && new.spec.initial.is_empty() {
        return;
    }
    let initial = |map: &MapPlan, bit_offset: usize, size: usize| -> Vec<u8> {
        let start = bit_offset / 8;
        map.spec
            .initial
            .get(start..start + size)
            .map_or_else(|| vec![0; size], <[u8]>::to_vec)
    };
    before.retain(|old_variable| {
        now.iter()
            .find(|variable| variable.name == old_variable.name)
            .is_some_and(|variable| {
                initial(old, old_variable.bit_offset, old_variable.layout.size)
                    == initial(new, variable.bit_offset, variable.layout.size)
            })
    });
}
