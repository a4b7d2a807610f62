//! The types and flags of maps that a probe may have.

use aya_obj::generated;
use twinprobe_ebpf_common::{EventKind, MapKind};

use crate::plan::map_spec::MapSpec;

/// Programs test for membership in it; no metric reads it.
const BLOOM_FILTER: u32 = generated::bpf_map_type::BPF_MAP_TYPE_BLOOM_FILTER as u32;

/// The flags that a map may have. Others take descriptors, or share the map with processes.
const FLAGS: [(u32, &str); 10] = [
    (generated::BPF_F_NO_PREALLOC, "BPF_F_NO_PREALLOC"),
    (generated::BPF_F_NO_COMMON_LRU, "BPF_F_NO_COMMON_LRU"),
    (generated::BPF_F_RDONLY, "BPF_F_RDONLY"),
    (generated::BPF_F_WRONLY, "BPF_F_WRONLY"),
    (generated::BPF_F_ZERO_SEED, "BPF_F_ZERO_SEED"),
    (generated::BPF_F_RDONLY_PROG, "BPF_F_RDONLY_PROG"),
    (generated::BPF_F_WRONLY_PROG, "BPF_F_WRONLY_PROG"),
    (generated::BPF_F_MMAPABLE, "BPF_F_MMAPABLE"),
    (generated::BPF_F_PRESERVE_ELEMS, "BPF_F_PRESERVE_ELEMS"),
    (generated::BPF_F_INNER_MAP, "BPF_F_INNER_MAP"),
];

/// Returns why no probe may have a map that is defined like this; `None` if it may.
pub fn refusal(name: &str, spec: &MapSpec) -> Option<String> {
    if let Some(why) =
        spec.inner.as_deref().and_then(|inner| refusal(&format!("{name}, the maps in it"), inner))
    {
        return Some(why);
    }
    let kind = MapKind::from_bpf_type(spec.map_type).map(MapKind::name);
    let kind = kind.or_else(|| EventKind::from_bpf_type(spec.map_type).map(EventKind::name));
    if kind.is_none() && spec.map_type != BLOOM_FILTER {
        let kinds = MapKind::ALL.into_iter().filter(|kind| kind.bpf_type().is_some()).map(MapKind::name);
        let kinds: Vec<&str> = kinds.chain(EventKind::ALL.map(EventKind::name)).collect();
        return Some(format!(
            "map {name} is of BPF map type {}, which no monitor needs; possible are {}, bloom_filter",
            spec.map_type,
            kinds.join(", ")
        ));
    }
    let unknown = FLAGS.iter().fold(spec.flags, |flags, (flag, _)| flags & !flag);
    (unknown != 0).then(|| {
        let possible: Vec<&str> = FLAGS.iter().map(|(_, name)| *name).collect();
        format!(
            "map {name} has the flags {unknown:#x}, which no monitor needs; leave them out, possible are {}",
            possible.join(", ")
        )
    })
}
