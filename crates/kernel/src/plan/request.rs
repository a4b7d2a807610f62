//! The request of a configuration for one direction of a probe, and the facts about the kernel that a plan depends on.

use std::collections::BTreeMap;

use aya_obj::btf::BtfFeatures;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::request::{AttachRequest, MetricRequest};

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

/// The findings and warnings about a direction that is being planned. A direction with findings is refused.
#[derive(Debug, Default)]
pub struct Notes {
    pub findings: Vec<Finding>,
    pub warnings: Vec<String>,
}
