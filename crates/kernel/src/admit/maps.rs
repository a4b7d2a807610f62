//! The types and flags of maps that a probe may have.

use aya_obj::generated;
use twinprobe_ebpf_common::{EventKind, MapFamily, MapKind};

use crate::plan::map_spec::MapSpec;

/// True on processors whose atomic operations take any address. Other processors raise a fault,
/// which stops the kernel.
const ATOMICS_TAKE_ANY_ADDRESS: bool = cfg!(any(target_arch = "x86", target_arch = "x86_64"));
/// The bytes of an LPM_TRIE's key before the address: the length of the prefix.
const PREFIX_LENGTH: usize = 4;

/// A Bloom filter: programs look for keys in it, and no metric reads it.
const BLOOM_FILTER: u32 = generated::bpf_map_type::BPF_MAP_TYPE_BLOOM_FILTER as u32;

/// The flags that a map may have. All other flags take descriptors, or share the map with
/// processes.
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

/// Tells whether the values of a map, or of the maps in it, do not begin at a multiple of 8 bytes.
/// The verifier assumes that they do, but an LPM_TRIE has its values behind addresses of any length
/// (`trie_lookup_elem` in `kernel/bpf/lpm_trie.c`).
pub fn has_unaligned_values(spec: &MapSpec) -> bool {
    let is_trie = Some(spec.map_type) == MapKind::LpmTrie.bpf_type();
    let inner = spec.inner.as_deref().is_some_and(has_unaligned_values);
    inner || is_trie && !is_aligned_trie(spec.key_size as usize)
}

const fn is_aligned_trie(key_size: usize) -> bool {
    key_size.wrapping_sub(PREFIX_LENGTH).is_multiple_of(8)
}

/// Tells whether this machine can run atomic operations on the values of an LPM_TRIE with keys of
/// this many bytes.
pub const fn trie_has_atomics(key_size: usize) -> bool {
    ATOMICS_TAKE_ANY_ADDRESS || is_aligned_trie(key_size)
}

/// The properties of a map that the analysis of programs needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapFacts {
    /// True if this machine can't run atomic operations on its values.
    pub without_atomics: bool,
    /// True if a lookup in the map gives another map.
    pub holds_maps: bool,
    /// True if the map may be in a map of maps.
    pub is_held: bool,
    /// True if a walk through the map's entries gets longer when a program adds entries during the
    /// walk.
    pub is_hash: bool,
    /// True for a Bloom filter: a peek reads the value that the program passes. A peek of another
    /// map writes the value.
    pub is_filter: bool,
    pub entries: u64,
    /// The sizes of a key and a value, in bytes.
    pub key: u32,
    pub value: u32,
}

impl MapFacts {
    pub fn of(spec: &MapSpec, is_held: bool) -> Self {
        let inner = spec.inner.as_deref();
        let family = MapKind::from_bpf_type(spec.map_type).map(MapKind::family);
        Self {
            without_atomics: !ATOMICS_TAKE_ANY_ADDRESS && has_unaligned_values(spec),
            holds_maps: inner.is_some(),
            is_held,
            is_hash: family == Some(MapFamily::Hash),
            is_filter: spec.map_type == BLOOM_FILTER,
            entries: u64::from(
                spec.max_entries
                    .max(inner.map_or(0, |inner| inner.max_entries)),
            ),
            key: spec.key_size.max(inner.map_or(0, |inner| inner.key_size)),
            value: spec
                .value_size
                .max(inner.map_or(0, |inner| inner.value_size)),
        }
    }
}

/// Returns why no probe may have a map with this definition; `None` if it may.
pub fn refusal(name: &str, spec: &MapSpec) -> Option<String> {
    if let Some(reason) = spec
        .inner
        .as_deref()
        .and_then(|inner| refusal(&format!("{name}, the maps in it"), inner))
    {
        return Some(reason);
    }
    let kind = MapKind::from_bpf_type(spec.map_type).map(MapKind::name);
    let kind = kind.or_else(|| EventKind::from_bpf_type(spec.map_type).map(EventKind::name));
    let holds_maps = MapKind::from_bpf_type(spec.map_type)
        .is_some_and(|kind| kind.family() == MapFamily::Nested);
    if holds_maps && spec.inner.is_none() {
        return Some(format!(
            "map {name} contains maps of an unknown kind: write it with __array(values, struct {{ ... }}) and \
             SEC(\".maps\"), where the struct is the definition of a map"
        ));
    }
    if kind.is_none() && spec.map_type != BLOOM_FILTER {
        let kinds = MapKind::ALL
            .into_iter()
            .filter(|kind| kind.bpf_type().is_some())
            .map(MapKind::name);
        let kinds: Vec<&str> = kinds.chain(EventKind::ALL.map(EventKind::name)).collect();
        return Some(format!(
            "map {name} is of BPF map type {}, which no monitor needs; possible are {}, bloom_filter",
            spec.map_type,
            kinds.join(", ")
        ));
    }
    if spec.max_entries == 0 {
        return Some(format!(
            "map {name} has no number of entries: write __uint(max_entries, 1024), or as many as it needs, or name \
             it in the configuration (max_entries)"
        ));
    }
    let unknown = FLAGS
        .iter()
        .fold(spec.flags, |flags, (flag, _)| flags & !flag);
    (unknown != 0).then(|| {
        let possible: Vec<&str> = FLAGS.iter().map(|(_, name)| *name).collect();
        format!(
            "map {name} has the flags {unknown:#x}, which no monitor needs; leave them out, possible are {}",
            possible.join(", ")
        )
    })
}
