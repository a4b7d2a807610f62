//! The consumers of events, and the results of a consumer.

use super::stand::Sent;
use super::tool::{Shape, Tool};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    Libbpf,
    LibbpfJson,
    Aya,
    Bcc,
    Bpftrace,
    Twinprobe,
}

/// The ways in which consumers handle an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The consumer reads an event's number, or formats the event as JSON and discards the text.
    Count,
    /// The consumers compare each event with the sent one, and measure its delay.
    Check,
}

/// The fate of the events of one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub sent: Sent,
    /// The events that the program wrote, or had no room for.
    pub events: u64,
    /// The events that found no room in the ring.
    pub lost: u64,
    /// The events that the reader of a stream was too slow for.
    pub missed: u64,
    pub delivered: u64,
    /// The number of missing events, by the numbers of the events that the consumer received.
    pub gaps: u64,
    pub disordered: u64,
    pub damaged: u64,
    /// The processor time of the consumer in nanoseconds.
    pub cpu: f64,
    /// The delays in nanoseconds of half and of 99 % of the events, if they were checked.
    pub latency: [u64; 2],
}

impl Consumer {
    pub const ALL: [Self; 6] = [
        Self::Libbpf,
        Self::LibbpfJson,
        Self::Aya,
        Self::Bcc,
        Self::Bpftrace,
        Self::Twinprobe,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Libbpf => "libbpf (C), counts",
            Self::LibbpfJson => "libbpf (C), prints JSON",
            Self::Aya => "aya (Rust), counts",
            Self::Bcc => "BCC (Python), counts",
            Self::Bpftrace => "bpftrace, prints",
            Self::Twinprobe => "twinprobe, JSON over HTTP",
        }
    }

    /// Tells whether the tool supports this consumer and mode: bpftrace has neither XDP nor
    /// payloads of 1 KiB, and nothing checks printed events.
    pub fn can(self, tool: Tool, mode: Mode) -> bool {
        match self {
            Self::Bpftrace => tool.hook == "tc" && tool.shape == Shape::RwTracer,
            Self::LibbpfJson => mode == Mode::Count,
            _ => true,
        }
    }
}

impl Outcome {
    /// Returns the microseconds of processor time for an event.
    pub fn per_event(&self) -> f64 {
        self.cpu / 1e3 / self.delivered.max(1) as f64
    }

    pub fn lost_percent(&self) -> f64 {
        100.0 * (self.lost + self.missed) as f64 / self.events.max(1) as f64
    }
}
