//! The map types that a metric can read as a table, and what each can do.

use serde::{Deserialize, Serialize};

/// A BPF map type that a metric can read (`BPF_MAP_TYPE_*` of `linux/bpf.h`), or a global variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapKind {
    Hash,
    LruHash,
    PercpuHash,
    LruPercpuHash,
    Array,
    PercpuArray,
    LpmTrie,
    Queue,
    Stack,
    HashOfMaps,
    ArrayOfMaps,
    /// A variable in a data section, which is part of an array map's only value.
    Global,
}

/// How the content of a map is reached; each family is read in a way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFamily {
    /// Keys come and go: walked by key, entries deleted.
    Hash,
    /// Keys are `0..max_entries` and always exist: read by index, entries zeroed.
    Array,
    /// Keys are prefixes: walked by key, entries deleted.
    Trie,
    /// No keys; reading is popping.
    Fifo,
    /// The values are maps: those are read and emptied, the outer map stays as it is.
    Nested,
    /// One value without a key, in memory; reset to the initial value in the source.
    Global,
}

impl MapKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Hash,
        Self::LruHash,
        Self::PercpuHash,
        Self::LruPercpuHash,
        Self::Array,
        Self::PercpuArray,
        Self::LpmTrie,
        Self::Queue,
        Self::Stack,
        Self::HashOfMaps,
        Self::ArrayOfMaps,
        Self::Global,
    ];

    /// The kind with this `enum bpf_map_type` number, if a metric can read it.
    pub fn from_bpf_type(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.bpf_type() == Some(number))
    }

    /// The number of `enum bpf_map_type` (part of the kernel's ABI); `None` for what is no map by itself.
    pub const fn bpf_type(self) -> Option<u32> {
        Some(match self {
            Self::Hash => 1,
            Self::Array => 2,
            Self::PercpuHash => 5,
            Self::PercpuArray => 6,
            Self::LruHash => 9,
            Self::LruPercpuHash => 10,
            Self::LpmTrie => 11,
            Self::ArrayOfMaps => 12,
            Self::HashOfMaps => 13,
            Self::Queue => 22,
            Self::Stack => 23,
            Self::Global => return None,
        })
    }

    /// The name used in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::LruHash => "lru_hash",
            Self::PercpuHash => "percpu_hash",
            Self::LruPercpuHash => "lru_percpu_hash",
            Self::Array => "array",
            Self::PercpuArray => "percpu_array",
            Self::LpmTrie => "lpm_trie",
            Self::Queue => "queue",
            Self::Stack => "stack",
            Self::HashOfMaps => "hash_of_maps",
            Self::ArrayOfMaps => "array_of_maps",
            Self::Global => "global",
        }
    }

    /// How the content of such a map is reached.
    pub const fn family(self) -> MapFamily {
        match self {
            Self::Hash | Self::LruHash | Self::PercpuHash | Self::LruPercpuHash => MapFamily::Hash,
            Self::Array | Self::PercpuArray => MapFamily::Array,
            Self::LpmTrie => MapFamily::Trie,
            Self::Queue | Self::Stack => MapFamily::Fifo,
            Self::HashOfMaps | Self::ArrayOfMaps => MapFamily::Nested,
            Self::Global => MapFamily::Global,
        }
    }

    /// Whether each entry holds one value per possible CPU.
    pub const fn is_percpu(self) -> bool {
        matches!(self, Self::PercpuHash | Self::LruPercpuHash | Self::PercpuArray)
    }

    /// Whether its entries have keys.
    pub const fn has_keys(self) -> bool {
        !matches!(self.family(), MapFamily::Fifo | MapFamily::Global)
    }

    /// Whether its values are maps.
    pub const fn is_nested(self) -> bool {
        matches!(self.family(), MapFamily::Nested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_stored_by_its_name() {
        for kind in MapKind::ALL {
            let stored = serde_json::to_value(kind).unwrap();
            assert_eq!(stored, kind.name());
            assert_eq!(serde_json::from_value::<MapKind>(stored).unwrap(), kind);
        }
    }

    #[test]
    fn the_kernel_numbers_lead_back() {
        for kind in MapKind::ALL {
            assert_eq!(
                kind.bpf_type().and_then(MapKind::from_bpf_type),
                Some(kind).filter(|_| kind != MapKind::Global)
            );
        }
    }
}
