//! The map types that carry events instead of state.

use serde::{Deserialize, Serialize};

/// A BPF map type whose content is a stream: each event is read once, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// One ring for all CPUs. The kernel does not count events without room; it tells the program.
    Ringbuf,
    /// One ring per CPU. The kernel counts the events that did not fit.
    PerfEventArray,
}

impl EventKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Ringbuf, Self::PerfEventArray];

    /// The kind with this `enum bpf_map_type` number, if it carries events.
    pub fn from_bpf_type(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.bpf_type() == number)
    }

    /// The number of `enum bpf_map_type` (part of the kernel's ABI).
    pub const fn bpf_type(self) -> u32 {
        match self {
            Self::PerfEventArray => 4,
            Self::Ringbuf => 27,
        }
    }

    /// The name used in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ringbuf => "ringbuf",
            Self::PerfEventArray => "perf_event_array",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_kind::MapKind;

    #[test]
    fn a_map_is_a_table_or_a_stream_but_not_both() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_bpf_type(kind.bpf_type()), Some(kind));
            assert_eq!(MapKind::from_bpf_type(kind.bpf_type()), None);
        }
    }
}
