//! The map types a metric can name, and what each can do.

/// A BPF map type that a metric can read. `BPF_MAP_TYPE_*` of `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapKind {
    Hash,
    LruHash,
    PercpuHash,
    Array,
    PercpuArray,
    Queue,
    Stack,
}

/// How the content of a map is reached; one extraction strategy each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFamily {
    /// Keys come and go: walked by key, entries deleted.
    Hash,
    /// Keys are `0..max_entries` and always exist: read by index, entries zeroed.
    Array,
    /// No keys; reading is popping.
    Fifo,
}

impl MapKind {
    pub const ALL: [Self; 7] = [
        Self::Hash,
        Self::LruHash,
        Self::PercpuHash,
        Self::Array,
        Self::PercpuArray,
        Self::Queue,
        Self::Stack,
    ];

    /// The kind with this `enum bpf_map_type` number, if a metric can read it.
    pub fn from_bpf_type(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.bpf_type() == number)
    }

    /// The number of `enum bpf_map_type` (part of the kernel's ABI).
    pub const fn bpf_type(self) -> u32 {
        match self {
            Self::Hash => 1,
            Self::Array => 2,
            Self::PercpuHash => 5,
            Self::PercpuArray => 6,
            Self::LruHash => 9,
            Self::Queue => 22,
            Self::Stack => 23,
        }
    }

    /// The name used in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::LruHash => "lru_hash",
            Self::PercpuHash => "percpu_hash",
            Self::Array => "array",
            Self::PercpuArray => "percpu_array",
            Self::Queue => "queue",
            Self::Stack => "stack",
        }
    }

    pub const fn family(self) -> MapFamily {
        match self {
            Self::Hash | Self::LruHash | Self::PercpuHash => MapFamily::Hash,
            Self::Array | Self::PercpuArray => MapFamily::Array,
            Self::Queue | Self::Stack => MapFamily::Fifo,
        }
    }

    /// Whether each entry holds one value per possible CPU.
    pub const fn is_percpu(self) -> bool {
        matches!(self, Self::PercpuHash | Self::PercpuArray)
    }

    pub const fn has_keys(self) -> bool {
        !matches!(self.family(), MapFamily::Fifo)
    }
}
