//! What the API says about a probe and about a configuration that was validated.

use std::collections::BTreeMap;

use serde::Serialize;

use super::deploy::LoadedProbe;
use super::events::EventStatus;
use super::reading::Running;
use super::windows::Statistics;
use crate::config::{ConfigDocument, ProbeConfig};
use crate::kernel::{Attached, LoadedDirection};
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

impl ProbeStatus {
    pub(super) fn new(
        name: &str,
        stored: &StoredProbe,
        warnings: &[Finding],
        running: Option<&Running>,
        windows: Statistics,
        reason: Option<String>,
    ) -> Self {
        let attached = running.map(Running::attached);
        let directions = attached.map(Attached::directions).unwrap_or_default();
        let places = attached.map(Attached::places).unwrap_or_default();
        let attachments = places.iter().map(|at| AttachmentStatus {
            interface: at.place.interface.clone(),
            state: "attached",
            reason: None,
            ifindex: Some(at.place.ifindex),
            direction: Some(at.place.hook.direction()),
            hook: Some(at.place.hook.kind().section()),
            mode: Some(at.mode),
        });
        let pending =
            running.map(Running::pending).unwrap_or_default().iter().map(|pending| AttachmentStatus {
                interface: pending.interface.clone(),
                state: "pending",
                reason: Some(pending.reason.clone()),
                ifindex: None,
                direction: None,
                hook: None,
                mode: None,
            });
        let interfaces = attachments.chain(pending).collect();
        Self {
            name: name.to_owned(),
            state: if running.is_some() { "running" } else { "failed" },
            reason,
            revision: stored.revision,
            created: stored.created.clone(),
            interfaces,
            programs: programs(directions),
            events: Vec::new(),
            windows: WindowStatus {
                statistics: windows,
                error: running.and_then(Running::trouble).map(str::to_owned),
            },
            warnings: warnings.to_vec(),
            config: stored.config.clone(),
        }
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
