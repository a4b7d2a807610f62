//! The uses that a program makes of its maps, for proposals of metrics.

use aya_obj::Function;
use aya_obj::generated::bpf_func_id as Id;
use twinprobe_ebpf_common::{EventKind, MapKind};

use crate::admit::admission::facts;
use crate::admit::flow::formats::formats;
use crate::admit::flow::{ANY_MAP, conduct_with};
use crate::admit::helpers;
use crate::plan::metric::losses;
use crate::plan::object::Definitions;
use crate::plan::probe_plan::DirectionPlan;

/// A map, or a variable, that a metric can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapUses {
    /// The name of the map or variable, as `map` of a metric has it.
    pub map: String,
    /// The name of the map's type.
    pub kind: &'static str,
    /// The number of entries: 1 for a variable, and the number of bytes for a RINGBUF.
    pub max_entries: u32,
    /// True if the program adds entries by their keys, or may do so.
    pub adds: bool,
    /// True if the program deletes entries, or may do so.
    pub deletes: bool,
}

/// Returns what metrics can read of a linked program: its maps, then its variables.
pub fn uses(plan: &DirectionPlan, defined: &Definitions, function: &Function) -> Vec<MapUses> {
    let program = &function.instructions;
    let conduct = conduct_with(
        program,
        plan.attach.hook.kind(),
        &facts(plan),
        &formats(program, &plan.maps),
    );
    let calls = |map: usize, is_meant: fn(u32) -> bool| {
        let is_it = |of: u32| of == ANY_MAP || of as usize == map;
        conduct
            .called
            .iter()
            .any(|(number, of)| is_meant(*number) && is_it(*of))
    };
    let is_held = |map: usize| plan.maps.iter().any(|of| of.holds(map));
    let maps = plan.maps.iter().enumerate().filter_map(|(index, map)| {
        let kind = MapKind::from_bpf_type(map.spec.map_type).map(MapKind::name);
        let kind =
            kind.or_else(|| EventKind::from_bpf_type(map.spec.map_type).map(EventKind::name))?;
        let is_metric =
            !map.name.starts_with('.') && !is_held(index) && !defined.unused.contains(&map.name);
        is_metric.then(|| MapUses {
            map: map.name.clone(),
            kind,
            max_entries: map.spec.max_entries,
            adds: calls(index, helpers::inserts),
            deletes: calls(index, |number| {
                number == Id::BPF_FUNC_map_delete_elem as u32
            }),
        })
    });
    let sections = plan
        .maps
        .iter()
        .filter(|map| map.name.starts_with('.') && !map.spec.frozen);
    let sections = sections.filter(|map| map.name != losses::SECTION);
    let variables = sections.flat_map(|map| {
        let variables = defined.btf.section_variables(&map.name).into_iter();
        variables
            .filter(|variable| variable.size > 0)
            .map(|variable| MapUses {
                map: format!("{}:{}", map.name, variable.name),
                kind: MapKind::Global.name(),
                max_entries: 1,
                adds: false,
                deletes: false,
            })
    });
    maps.chain(variables).collect()
}
