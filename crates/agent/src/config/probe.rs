//! A configuration that obeys every rule. Made only by [`ProbeConfig::validate`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use twinprobe_ebpf_common::hook::Direction;
use twinprobe_ebpf_common::metric::{OnReplace, Visibility};
use twinprobe_ebpf_common::{Aggregation, Format, MergeRules};
use twinprobe_kernel::{AttachRequest, MetricRequest};

use crate::config::interface::InterfacePattern;
use crate::config::window::{Schedule, WindowConfig};

/// The programs to run, the interfaces to run them on, and the metrics to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    pub(super) name: String,
    pub(super) interfaces: Vec<String>,
    /// The elements of `interfaces`, ready to be compared with names.
    pub(super) patterns: Vec<InterfacePattern>,
    pub(super) wait_for_interface: bool,
    pub(super) netns: Option<PathBuf>,
    pub(super) format: Format,
    pub(super) on_replace: OnReplace,
    pub(super) ingress: Option<DirectionConfig>,
    pub(super) egress: Option<DirectionConfig>,
    pub(super) window: Option<WindowConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionConfig {
    pub(super) attach: AttachRequest,
    pub(super) source: String,
    pub(super) defines: BTreeMap<String, String>,
    pub(super) metrics: Vec<MetricConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricConfig {
    pub(super) request: MetricRequest,
    pub(super) help: Option<String>,
    pub(super) sum_entries: Option<usize>,
}

impl ProbeConfig {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names and patterns as the configuration has them: at least one, none twice, in the same order.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// [`Self::interfaces`], ready to be compared with names.
    pub fn patterns(&self) -> &[InterfacePattern] {
        &self.patterns
    }

    /// Tells whether the probe may be deployed before its interfaces and network namespace exist.
    pub fn wait_for_interface(&self) -> bool {
        self.wait_for_interface
    }

    /// The absolute path of the interfaces' network namespace; `None` for the daemon's own namespace.
    pub fn netns(&self) -> Option<&Path> {
        self.netns.as_deref()
    }

    /// The treatment of maps that no metric names, when the probe is replaced.
    pub fn on_replace(&self) -> OnReplace {
        self.on_replace
    }

    /// The format of answers to a client that asks for no format.
    pub fn format(&self) -> Format {
        self.format
    }

    pub fn direction(&self, direction: Direction) -> Option<&DirectionConfig> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }

    /// The configured directions: at least one; ingress comes first.
    pub fn directions(&self) -> impl Iterator<Item = (Direction, &DirectionConfig)> {
        Direction::ALL.into_iter().filter_map(|direction| Some((direction, self.direction(direction)?)))
    }

    /// The settings of windows; `None` if the configuration has none.
    pub fn window(&self) -> Option<&WindowConfig> {
        self.window.as_ref()
    }

    /// The schedule on which the clock closes windows; `None` if only requests do.
    pub fn schedule(&self) -> Option<Schedule> {
        self.window.as_ref()?.schedule
    }
}

impl DirectionConfig {
    /// The hook of the program, and the program's position there. A position means something for TC only.
    pub fn attach(&self) -> AttachRequest {
        self.attach
    }

    /// The source in eBPF C.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn defines(&self) -> &BTreeMap<String, String> {
        &self.defines
    }

    /// The metrics, no two with the same name or the same map.
    pub fn metrics(&self) -> &[MetricConfig] {
        &self.metrics
    }
}

impl MetricConfig {
    /// The part of the metric that concerns the kernel.
    pub fn request(&self) -> &MetricRequest {
        &self.request
    }

    pub fn name(&self) -> &str {
        &self.request.name
    }

    /// The map's symbol in the source.
    pub fn map(&self) -> &str {
        &self.request.map
    }

    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    #[cfg(test)]
    pub fn source(&self) -> twinprobe_ebpf_common::metric::Source {
        self.request.source
    }

    #[cfg(test)]
    pub fn after_read(&self) -> twinprobe_ebpf_common::metric::AfterRead {
        self.request.after_read
    }

    pub fn visibility(&self) -> Visibility {
        self.request.visibility
    }

    pub fn aggregation(&self) -> Option<Aggregation> {
        self.request.aggregation
    }

    /// The rules by which windows add up. Exactly the cumulative snapshots have some (`Source::Snapshot` with
    /// `AfterRead::Keep`).
    pub fn merge(&self) -> Option<&MergeRules> {
        self.request.merge.as_ref()
    }

    /// The limit of entries in the sum of all windows; `None` for the default of the map.
    pub fn sum_entries(&self) -> Option<usize> {
        self.sum_entries
    }

    pub fn on_replace(&self) -> OnReplace {
        self.request.on_replace
    }
}
