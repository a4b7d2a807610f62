//! What the API says about a probe and about a configuration that was validated.

use std::collections::BTreeMap;

use serde::Serialize;

use super::deploy::LoadedProbe;
use super::events::EventStatus;
use super::reading::Running;
use super::windows::Statistics;
use crate::config::{ConfigDocument, ProbeConfig};
use crate::kernel::{AttachedAt, Held, LoadedDirection};
use crate::report::Finding;
use crate::store::StoredProbe;

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
    /// Its windows on disk.
    pub windows: WindowStatus,
    pub warnings: Vec<Finding>,
    pub config: ConfigDocument,
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
    /// Why it is pending.
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

/// What the status says of the state, kept apart from it: the state is locked while a window is read.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    state: &'static str,
    reason: Option<String>,
    interfaces: Vec<AttachmentStatus>,
    programs: BTreeMap<&'static str, ProgramStatus>,
    /// Why the last window could not be closed.
    trouble: Option<String>,
}

impl Shown {
    pub fn of(running: &Running) -> Self {
        let attached = running.attached();
        let pending = running.pending().iter().map(|pending| AttachmentStatus {
            interface: pending.interface.clone(),
            state: "pending",
            reason: Some(pending.reason.clone()),
            ifindex: None,
            direction: None,
            hook: None,
            mode: None,
        });
        Self {
            state: "running",
            reason: None,
            interfaces: attachments(attached.places()).chain(pending).collect(),
            programs: programs(attached.directions()),
            trouble: running.trouble().map(str::to_owned),
        }
    }

    pub fn failed(reason: &str, held: Option<&Held>) -> Self {
        let interfaces: Vec<_> = held.map(|held| attachments(held.places()).collect()).unwrap_or_default();
        let reason = match interfaces.is_empty() {
            true => reason.to_owned(),
            false => format!(
                "{reason}; what an earlier daemon has attached goes on as it is, and is not read: PUT a configuration \
                 to replace it, or DELETE the probe"
            ),
        };
        let (programs, trouble) = Default::default();
        Self { state: "failed", reason: Some(reason), interfaces, programs, trouble }
    }

    pub fn set_trouble(&mut self, trouble: Option<&str>) {
        if self.trouble.as_deref() != trouble {
            self.trouble = trouble.map(str::to_owned);
        }
    }
}

fn attachments(places: &[AttachedAt]) -> impl Iterator<Item = AttachmentStatus> {
    places.iter().map(|at| AttachmentStatus {
        interface: at.place.interface.clone(),
        state: "attached",
        reason: None,
        ifindex: Some(at.place.ifindex),
        direction: Some(at.place.hook.direction()),
        hook: Some(at.place.hook.kind().section()),
        mode: Some(at.mode),
    })
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
        let Shown { state, reason, interfaces, programs, trouble } = shown;
        Self {
            name: name.to_owned(),
            state,
            reason,
            revision: stored.revision,
            created: stored.created.clone(),
            interfaces,
            programs,
            events,
            windows: WindowStatus { statistics: windows, error: trouble },
            warnings: warnings.to_vec(),
            config: stored.config.clone(),
        }
    }

    /// For lists: without the sources.
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
