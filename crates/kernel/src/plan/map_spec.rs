//! The definitions of maps in an object.

use std::collections::BTreeMap;

use aya_obj::generated::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, bpf_map_type};
use aya_obj::{EbpfSectionKind, Map, Object};
use twinprobe_ebpf_common::{Btf, BtfError, EventKind, MapFamily, MapKind, MapTypes};

use crate::plan::request::KernelFacts;

/// The bytes that the kernel keeps for each entry of a hash or a trie, in addition to key and
/// value. Linux 6.18 has 48 and 40, and up to 16 in the table of buckets.
const OF_HASH_ENTRY: u64 = 64;
const OF_TRIE_ENTRY: u64 = 48;
/// The variable of the dialect bcc that holds the nanoseconds from the Unix epoch to the zero of
/// `bpf_ktime_get_ns`.
const EPOCH_BASE: &str = "twinprobe_epoch_base";

/// The type of tables of programs. They do not count as maps of a plan.
pub const PROGRAMS: u32 = bpf_map_type::BPF_MAP_TYPE_PROG_ARRAY as u32;

/// The bytes of a descriptor, and of the number of a CPU.
const DESCRIPTOR: u32 = 4;

/// A map as the source defines it.
#[derive(Clone, Debug, Default)]
pub struct MapSpec {
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    /// The number of entries, or the size of a ring buffer in bytes, as `BPF_MAP_CREATE` takes it.
    pub max_entries: u32,
    pub flags: u32,
    pub extra: u64,
    /// The type ids of key and value in the object's BTF; 0 if unknown.
    pub btf_types: (u32, u32),
    /// The initial content of `.data` and `.rodata`; empty for `.bss` and for maps that the source
    /// declares.
    pub initial: Vec<u8>,
    pub frozen: bool,
    /// The definition of the inner maps, for maps of maps.
    pub inner: Option<Box<MapSpec>>,
}

impl MapSpec {
    /// Returns the memory of the full map in bytes, without the inner maps of a map of maps.
    pub fn bytes(&self, possible_cpus: usize) -> u64 {
        u64::from(self.max_entries).saturating_mul(self.entry_bytes(possible_cpus))
    }

    /// Halves the number of entries until the map has at most `most` bytes: the size of a ring
    /// buffer stays a power of two.
    pub fn shrink(&mut self, most: u64, possible_cpus: usize) {
        while self.max_entries > 1 && self.bytes(possible_cpus) > most {
            self.max_entries /= 2;
        }
    }

    /// Returns the memory of one entry in bytes; for a ring buffer, of one byte.
    fn entry_bytes(&self, possible_cpus: usize) -> u64 {
        if EventKind::from_bpf_type(self.map_type) == Some(EventKind::Ringbuf) {
            return 1;
        }
        let round = |size: u32| u64::from(size).next_multiple_of(8);
        let kind = MapKind::from_bpf_type(self.map_type);
        let values = if kind.is_some_and(MapKind::is_percpu) {
            possible_cpus as u64
        } else {
            1
        };
        let value = round(self.value_size).saturating_mul(values);
        let entry = match kind.map(MapKind::family) {
            Some(MapFamily::Array | MapFamily::Fifo | MapFamily::Global) => value,
            Some(MapFamily::Trie) => value + round(self.key_size) + OF_TRIE_ENTRY,
            Some(MapFamily::Hash | MapFamily::Nested) | None => {
                value + round(self.key_size) + OF_HASH_ENTRY
            }
        };
        entry.max(1)
    }
}

