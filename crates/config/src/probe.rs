//! A configuration that obeys every rule. Made only by [`ProbeConfig::validate`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::hook::Direction;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::request::{AttachRequest, Fills, MetricRequest};
use twinprobe_ebpf_common::unit::{Calls, Dialect, Unit};

use crate::interface::InterfacePattern;
use crate::pods::PodSelector;
use crate::window::{Schedule, WindowConfig};

/// The programs to run, the interfaces to run them on, and the metrics to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    pub name: String,
    /// Names and patterns in the order of the configuration, at least one, without repeats; or one element
    /// for pods.
    pub interfaces: Vec<InterfacePattern>,
    /// Names and patterns of interfaces that the patterns exclude.
    pub exclude_interfaces: Vec<InterfacePattern>,
    /// True if each interface has programs and maps of its own, and each row names its interface. No interface is a pattern then.
    pub per_interface: bool,
    /// True if the probe may be deployed before its interfaces and network namespace exist.
    pub wait_for_interface: bool,
    /// The absolute path of the interfaces' network namespace; `None` for the daemon's own namespace.
    pub netns: Option<PathBuf>,
    /// The format of answers to a client that asks for no format.
    pub format: Format,
    /// The time after which the probe is removed unless a PUT renews its lease; `None` if it stays.
    pub expires: Option<Duration>,
    /// The labels of every document and sample.
    pub labels: BTreeMap<String, String>,
    /// The prefix of the names of the probe's families in OpenMetrics; `None` for the names of its metrics.
    pub subsystem: Option<String>,
    /// The treatment of maps that no metric names, when the probe is replaced.
    pub on_replace: OnReplace,
    /// The names of the maps that both directions use.
    pub shared_maps: Vec<String>,
    /// The entries that maps begin with.
    pub fill: Arc<Fills>,
    pub ingress: Option<DirectionConfig>,
    pub egress: Option<DirectionConfig>,
    pub window: Option<WindowConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionConfig {
    /// The hook of the program, and the program's position there. A position means something for TC only.
    pub attach: AttachRequest,
    pub code: Code,
    /// The function for packets; `None` if the source or object has one only, or one that fits the hook.
    pub entry: Option<String>,
    /// The initial values of variables, in the form of documents.
    pub variables: BTreeMap<String, Value>,
    /// The numbers of entries of maps, in place of the numbers in their definitions.
    pub max_entries: BTreeMap<String, u32>,
    /// The most nanoseconds that the program may take for a packet in a trial; `None` for no limit.
    pub max_ns_per_packet: Option<u64>,
    /// The metrics, no two with the same name. Metrics of one map agree on `snapshot` and `init`.
    pub metrics: Vec<MetricConfig>,
}

/// A source in eBPF C, and the options of its compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCode {
    pub text: String,
    /// The files that the source may include, by their paths below its folder.
    pub files: BTreeMap<String, String>,
    pub dialect: Dialect,
    /// The functions in the tables of programs, in a source for BCC.
    pub calls: Calls,
    pub defines: BTreeMap<String, String>,
}

/// The program of a direction, as the client has sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    Source(SourceCode),
    /// An ELF object that was compiled elsewhere.
    Object(Vec<u8>),
}

impl Code {
    /// The name of the field in the direction.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Object(_) => "object",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricConfig {
    /// The part of the metric that concerns the kernel.
    pub request: MetricRequest,
    pub help: Option<String>,
    pub sum: SumConfig,
    /// The label of a key without parts in OpenMetrics; `None` for the usual one.
    pub key_label: Option<String>,
    /// The most entries that become samples of OpenMetrics, the largest ones; `None` for no limit.
    pub max_series: Option<u64>,
    /// The path of the number by which they are the largest; `None` for the first counter.
    pub series_by: Option<String>,
}

/// The limits of the sum of all windows, for maps whose entries come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumConfig {
    /// The limit of entries; `None` for the default of the map.
    pub entries: Option<usize>,
    /// The time after which an entry without windows leaves the sum; `None` if it stays.
    pub expires: Option<Duration>,
}

impl MetricConfig {
    /// Makes a metric without settings of its own.
    pub fn new(request: MetricRequest) -> Self {
        let (help, sum, key_label) = (None, SumConfig::default(), None);
        Self { request, help, sum, key_label, max_series: None, series_by: None }
    }
}

impl ProbeConfig {
    pub fn netns(&self) -> Option<&Path> {
        self.netns.as_deref()
    }

    /// Tells whether `interface` is one of the configured names. A pattern is not a name.
    pub fn names(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|named| named.text == interface && !named.is_pattern())
    }

    /// The pods whose interfaces the probe goes to; `None` if names of interfaces decide.
    pub fn pods(&self) -> Option<&PodSelector> {
        self.interfaces.iter().find_map(InterfacePattern::pods)
    }

    /// Tells whether the configuration excludes an interface of this name, even if a pattern matches it.
    pub fn excludes(&self, interface: &str) -> bool {
        self.exclude_interfaces.iter().any(|excluded| excluded.matches(interface))
    }

    /// Returns the names of the interfaces if each has programs and maps of its own.
    pub fn own_interfaces(&self) -> Option<Arc<[String]>> {
        let names = self.interfaces.iter().map(|interface| interface.text.clone());
        self.per_interface.then(|| names.collect())
    }

    pub fn direction(&self, direction: Direction) -> Option<&DirectionConfig> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }

    /// Returns the compiler's input for a direction with this source, whose place in the configuration is `field`. `frags`
    /// tells whether XDP programs get packets of several buffers.
    pub fn unit<'a>(
        &'a self,
        (direction, of): (Direction, &'a DirectionConfig),
        source: &'a SourceCode,
        field: &'a str,
        frags: bool,
    ) -> Unit<'a> {
        let other = self.directions().find_map(|(name, config)| match &config.code {
            Code::Source(source) if name != direction => Some(source.text.as_str()),
            Code::Source(_) | Code::Object(_) => None,
        });
        Unit {
            field,
            source: &source.text,
            files: &source.files,
            defines: &source.defines,
            dialect: source.dialect,
            entry: of.entry.as_deref(),
            calls: &source.calls,
            other,
            hook: of.attach.hook,
            verdict: of.attach.verdict,
            frags,
        }
    }

    /// The configured directions: at least one; ingress comes first.
    pub fn directions(&self) -> impl Iterator<Item = (Direction, &DirectionConfig)> {
        Direction::ALL.into_iter().filter_map(|direction| Some((direction, self.direction(direction)?)))
    }

    /// The schedule on which the clock closes windows; `None` if only requests close them.
    pub fn schedule(&self) -> Option<Schedule> {
        self.window.as_ref()?.schedule
    }
}
