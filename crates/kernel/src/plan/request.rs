//! The request of a configuration for one direction of a probe, and the facts about the kernel that
//! a plan depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use aya_obj::btf::BtfFeatures;
use serde_json::Value;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::request::{AttachRequest, Fills, MetricRequest};

/// The facts about the running kernel that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct KernelFacts {
    /// The number of values that an entry of a PERCPU map has.
    pub possible_cpus: usize,
    /// The size of a page, in bytes.
    pub page_size: usize,
    /// The nanoseconds from the Unix epoch to the zero of `bpf_ktime_get_ns`, by the present
    /// setting of the wall clock.
    pub monotonic_zero_ns: u64,
    /// The kinds of type information that the kernel takes; `None` if it takes none.
    pub btf: Option<&'static BtfFeatures>,
    /// True if XDP programs can take packets of several buffers (Linux 5.18).
    pub xdp_frags: bool,
    pub options: KernelOptions,
}

/// The options of the running kernel's configuration.
#[derive(Clone, Copy)]
pub struct KernelOptions(pub fn(&str) -> Option<String>);

impl KernelOptions {
    /// The options of a kernel whose configuration is unknown.
    pub const NONE: Self = Self(|_| None);

    /// Returns the value of an option as the kernel's configuration has it: `y`, `m`, a number, or
    /// text in quotes.
    pub fn value(self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

impl fmt::Debug for KernelOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KernelOptions")
    }
}

/// The request for one direction.
#[derive(Clone, Debug)]
pub struct DirectionRequest {
    pub attach: AttachRequest,
    /// The name of the program in the object; `None` if the object's programs and the hook decide.
    pub entry: Option<String>,
    /// The initial values of variables, as documents render them.
    pub variables: BTreeMap<String, Value>,
    /// The numbers of entries of maps, which replace the numbers in the definitions of the maps.
    pub max_entries: BTreeMap<String, u32>,
    /// The entries with which maps begin. Some of these maps may be maps of the other direction.
    pub fill: Arc<Fills>,
    /// The maps that must have exactly the entries of `fill`, even if the probe replaces another
    /// one.
    pub anew: BTreeSet<String>,
    /// The field of the configuration that the program comes from, for findings.
    pub code: String,
    /// The effect of a replacement of the probe on the content of maps that no metric names.
    pub on_replace: OnReplace,
    pub metrics: Vec<MetricRequest>,
    /// The place in the source where each name is declared, for findings about maps. Empty for a
    /// compiled object.
    pub places: BTreeMap<String, DeclaredAt>,
}

/// The place where a name is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredAt {
    /// The file beside the source; `None` for the source.
    pub file: Option<String>,
    pub line: u32,
}

/// The findings and warnings about a direction that is being planned. A direction with findings is
/// refused.
#[derive(Debug, Default)]
pub struct PlanFindings {
    pub findings: Vec<Finding>,
    pub warnings: Vec<String>,
}
