//! The definitions of maps in an object.

use std::collections::BTreeMap;

use aya_obj::generated::BPF_F_MMAPABLE;
use aya_obj::{EbpfSectionKind, Map, Object};
use twinprobe_ebpf_common::{Btf, BtfError, EventKind, MapTypes};

use crate::plan::request::KernelFacts;

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
    /// The initial content of `.data`, `.rodata`; empty for `.bss` and for ordinary maps.
    pub initial: Vec<u8>,
    pub frozen: bool,
    /// The definition of the inner maps, for maps of maps.
    pub inner: Option<Box<MapSpec>>,
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
            warnings.push(format!("map {name}: pinning is ignored; maps belong to their probe"));
        }
        let mut spec = spec_of(map, facts);
        if let Some(types) = btf.map_definition(name) {
            type_spec(&mut spec, types, btf)?;
        }
        if name.starts_with('.') {
            // Metrics read variables through mapped memory.
            spec.flags |= BPF_F_MMAPABLE;
        }
        spec.frozen = map.section_kind() == EbpfSectionKind::Rodata;
        if spec.frozen || map.section_kind() == EbpfSectionKind::Data {
            spec.initial = map.data().to_vec();
        }
        if let Some(inner) = map.inner() {
            let mut inner = spec_of(&inner, facts);
            if let Some(definition) = btf.inner_map_definition(name) {
                type_spec(&mut inner, definition.types, btf)?;
            }
            spec.inner = Some(Box::new(inner));
        }
        specs.insert(name.clone(), spec);
    }
    Ok(specs)
}

/// Sets the sizes of key and value from their types, because aya-obj multiplies only the innermost dimension of an
/// array type.
fn type_spec(spec: &mut MapSpec, types: MapTypes, btf: &Btf) -> Result<(), BtfError> {
    if let Some(key) = types.key {
        spec.key_size = u32::try_from(btf.size_of(key)?).unwrap_or(u32::MAX);
    }
    if let Some(value) = types.value {
        spec.value_size = u32::try_from(btf.size_of(value)?).unwrap_or(u32::MAX);
    }
    spec.btf_types = (types.key.unwrap_or(0), types.value.unwrap_or(0));
    Ok(())
}

fn spec_of(map: &Map, facts: KernelFacts) -> MapSpec {
    MapSpec {
        map_type: map.map_type(),
        key_size: map.key_size(),
        value_size: map.value_size(),
        max_entries: max_entries(map, facts),
        flags: map.map_flags(),
        extra: map.map_extra(),
        ..MapSpec::default()
    }
}

/// Returns the number of entries that the kernel accepts. The size of a ring buffer is rounded up to a power of two and
/// whole pages, as sources for libbpf expect. A perf event array without a number of entries gets one for each CPU.
fn max_entries(map: &Map, facts: KernelFacts) -> u32 {
    match (EventKind::from_bpf_type(map.map_type()), map.max_entries()) {
        (Some(EventKind::PerfEventArray), 0) => facts.possible_cpus as u32,
        (Some(EventKind::Ringbuf), wanted) if wanted > 0 => {
            wanted.max(facts.page_size as u32).checked_next_power_of_two().unwrap_or(wanted)
        }
        (_, wanted) => wanted,
    }
}
