//! The map types that carry events instead of state.

use serde::{Deserialize, Serialize};

/// A type of BPF maps whose content is a stream: each event is read once, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// One ring for all CPUs. If the ring is full, the kernel does not count the event, but reports
    /// the failure to the program.
    Ringbuf,
    /// One ring for each CPU. The kernel counts the events that did not fit.
    PerfEventArray,
}

impl EventKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Ringbuf, Self::PerfEventArray];

    /// Returns the kind with this number of `enum bpf_map_type`, if maps of that type carry events.
    pub fn from_bpf_type(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.bpf_type() == number)
    }

    /// Returns the number in `enum bpf_map_type` (part of the kernel's ABI).
    pub const fn bpf_type(self) -> u32 {
        match self {
            Self::PerfEventArray => 4,
            Self::Ringbuf => 27,
        }
    }

    /// Returns the name in documents and messages.
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
