//! The capabilities of this kernel, found by trials when the daemon starts. The daemon shows the
//! kernel's version, but bases no decision on it.

use std::thread;

use serde::Serialize;
use twinprobe_ebpf_common::{EventKind, MapKind};

use crate::attach::hook::tcx;
use crate::attach::quiesce::method::MethodReport;
use crate::attach::quiesce::quiescer::Quiescer;
use crate::read::access::{MapAccess, Operations, Strategy};
use crate::sys::map::{self, MapCreate};
use crate::trial::{maps, programs};

/// The results of all trials.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    pub kernel: KernelCapabilities,
    /// The kinds of maps that metrics can name.
    pub maps: Vec<MapCapabilities>,
    /// The kinds of maps whose content is a stream of events.
    pub events: Vec<EventCapabilities>,
}

/// Capabilities of the kernel as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct KernelCapabilities {
    /// The kernel's release, as `uname -r` prints it; empty if it can't be read.
    pub release: String,
    /// The number of possible CPUs, which is the number of values in an entry of a PERCPU map.
    pub possible_cpus: usize,
    /// The name of the method by which a flip waits until no CPU runs the old twin.
    pub quiesce: String,
    /// All methods, in the order of preference.
    pub quiesce_methods: Vec<MethodReport>,
    /// True if sources can use the kernel's own types (CO-RE).
    pub btf: bool,
    /// True if XDP programs can take packets of several buffers (Linux 5.18), as large MTUs need.
    pub xdp_frags: bool,
    /// True if TC programs are attached by TCX links (Linux 6.6), else by clsact filters.
    pub tcx: bool,
}

/// The capabilities of one map kind.
#[derive(Clone, Debug, Serialize)]
pub struct MapCapabilities {
    #[serde(serialize_with = "name")]
    #[serde(rename = "type")]
    pub kind: MapKind,
    /// The reason why this kernel has no maps of the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    pub operations: Operations,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
}

/// The capabilities of one kind of event map.
#[derive(Clone, Debug, Serialize)]
pub struct EventCapabilities {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

fn name<S: serde::Serializer>(kind: &MapKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

impl Capabilities {
    /// Runs all trials. Takes some milliseconds.
    pub fn probe(quiescer: &Quiescer, possible_cpus: usize) -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            kernel: KernelCapabilities {
                release: release.trim().to_owned(),
                possible_cpus,
                quiesce: quiescer.workers.in_use().name().to_owned(),
                quiesce_methods: quiescer.workers.reports(),
                btf: std::path::Path::new("/sys/kernel/btf/vmlinux").exists(),
                xdp_frags: programs::has_frags(),
                tcx: tcx::is_supported(),
            },
            maps: thread::scope(|scope| {
                let trials = MapKind::ALL.map(|kind| scope.spawn(move || map(kind, possible_cpus)));
                trials
                    .into_iter()
                    .filter_map(|trial| trial.join().ok())
                    .collect()
            }),
            events: EventKind::ALL.iter().map(|kind| event(*kind)).collect(),
        }
    }

    /// Returns the capabilities, with the present state of the methods for grace periods.
    /// Everything else stays as it was at the start.
    pub fn now(&self, quiescer: &Quiescer) -> Self {
        let mut now = self.clone();
        now.kernel.quiesce = quiescer.workers.in_use().name().to_owned();
        now.kernel.quiesce_methods = quiescer.workers.reports();
        now
    }

    /// Returns the way in which maps of this kind are read and reset.
    pub fn access(&self, kind: MapKind) -> MapAccess {
        let operations = self
            .maps
            .iter()
            .find(|map| map.kind == kind)
            .map(|map| map.operations);
        MapAccess::new(kind, operations.unwrap_or_default())
    }
}

fn map(kind: MapKind, possible_cpus: usize) -> MapCapabilities {
    let found = maps::operations(kind, possible_cpus);
    let unavailable = found.as_ref().err().map(ToString::to_string);
    let strategy = found
        .as_ref()
        .ok()
        .map(|operations| Strategy::choose(kind, *operations));
    MapCapabilities {
        kind,
        unavailable,
        operations: found.unwrap_or_default(),
        strategy,
    }
}

fn event(kind: EventKind) -> EventCapabilities {
    let (size, max_entries) = match kind {
        EventKind::Ringbuf => (0, rustix::param::page_size() as u32),
        EventKind::PerfEventArray => (4, 1),
    };
    let (map_type, key_size, value_size) = (kind.bpf_type(), size, size);
    let map = MapCreate {
        map_type,
        key_size,
        value_size,
        max_entries,
        ..MapCreate::default()
    };
    let made = map::map_create(&MapCreate {
        name: "tp_try",
        ..map
    });
    EventCapabilities {
        kind: kind.name(),
        unavailable: made.err().map(|error| error.to_string()),
    }
}
