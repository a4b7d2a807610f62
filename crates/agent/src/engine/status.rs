//! What the API says about a probe and about a configuration that was validated.

use std::collections::BTreeMap;

use serde::Serialize;
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_kernel::{AttachedAt, Health, Held, LoadedDirection};
use twinprobe_windows::Statistics;

use super::deploy::LoadedProbe;
use super::events::EventStatus;
use super::placement::Pending;
use super::reading::{Running, timestamp};
use super::telemetry::AttachmentFacts;
use crate::config::{ConfigDocument, ProbeConfig};
use crate::store::StoredProbe;
use twinprobe_ebpf_common::finding::Finding;

/// `GET /v1/probes/{name}`.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeStatus {
    pub name: String,
    pub state: &'static str,
    /// Why it is not running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Counts the configurations that the probe has had.
    pub revision: u64,
    /// When it was first deployed.
    pub created: String,
    pub interfaces: Vec<AttachmentStatus>,
    pub programs: BTreeMap<&'static str, ProgramStatus>,
    /// The event metrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventStatus>,
    /// The sums whose entries come and go with the traffic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<SumStatus>,
    /// Its windows on disk.
    pub windows: WindowStatus,
    pub warnings: Vec<Finding>,
    pub config: ConfigDocument,
}

/// The sum of a metric's windows, as it was after the last window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SumStatus {
    pub direction: &'static str,
    pub metric: String,
    pub entries: usize,
    pub max_entries: usize,
    /// The number of entries dropped for lack of room.
    pub dropped: u64,
}

/// Windows on disk.
#[derive(Clone, Debug, Serialize)]
pub struct WindowStatus {
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Why the last window could not be closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One interface and hook.
#[derive(Clone, Debug, Serialize)]
pub struct AttachmentStatus {
    pub interface: String,
    /// `attached` or `pending`; the rest is there when it is attached.
    pub state: &'static str,
    /// The reason for `pending`, or what has happened to the attachment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<&'static str>,
    /// `native` or `generic` for XDP, `tcx` or `clsact` for TC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProgramStatus {
    pub entry: String,
    /// Whether a metric wants snapshots, so that two copies are loaded.
    pub twins: bool,
}

/// `POST /v1/validate`.
#[derive(Clone, Debug, Serialize)]
pub struct ValidationReport {
    pub valid: bool,
    pub interfaces: Vec<String>,
    pub programs: BTreeMap<&'static str, ProgramStatus>,
    pub metrics: BTreeMap<&'static str, Vec<MetricReport>>,
    pub warnings: Vec<Finding>,
}

#[derive(Clone, Debug, Serialize)]
pub struct MetricReport {
    pub name: String,
    pub map: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// The part of the state that the status shows, kept apart from the state, which is locked while a window is read.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    state: &'static str,
    reason: Option<String>,
    /// The attachments, each with its own health.
    places: Vec<AttachedAt>,
    pending: Vec<Pending>,
    /// The reason why the interfaces can't be listed.
    unlisted: Option<String>,
    /// The hooks of the probe's directions.
    hooks: Vec<Hook>,
    programs: BTreeMap<&'static str, ProgramStatus>,
    /// The reason why the last window could not be closed.
    trouble: Option<String>,
}

impl Shown {
    pub fn of(running: &Running) -> Self {
        let attached = running.attached();
        Self {
            state: "running",
            reason: None,
            places: attached.places().to_vec(),
            pending: running.pending().to_vec(),
            unlisted: running.unlisted().map(str::to_owned),
            hooks: attached.directions().iter().map(|loaded| loaded.hook).collect(),
            programs: programs(attached.directions()),
            trouble: running.trouble().map(str::to_owned),
        }
    }

    pub fn failed(reason: &str, held: Option<&Held>) -> Self {
        let places = held.map(|held| held.places().to_vec()).unwrap_or_default();
        let reason = match places.is_empty() {
            true => reason.to_owned(),
            false => format!(
                "{reason}; what an earlier daemon has attached goes on as it is, and is not read: PUT a configuration \
                 to replace it, or DELETE the probe"
            ),
        };
        let (pending, unlisted, hooks, programs, trouble) = Default::default();
        let reason = Some(reason);
        Self { state: "failed", reason, places, pending, unlisted, hooks, programs, trouble }
    }

    pub fn set_trouble(&mut self, trouble: Option<&str>) {
        if self.trouble.as_deref() != trouble {
            self.trouble = trouble.map(str::to_owned);
        }
    }

