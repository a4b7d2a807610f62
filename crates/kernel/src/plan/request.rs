//! The request of a configuration for one direction of a probe, and the facts about the kernel that a plan depends on.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use aya_obj::btf::BtfFeatures;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::hook::{Hook, Position, Verdict, XdpMode};
use twinprobe_ebpf_common::metric::{AfterRead, OnReplace, Source, StrategyChoice, Visibility};
use twinprobe_ebpf_common::{Aggregation, MergeRules};

/// The facts about the running kernel that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct KernelFacts {
    /// The number of values that an entry of a PERCPU map has.
    pub possible_cpus: usize,
    /// The size of a page, in bytes.
    pub page_size: usize,
    /// The nanoseconds from the Unix epoch to the zero of `bpf_ktime_get_ns`, as the wall clock is set now.
    pub monotonic_zero_ns: u64,
    /// The kinds of type information that the kernel takes; `None` if it takes none.
    pub btf: Option<&'static BtfFeatures>,
    /// True if XDP programs can take packets of several buffers (Linux 5.18).
    pub xdp_frags: bool,
}

/// The request for one direction.
#[derive(Clone, Debug)]
pub struct DirectionRequest {
    pub attach: AttachRequest,
    /// The field of the configuration that the program comes from, for findings.
    pub code: String,
    /// The treatment of the content of maps that no metric names, when the probe is replaced.
    pub on_replace: OnReplace,
    pub metrics: Vec<MetricRequest>,
    /// The lines of the source in which names are declared, for findings about maps; empty for an object.
    pub lines: BTreeMap<String, u32>,
}

/// The hook at which a direction's program runs, and the program's place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    pub hook: Hook,
    pub xdp_mode: XdpMode,
    pub verdict: Verdict,
    /// The program sees one packet in this many, chosen at random; `None` if it sees all.
    pub sample: Option<NonZeroU32>,
    /// Probes of one hook run in ascending order.
    pub priority: i16,
    pub position: Position,
}

/// The request for one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRequest {
    /// The path of the metric in the configuration, for findings.
    pub field: String,
    pub name: String,
    /// The symbol of a map in the source, or `.bss:VAR` for a variable of a section.
    pub map: String,
    pub source: Source,
    pub after_read: AfterRead,
    pub visibility: Visibility,
    pub aggregation: Option<Aggregation>,
    /// The rules by which windows add up.
    pub merge: Option<MergeRules>,
    pub strategy: StrategyChoice,
    pub on_replace: OnReplace,
    /// The C name of the type that events are decoded by.
    pub event_type: Option<String>,
}

impl MetricRequest {
    /// Returns the name of the map, or of the section that the variable is in.
    pub fn map_name(&self) -> &str {
        self.map.split_once(':').map_or(&self.map, |(section, _)| section)
    }

    pub fn is_snapshot(&self) -> bool {
        self.source == Source::Snapshot
    }

    pub fn is_reset(&self) -> bool {
        self.after_read == AfterRead::Reset
    }

    /// Returns the field of the configuration that makes the daemon write to the map: `init` resets it, and a snapshot
    /// is cleared before it is used again. `None` if the map is only read.
    pub fn writing_field(&self) -> Option<&'static str> {
        match (self.after_read, self.source) {
            (AfterRead::Reset, _) => Some("init"),
            (AfterRead::Keep, Source::Snapshot) => Some("snapshot"),
            (AfterRead::Keep, Source::Live) => None,
        }
    }

    /// Makes the finding about a mistake in one field of the metric.
    pub fn finding(&self, field: &str, message: impl Into<String>) -> Finding {
        Finding::config(format!("{}.{field}", self.field), message)
    }
}

/// The findings and warnings about a direction that is being planned. A direction with findings is refused.
#[derive(Debug, Default)]
pub struct Notes {
    pub findings: Vec<Finding>,
    pub warnings: Vec<String>,
}
