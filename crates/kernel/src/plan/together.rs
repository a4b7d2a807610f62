//! The decisions that need all directions of a probe: which maps both directions use, which maps
//! are private to each twin, and which metrics can't go together.

use std::collections::{BTreeMap, BTreeSet};

use twinprobe_ebpf_common::EventKind;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::metric::OnReplace;

use crate::plan::draft::DirectionDraft;
use crate::plan::map_spec::MapSpec;
use crate::plan::probe_plan::MapPlan;
use twinprobe_ebpf_common::request::MetricRequest;

/// Marks the maps in `common`, which both directions use, and makes and checks the other decisions.
/// `drafts` has ingress first.
pub fn plan(drafts: &mut [DirectionDraft<'_>], common: &[String]) {
    // If a direction is missing because it was refused, nothing is known about common maps.
    if let [ingress, egress] = drafts {
        for (index, name) in common.iter().enumerate() {
            if let Err(message) = share(ingress, egress, name, common) {
                let finding = Finding::config(format!("shared_maps[{index}]"), message);
                ingress.notes.findings.push(finding);
            }
        }
        warn_of_samples(ingress, egress);
    }
    let nodes = Nodes::of(drafts);
    for node in nodes
        .readers(drafts)
        .map(|(_, node)| node)
        .collect::<BTreeSet<usize>>()
    {
        nodes.maps[node]
            .iter()
            .for_each(|&(direction, map)| drafts[direction].maps[map].is_read = true);
    }
    set_private(drafts, &nodes);
    set_on_replace(drafts, &nodes);
    check_together(drafts, &nodes);
}

/// Warns of maps that both directions use although they sample different shares of their packets.
fn warn_of_samples(ingress: &mut DirectionDraft<'_>, egress: &DirectionDraft<'_>) {
    let maps: Vec<&str> = ingress
        .maps
        .iter()
        .filter(|map| map.common)
        .map(|map| &*map.name)
        .collect();
    let samples = [&*ingress, egress].map(|draft| draft.sample());
    if samples[0] != samples[1] && !maps.is_empty() {
        let [first, second] = samples.map(|sample| match sample {
            Some(one_in) => format!("one packet in {one_in}"),
            None => "all packets".to_owned(),
        });
        let warning = format!(
            "both directions count in {}, where ingress sees {first} and egress {second}: their numbers \
                can't be told apart, nor \
             scaled up; give both directions the same sample",
            maps.join(", ")
        );
        ingress.notes.warnings.push(warning);
    }
}

/// Marks the map called `name` in both directions. The error says why the map can't be common.
fn share(
    ingress: &mut DirectionDraft<'_>,
    egress: &mut DirectionDraft<'_>,
    name: &str,
    common: &[String],
) -> Result<(), String> {
    let [first, second] =
        [&*ingress, &*egress].map(|draft| draft.maps.iter().position(|map| map.name == *name));
    let (Some(first), Some(second)) = (first, second) else {
        let lacking: &DirectionDraft<'_> = if first.is_none() { ingress } else { egress };
        let known: Vec<&str> = lacking
            .maps
            .iter()
            .map(|map| map.name.as_str())
            .filter(|name| !name.starts_with('.'))
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let direction = lacking.direction();
        return Err(format!(
            "the {direction} source defines no map {name}, but {known}; both must define it"
        ));
    };
    for (draft, index) in [(&*ingress, first), (&*egress, second)] {
        let (maps, map) = (&draft.maps, &draft.maps[index]);
        let near = maps
            .iter()
            .enumerate()
            .filter(|(other, near)| map.holds(*other) || near.holds(index));
        if let Some((_, other)) = near
            .map(|(_, near)| (near, &near.name))
            .find(|(_, near)| !common.contains(near))
        {
            let (outer, inner) = if map.slots.is_empty() {
                (other, name)
            } else {
                (&map.name, &other[..])
            };
            return Err(format!(
                "map {outer} holds map {inner}: share both, or neither; {other} is not in shared_maps"
            ));
        }
    }
    let differences = differences((ingress, first), (egress, second));
    if !differences.is_empty() {
        let differences = differences.join("; ");
        return Err(format!(
            "both sources must define map {name} alike, but {differences}"
        ));
    }
    (ingress.maps[first].common, egress.maps[second].common) = (true, true);
    Ok(())
}

/// Returns the differences between two definitions of a map.
fn differences(
    (ingress, first): (&DirectionDraft<'_>, usize),
    (egress, second): (&DirectionDraft<'_>, usize),
) -> Vec<String> {
    let (first, second) = (&ingress.maps[first], &egress.maps[second]);
    let mut found = Vec::new();
    figures("", &first.spec, &second.spec, &mut found);
    match (&first.spec.inner, &second.spec.inner) {
        (Some(first), Some(second)) => figures("of the maps in it, ", first, second, &mut found),
        (None, None) => {}
        _ => found.push("only one of them has a definition of its inner maps".to_owned()),
    }
    if found.is_empty() {
        let parts = [
            ("key", &first.shape.key, &second.shape.key),
            ("value", &first.shape.value, &second.shape.value),
        ];
        let others = parts
            .into_iter()
            .filter(|(_, first, second)| first != second);
        found.extend(others.map(|(part, ..)| {
            format!("the {part} has other fields or renderings in ingress than in egress")
        }));
    }
    let inner = |draft: &DirectionDraft<'_>, map: &MapPlan| -> Vec<(u32, String)> {
        map.slots
            .iter()
            .map(|(slot, inner)| (*slot, draft.maps[*inner].name.clone()))
            .collect()
    };
    if inner(ingress, first) != inner(egress, second) {
        found.push("other maps are in it from the start".to_owned());
    }
    found
}

/// Adds the numbers in which two definitions differ to `found`.
fn figures(of: &str, first: &MapSpec, second: &MapSpec, found: &mut Vec<String>) {
    let numbers = |spec: &MapSpec| {
        let MapSpec {
            map_type,
            key_size,
            value_size,
            max_entries,
            flags,
            extra,
            ..
        } = *spec;
        [
            map_type.into(),
            key_size.into(),
            value_size.into(),
            max_entries.into(),
            flags.into(),
            extra,
        ]
    };
    let names = [
        "type",
        "the size of the key",
        "the size of the value",
        "max_entries",
        "map_flags",
        "map_extra",
    ];
    for (name, (first, second)) in names
        .into_iter()
        .zip(numbers(first).into_iter().zip(numbers(second)))
    {
        if first != second {
            let name = if of.is_empty() {
                name.to_owned()
            } else {
                format!("{of}{name}")
            };
            found.push(format!(
                "{name} is {first} in ingress and {second} in egress"
            ));
        }
    }
}

/// The maps of all directions. Each map has a number, which is the same in both directions for a
/// map that both use.
struct Nodes {
    /// The number of each map, by direction and by the index of the map.
    of: Vec<Vec<usize>>,
    /// The direction and the index of each map with a number.
    maps: Vec<Vec<(usize, usize)>>,
    /// The initial inner maps of each map.
    inner: Vec<BTreeSet<usize>>,
    /// The outer maps that contain each map from the beginning.
    outer: Vec<BTreeSet<usize>>,
}

impl Nodes {
    fn of(drafts: &[DirectionDraft<'_>]) -> Self {
        let (mut of, mut maps) = (Vec::new(), Vec::<Vec<(usize, usize)>>::new());
        for (direction, draft) in drafts.iter().enumerate() {
            let node = |(index, map): (usize, &MapPlan)| {
                let is_it = |&(other, index): &(usize, usize)| {
                    other != direction
                        && drafts[other].maps[index].common
                        && drafts[other].maps[index].name == map.name
                };
                let known = if map.common {
                    maps.iter().position(|maps| maps.iter().any(is_it))
                } else {
                    None
                };
                let node = known.unwrap_or(maps.len());
                if known.is_none() {
                    maps.push(Vec::new());
                }
                maps[node].push((direction, index));
                node
            };
            of.push(
                draft
                    .maps
                    .iter()
                    .enumerate()
                    .map(node)
                    .collect::<Vec<usize>>(),
            );
        }
        let [mut inner, mut outer] = [(); 2].map(|()| vec![BTreeSet::new(); maps.len()]);
        for (draft, of) in drafts.iter().zip(&of) {
            for (map, &holder) in draft.maps.iter().zip(of) {
                for &held in map.slots.values() {
                    inner[holder].insert(of[held]);
                    outer[of[held]].insert(holder);
                }
            }
        }
        Self {
            of,
            maps,
            inner,
            outer,
        }
    }

    /// Returns every metric with the number of its map.
    fn readers<'a>(
        &'a self,
        drafts: &'a [DirectionDraft<'_>],
    ) -> impl Iterator<Item = (&'a MetricRequest, usize)> {
        let of = move |(direction, draft): (usize, &'a DirectionDraft<'_>)| {
            draft
                .readers()
                .map(move |(request, map)| (request, self.of[direction][map]))
        };
        drafts.iter().enumerate().flat_map(of)
    }
}

/// Gives each twin its own copy of these maps: the maps that snapshots read, the inner maps of
/// these, and the maps of maps that contain one of them.
fn set_private(drafts: &mut [DirectionDraft<'_>], nodes: &Nodes) {
    let snapshots = nodes
        .readers(drafts)
        .filter(|(request, _)| request.is_snapshot());
    let mut todo: Vec<usize> = snapshots.map(|(_, node)| node).collect();
    while let Some(node) = todo.pop() {
        for &(direction, map) in &nodes.maps[node] {
            if !std::mem::replace(&mut drafts[direction].maps[map].private, true) {
                todo.extend(nodes.inner[node].iter().chain(&nodes.outer[node]));
            }
        }
    }
}

/// Decides for each map whether a replacement keeps its content: only if all of its metrics ask for
/// that. A map in a map of maps is read through the outer map, and begins anew together with the
/// outer map.
fn set_on_replace(drafts: &mut [DirectionDraft<'_>], nodes: &Nodes) {
    let mut wishes = vec![None; nodes.maps.len()];
    for (request, node) in nodes.readers(drafts) {
        for &read in nodes.inner[node].iter().chain([&node]) {
            let wish = &mut wishes[read];
            if !matches!(wish, Some(OnReplace::Reset)) {
                *wish = Some(request.on_replace);
            }
        }
    }
    for (maps, wish) in nodes.maps.iter().zip(wishes) {
        for &(direction, map) in maps {
            if let Some(wish) = wish {
                drafts[direction].maps[map].on_replace = wish;
            }
        }
    }
}

/// Reports metrics that can't go together: a private map must be private for every metric that
/// reads it, no map may be read both directly and through a map of maps, and a stream of events has
/// one metric.
fn check_together(drafts: &mut [DirectionDraft<'_>], nodes: &Nodes) {
    let read: BTreeSet<usize> = nodes.readers(drafts).map(|(_, node)| node).collect();
    let mut streams = BTreeMap::new();
    for direction in 0..drafts.len() {
        let (draft, mut findings) = (&drafts[direction], Vec::new());
        for (request, map) in draft
            .readers()
            .filter(|(request, map)| !request.is_snapshot() && draft.maps[*map].private)
        {
            let message = match request.map_name() {
                section if section.starts_with('.') => {
                    format!(
                        "another variable of {section} is a snapshot, so all of {section} is; add snapshot: true"
                    )
                }
                _ => {
                    let map = &draft.maps[map].name;
                    format!(
                        "map {map} belongs to the snapshot of another metric; add snapshot: true"
                    )
                }
            };
            findings.push(request.finding("snapshot", message));
        }
        for (request, map) in draft.readers() {
            let node = nodes.of[direction][map];
            for &outer in nodes.outer[node].intersection(&read) {
                let (of, index) = nodes.maps[outer][0];
                let outer = &drafts[of].maps[index].name;
                let message = format!("map {} is already read as part of map {outer}", request.map);
                findings.push(request.finding("map", message));
            }
            if EventKind::from_bpf_type(draft.maps[map].spec.map_type).is_none() {
                continue;
            }
            if let Some(first) = streams.get(&node) {
                let map = &request.map;
                let message = format!(
                    "the events of map {map} are streamed by metric {first} already, each once; leave one of them out"
                );
                findings.push(request.finding("map", message));
            } else {
                streams.insert(node, request.name.clone());
            }
        }
        drafts[direction].notes.findings.extend(findings);
    }
}