pub fn map_specs(
    object: &Object,
    btf: &Btf,
    facts: KernelFacts,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, MapSpec>, BtfError> {
    let mut specs = BTreeMap::new();
    for (name, map) in &object.maps {
        if map.pinning() != aya_obj::maps::PinningType::None {
            warnings.push(format!(
                "map {name}: pinning is ignored; maps belong to their probe"
            ));
        }
        let mut spec = spec_of(map, facts);
        if let Some(types) = btf.map_definition(name).filter(|_| !has_events(map)) {
            type_spec(&mut spec, types, btf, map)?;
        }
        if name.starts_with('.') {
            // Metrics read variables through mapped memory.
            spec.flags |= BPF_F_MMAPABLE;
        }
        spec.frozen = map.section_kind() == EbpfSectionKind::Rodata;
        if spec.frozen || map.section_kind() == EbpfSectionKind::Data {
            spec.initial = map.data().to_vec();
            set_epoch_base(&mut spec.initial, name, btf, facts);
        }
        if let Some(inner) = map.inner() {
            let mut inner = spec_of(&inner, facts);
            if let Some(definition) = btf.inner_map_definition(name) {
                type_spec(&mut inner, definition.types, btf, map)?;
            }
            spec.inner = Some(Box::new(inner));
        }
        specs.insert(name.clone(), spec);
    }
    Ok(specs)
}

/// Fills in the variable by which sources for BCC know the time of day, if the section has it.
fn set_epoch_base(data: &mut [u8], section: &str, btf: &Btf, facts: KernelFacts) {
    let variables = btf.section_variables(section);
    let variable = variables
        .iter()
        .find(|variable| variable.name == EPOCH_BASE);
    if let Some(place) =
        variable.and_then(|variable| data.get_mut(variable.offset..)?.first_chunk_mut())
    {
        *place = facts.monotonic_zero_ns.to_le_bytes();
    }
}

/// Sets the types of key and value, and the sizes that follow from them, because aya-obj multiplies
/// only the innermost dimension of an array type. A definition without types has sizes of its own:
/// then a type of another size does not belong to the map.
fn type_spec(spec: &mut MapSpec, types: MapTypes, btf: &Btf, map: &Map) -> Result<(), BtfError> {
    let size = |id| Ok(u32::try_from(btf.size_of(id)?).unwrap_or(u32::MAX));
    let [key, value] = [(types.key, spec.key_size), (types.value, spec.value_size)]
        .map(|(id, size_before)| id.map_or(Ok(size_before), size));
    let (key, value) = (key?, value?);
    let is_legacy = matches!(map, Map::Legacy(_));
    if is_legacy && (key, value) != (spec.key_size, spec.value_size) {
        return Ok(());
    }
    (spec.key_size, spec.value_size) = (key, value);
    spec.btf_types = (types.key.unwrap_or(0), types.value.unwrap_or(0));
    Ok(())
}

fn has_events(map: &Map) -> bool {
    EventKind::from_bpf_type(map.map_type()).is_some()
}

fn spec_of(map: &Map, facts: KernelFacts) -> MapSpec {
    // The kernel takes only these sizes in maps of events. Loaders let sources omit the sizes, or
    // write the type of the events.
    let size = |size: u32| match EventKind::from_bpf_type(map.map_type()) {
        Some(EventKind::PerfEventArray) => DESCRIPTOR,
        Some(EventKind::Ringbuf) => 0,
        None => size,
    };
    MapSpec {
        map_type: map.map_type(),
        key_size: size(map.key_size()),
        value_size: size(map.value_size()),
        max_entries: entries(map.map_type(), map.max_entries(), facts),
        flags: map.map_flags() | always(map.map_type()),
        extra: map.map_extra(),
        ..MapSpec::default()
    }
}

/// Returns the flags without which the kernel refuses to make a map of this type. Some loaders add
/// these flags.
fn always(map_type: u32) -> u32 {
    match MapKind::from_bpf_type(map_type) {
        Some(MapKind::LpmTrie) => BPF_F_NO_PREALLOC,
        _ => 0,
    }
}

/// Returns the number of entries that the kernel accepts. The size of a ring buffer is rounded up
/// to a power of two and whole pages, as sources for libbpf expect. A perf event array without a
/// number of entries gets one for each CPU.
pub fn entries(map_type: u32, wanted: u32, facts: KernelFacts) -> u32 {
    match (EventKind::from_bpf_type(map_type), wanted) {
        (Some(EventKind::PerfEventArray), 0) => facts.possible_cpus as u32,
        (Some(EventKind::Ringbuf), wanted) if wanted > 0 => wanted
            .max(facts.page_size as u32)
            .checked_next_power_of_two()
            .unwrap_or(wanted),
        (_, wanted) => wanted,
    }
}
