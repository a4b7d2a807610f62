//! The map types that a metric can read as a table, and their properties.

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
    /// A variable in a data section. The section is the only value of an array map.
    Global,
}

/// The family of a map type; each family has its own way of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFamily {
    /// Keys come and go. A reading walks through the keys and deletes the entries.
    Hash,
    /// Keys are `0..max_entries` and always exist. A reading reads the entries by index and sets
    /// them to zero.
    Array,
    /// Keys are prefixes. A reading walks through the keys and deletes the entries.
    Trie,
    /// Entries have no keys. A reading pops the entries.
    Fifo,
    /// The values are maps. A reading reads and empties these; the outer map stays unchanged.
    Nested,
    /// One value without a key, in mapped memory. A reset writes the initial value of the source.
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

    /// Returns the kind with this number of `enum bpf_map_type`, if a metric can read maps of that
    /// type.
    pub fn from_bpf_type(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.bpf_type() == Some(number))
    }

    /// Returns the name, the number in `enum bpf_map_type`, and the family.
    const fn facts(self) -> (&'static str, Option<u32>, MapFamily) {
        match self {
            Self::Hash => ("hash", Some(1), MapFamily::Hash),
            Self::LruHash => ("lru_hash", Some(9), MapFamily::Hash),
            Self::PercpuHash => ("percpu_hash", Some(5), MapFamily::Hash),
            Self::LruPercpuHash => ("lru_percpu_hash", Some(10), MapFamily::Hash),
            Self::Array => ("array", Some(2), MapFamily::Array),
            Self::PercpuArray => ("percpu_array", Some(6), MapFamily::Array),
            Self::LpmTrie => ("lpm_trie", Some(11), MapFamily::Trie),
            Self::Queue => ("queue", Some(22), MapFamily::Fifo),
            Self::Stack => ("stack", Some(23), MapFamily::Fifo),
            Self::HashOfMaps => ("hash_of_maps", Some(13), MapFamily::Nested),
            Self::ArrayOfMaps => ("array_of_maps", Some(12), MapFamily::Nested),
            Self::Global => ("global", None, MapFamily::Global),
        }
    }

    /// The name used in documents and messages.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Returns the number in `enum bpf_map_type` (part of the kernel's ABI); `None` for a kind that
    /// is not a kernel map.
    pub const fn bpf_type(self) -> Option<u32> {
        self.facts().1
    }

    /// Returns the family, which says how the content of such a map is read.
    pub const fn family(self) -> MapFamily {
        self.facts().2
    }

    /// Tells whether each entry has one value for each possible CPU.
    pub const fn is_percpu(self) -> bool {
        matches!(
            self,
            Self::PercpuHash | Self::LruPercpuHash | Self::PercpuArray
        )
    }

    /// Tells whether the entries have keys.
    pub const fn has_keys(self) -> bool {
        !matches!(self.family(), MapFamily::Fifo | MapFamily::Global)
    }

    /// Tells whether entries come and go with the traffic.
    pub const fn comes_and_goes(self) -> bool {
        matches!(self.family(), MapFamily::Hash | MapFamily::Trie)
    }

    /// Tells whether the values are maps.
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
