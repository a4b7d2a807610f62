//! The share of the kernel that a plan takes, computed before anything in the plan is made.

use aya_obj::generated::BPF_F_MMAPABLE;
use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::{EventKind, MapFamily, MapKind};

use crate::plan::map_spec::MapSpec;
use crate::plan::object::ProbeObject;
use crate::plan::probe_plan::{DirectionPlan, ProbePlan};
use crate::plan::request::KernelFacts;

/// The share of the kernel that a probe takes. Maps that are private to each twin count twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub maps: u64,
    /// The memory of the maps in bytes if all of them are full.
    pub map_bytes: u64,
    pub programs: u64,
    /// The map that takes the most memory: a finding that names its place and has no message yet,
    /// its name, and its bytes for all twins.
    pub largest: Option<(Finding, String, u64)>,
    /// The number of instructions of each program, by the program's field in the configuration.
    /// Twins count once.
    pub instructions: Vec<(String, u64)>,
}

impl Footprint {
    /// Computes the share of a plan. `objects` are the objects of the plan's directions, in the
    /// same order.
    pub fn of(plan: &ProbePlan, objects: &[ProbeObject], facts: KernelFacts) -> Self {
        let mut all = Self::default();
        for (index, direction) in plan.directions.iter().enumerate() {
            let before = &plan.directions[..index];
            let is_second = before
                .iter()
                .any(|before| before.own_interface == direction.own_interface);
            all.add(direction, is_second, facts);
        }
        for (direction, object) in plan.directions.iter().zip(objects) {
            let functions = object.program.functions.values();
            let instructions = functions
                .map(|function| function.instructions.len() as u64)
                .sum();
            all.instructions
                .push((direction.code.clone(), instructions));
        }
        all
    }

    /// Adds the share of a direction. Maps that both directions use count for the first direction.
    fn add(&mut self, direction: &DirectionPlan, is_second: bool, facts: KernelFacts) {
        let copies = |private: bool| if private { 2 } else { 1 };
        self.programs += copies(direction.has_twins());
        for map in direction
            .maps
            .iter()
            .filter(|map| !(is_second && map.common))
        {
            let bytes = memory(&map.spec, facts).saturating_mul(copies(map.private));
            self.maps += copies(map.private);
            self.map_bytes = self.map_bytes.saturating_add(bytes);
            if self
                .largest
                .as_ref()
                .is_none_or(|(_, _, largest)| bytes > *largest)
            {
                let place = direction.about_map(Stage::Load, &map.name, "");
                self.largest = Some((place, map.name.clone(), bytes));
            }
        }
    }
}

/// The sizes in bytes of the kernel's structures for a map, for an entry of a hash, for its bucket,
/// and for a trie's node.
const MAP: u64 = 1024;
const HASH_ENTRY: u64 = 48;
const BUCKET: u64 = 16;
const TRIE_NODE: u64 = 40;
const POINTER: u64 = 8;
/// The bytes that a hash has for each CPU, in addition to its entries.
const CPU_LOCKS: u64 = 40;
/// The bytes of an LPM_TRIE's key that are in [`TRIE_NODE`]: the length of the prefix.
const PREFIX_LENGTH: u64 = 4;

