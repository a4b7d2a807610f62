//! What the API says about a probe and about a configuration that was validated.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::deploy::LoadedProbe;
use super::events::EventStatus;
use super::reading::timestamp;
use crate::config::{ConfigDocument, ProbeConfig};
use crate::kernel::{Attached, LoadedDirection};
use crate::report::Finding;

/// `GET /v1/probes/{name}`.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeStatus {
    pub name: String,
    pub state: &'static str,
    /// Why it is not running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub created: String,
    pub interfaces: Vec<AttachmentStatus>,
    pub programs: BTreeMap<&'static str, ProgramStatus>,
    /// The event metrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventStatus>,
    pub warnings: Vec<Finding>,
    pub config: ConfigDocument,
}

/// One interface and hook.
#[derive(Clone, Debug, Serialize)]
pub struct AttachmentStatus {
    pub interface: String,
    pub ifindex: u32,
    pub direction: &'static str,
    pub hook: &'static str,
    /// `native` or `generic` for XDP, `tcx` or `clsact` for TC.
    pub mode: &'static str,
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
        config: &ConfigDocument,
        created: Timestamp,
        warnings: &[Finding],
        attached: Option<&Attached>,
        reason: Option<String>,
    ) -> Self {
        let directions = attached.map(Attached::directions).unwrap_or_default();
        let places = attached.map(Attached::places).unwrap_or_default();
        let interfaces = places
            .iter()
            .map(|at| AttachmentStatus {
                interface: at.place.interface.clone(),
                ifindex: at.place.ifindex,
                direction: at.place.hook.direction(),
                hook: at.place.hook.kind().section(),
                mode: at.mode,
            })
            .collect();
        Self {
            name: name.to_owned(),
            state: if attached.is_some() { "running" } else { "failed" },
            reason,
            created: timestamp(created),
            interfaces,
            programs: programs(directions),
            events: Vec::new(),
            warnings: warnings.to_vec(),
            config: config.clone(),
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