    /// True if the probe belongs on more interfaces than it is attached to, or may belong on more.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.is_unsure()
    }

    /// True if the probe's interfaces could not be listed.
    pub fn is_unsure(&self) -> bool {
        self.unlisted.is_some()
    }

    /// The attachments that the probe waits for, and those that it has. An interface that the probe waits for in one
    /// direction may be attached in the other.
    pub fn facts(&self) -> Vec<AttachmentFacts> {
        let waits = self.pending.iter().flat_map(|pending| {
            let interface = &pending.interface;
            let at =
                |hook| AttachmentFacts { interface: interface.clone(), hook, attached: false, repairs: 0 };
            self.hooks.iter().copied().map(at).collect::<Vec<_>>()
        });
        let called = self.places.iter().map(|at| {
            let health = at.health();
            AttachmentFacts {
                interface: at.place.interface.clone(),
                hook: at.place.hook,
                attached: health.mode.is_some(),
                repairs: health.repairs,
            }
        });
        waits.chain(called).collect()
    }

    fn interfaces(&self) -> Vec<AttachmentStatus> {
        let attachments = self.places.iter().map(|at| {
            let (place, health) = (&at.place, at.health());
            AttachmentStatus {
                interface: place.interface.clone(),
                state: if health.mode.is_some() { "attached" } else { "pending" },
                reason: reason_of(&health).or_else(|| self.unlisted.clone()),
                ifindex: Some(place.ifindex),
                direction: Some(place.hook.direction()),
                hook: Some(place.hook.kind().section()),
                mode: health.mode,
            }
        });
        let pending = self.pending.iter().map(|pending| AttachmentStatus {
            interface: pending.interface.clone(),
            state: "pending",
            reason: Some(pending.reason.clone()),
            ifindex: None,
            direction: None,
            hook: None,
            mode: None,
        });
        attachments.chain(pending).collect()
    }
}

/// Describes what somebody has done to an attachment, and since when.
fn reason_of(health: &Health) -> Option<String> {
    if let Some((reason, since)) = &health.trouble {
        let since = timestamp(*since);
        return Some(format!(
            "removed by somebody, noticed {since}, and it can't be made again: {reason}; it is tried again every 2 s"
        ));
    }
    let last = timestamp(health.repaired?);
    let times = if health.repairs == 1 { "once".to_owned() } else { format!("{} times", health.repairs) };
    Some(format!("removed by somebody and made again {times}, the last time {last}"))
}

impl ProbeStatus {
    pub(super) fn new(
        name: &str,
        stored: &StoredProbe,
        warnings: &[Finding],
        shown: Shown,
        windows: Statistics,
        events: Vec<EventStatus>,
    ) -> Self {
        let interfaces = shown.interfaces();
        let Shown { state, reason, programs, trouble, .. } = shown;
        Self {
            name: name.to_owned(),
            state,
            reason,
            revision: stored.revision,
            created: stored.created.clone(),
            interfaces,
            programs,
            events,
            sums: Vec::new(),
            windows: WindowStatus { statistics: windows, error: trouble },
            warnings: warnings.to_vec(),
            config: stored.config.clone(),
        }
    }

    /// Removes the sources, for lists.
    #[must_use]
    pub fn without_sources(mut self) -> Self {
        for direction in [&mut self.config.ingress, &mut self.config.egress].into_iter().flatten() {
            direction.source = None;
        }
        self
    }
}

impl ValidationReport {
    pub(super) fn new(config: &ProbeConfig, loaded: &LoadedProbe) -> Self {
        let metrics = config.directions().zip(&loaded.directions).map(|((direction, config), loaded)| {
            let reports = config.metrics().iter().zip(&loaded.twins.maps).map(|(metric, map)| MetricReport {
                name: metric.name().to_owned(),
                map: metric.map().to_owned(),
                kind: map.kind_name(),
            });
            (direction.name(), reports.collect())
        });
        Self {
            valid: true,
            interfaces: config.interfaces().to_vec(),
            programs: programs(&loaded.directions),
            metrics: metrics.collect(),
            warnings: loaded.warnings.clone(),
        }
    }
}

fn programs(directions: &[LoadedDirection]) -> BTreeMap<&'static str, ProgramStatus> {
    directions
        .iter()
        .map(|loaded| {
            let twins = loaded.twins.programs.are_twins();
            (loaded.hook.direction(), ProgramStatus { entry: loaded.twins.entry.clone(), twins })
        })
        .collect()
}