/// Returns the memory of a map in bytes once it is full, as the kernel allocates it (Linux 6.18,
/// `map_mem_usage`).
fn memory(spec: &MapSpec, facts: KernelFacts) -> u64 {
    let (cpus, page) = (facts.possible_cpus as u64, facts.page_size as u64);
    let entries = u64::from(spec.max_entries);
    let kind = MapKind::from_bpf_type(spec.map_type);
    let is = |test: fn(MapKind) -> bool| kind.is_some_and(test);
    let key = u64::from(spec.key_size).next_multiple_of(8);
    let value = if is(MapKind::is_nested) {
        POINTER
    } else {
        u64::from(spec.value_size).next_multiple_of(8)
    };
    // The values of a PERCPU map are allocated apart from the entry, which points to them.
    let value = if is(MapKind::is_percpu) {
        value.saturating_mul(cpus).saturating_add(POINTER)
    } else {
        value
    };
    let hash = || {
        // A hash allocates one further entry for each CPU.
        let entries = entries + cpus;
        let buckets = entries.next_power_of_two().saturating_mul(BUCKET) + cpus * CPU_LOCKS;
        entries
            .saturating_mul(HASH_ENTRY + key + value)
            .saturating_add(buckets)
    };
    let content = match kind.map(MapKind::family) {
        Some(MapFamily::Hash) => hash(),
        Some(MapFamily::Nested) if kind == Some(MapKind::HashOfMaps) => hash(),
        // There may be as many nodes between the entries as there are entries.
        Some(MapFamily::Trie) => {
            entries.saturating_mul(2 * (TRIE_NODE + key.saturating_sub(PREFIX_LENGTH) + value))
        }
        Some(MapFamily::Fifo) => (entries + 1).saturating_mul(u64::from(spec.value_size)),
        Some(MapFamily::Array | MapFamily::Nested | MapFamily::Global) => {
            entries.saturating_mul(value)
        }
        None => match EventKind::from_bpf_type(spec.map_type) {
            Some(EventKind::Ringbuf) => entries + 3 * page,
            Some(EventKind::PerfEventArray) => entries * POINTER,
            // Maps of other types keep a small structure for each entry.
            None => entries.saturating_mul(key + value + HASH_ENTRY),
        },
    };
    let pages = if spec.flags & BPF_F_MMAPABLE == 0 {
        0
    } else {
        2 * page
    };
    let inner = spec.inner.as_ref().map_or(0, |inner| memory(inner, facts));
    content.saturating_add(MAP + pages).saturating_add(inner)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::load::maps::create_map;
    use crate::plan::tests::scene::FACTS;
    use crate::sys::cpus;

    /// Returns the memory of the map that the kernel reports, in bytes.
    fn stated(fd: impl AsFd) -> u64 {
        let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap();
        let bytes = text
            .lines()
            .find_map(|line| line.strip_prefix("memlock:"))
            .unwrap();
        bytes.trim().parse().unwrap()
    }

    /// Returns a small hash.
    fn small() -> MapSpec {
        MapSpec {
            map_type: 2,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            ..MapSpec::default()
        }
    }

    /// Returns a map of this type, with this key and value unless the type has its own.
    fn map_of_type(map_type: u32, max_entries: u32, key_size: u32, value_size: u32) -> MapSpec {
        let kind = MapKind::from_bpf_type(map_type);
        let inner = kind.is_some_and(MapKind::is_nested).then(|| small().into());
        let key_size = match kind.map(MapKind::family) {
            Some(MapFamily::Array) => 4,
            Some(MapFamily::Nested) => 4,
            Some(MapFamily::Fifo) | None => 0,
            _ => key_size,
        };
        let value_size = if kind.is_none() {
            0
        } else if inner.is_some() {
            4
        } else {
            value_size
        };
        MapSpec {
            map_type,
            key_size,
            value_size,
            max_entries,
            inner,
            ..MapSpec::default()
        }
    }

    #[test]
    fn the_memory_of_a_map_is_what_the_kernel_states() {
        let facts = KernelFacts {
            possible_cpus: cpus::possible_cpus().unwrap(),
            page_size: rustix::param::page_size(),
            ..FACTS
        };
        if stated(create_map("m", &small(), None).unwrap()).is_multiple_of(facts.page_size as u64) {
            // Kernels before 6.4 state an estimate in whole pages.
            return;
        }
        let ring = EventKind::Ringbuf.bpf_type();
        let kinds = MapKind::ALL
            .into_iter()
            .filter_map(MapKind::bpf_type)
            .chain([ring]);
        for map_type in kinds {
            for (max_entries, key_size, value_size) in
                [(1, 4, 8), (3000, 4, 8), (4096, 16, 200), (65536, 5, 1)]
            {
                let kind = MapKind::from_bpf_type(map_type);
                let family = kind.map(MapKind::family);
                // Tries are allocated as they fill.
                if family == Some(MapFamily::Trie) || kind.is_none() && max_entries < 4096 {
                    continue;
                }
                let spec = map_of_type(map_type, max_entries, key_size, value_size);
                let (ours, kernels) = (
                    memory(&spec, facts),
                    stated(create_map("m", &spec, None).unwrap()),
                );
                let surplus = ours
                    .checked_sub(kernels)
                    .unwrap_or_else(|| panic!("{spec:?}: {ours} < {kernels}"));
                assert!(
                    surplus <= kernels / 4 + 2048,
                    "{spec:?}: {ours}, the kernel {kernels}"
                );
            }
        }
    }

    #[test]
    fn what_no_kernel_can_hold_does_not_overflow() {
        let facts = KernelFacts {
            possible_cpus: 8192,
            page_size: 64 << 10,
            ..FACTS
        };
        for map_type in 0..64 {
            let (key_size, value_size, max_entries) = (u32::MAX, u32::MAX, u32::MAX);
            let spec = MapSpec {
                map_type,
                key_size,
                value_size,
                max_entries,
                ..MapSpec::default()
            };
            assert!(memory(&spec, facts) > u64::from(u32::MAX), "{map_type}");
        }
    }
}
