//! The status of a probe, and the report on a configuration that was validated, as the API shows
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinprobe_api::{
    AttachmentStatus, JoinStatus, MapReport, MetricReport, ProgramStatus, SharedMapStatus,
    ValidationReport, Word,
};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_kernel::clock::rfc3339;
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::{
    AttachedAt, Health, HeldDeployment, Kernel, LoadedDirection, MapPlan, Sees,
};

use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::placement::PendingPlace;
use crate::engine::probe::exactness::{Exactness, Found, approximately};
use crate::engine::probe::running::Running;
use crate::engine::reading::metric::MetricState;
use crate::telemetry::page::AttachmentFacts;
use twinprobe_config::ProbeConfig;

/// The part of the state that the status shows, kept apart from the state, which is locked while a
/// window is read.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub state: &'static str,
    pub reason: Option<String>,
    /// The attachments, each with its own health.
    places: Vec<AttachedAt>,
    pending: Vec<PendingPlace>,
    /// The reason why the interfaces can't be listed.
    unlisted: Option<String>,
    /// The hooks of the probe's directions.
    hooks: Vec<Hook>,
    pub programs: BTreeMap<Direction, ProgramStatus>,
    pub shared_maps: Vec<SharedMapStatus>,
    /// The fields of metrics whose values are not added.
    pub joins: Option<Vec<JoinStatus>>,
    /// The reason why the last window could not be closed.
    pub close_error: Option<String>,
    /// The parts of packets that the programs of the directions look at.
    sees: Vec<Sees>,
    exactness: Arc<Exactness>,
}

impl Shown {
    pub fn of(running: &Running) -> Self {
        let attached = &running.open.attached;
        Self {
            state: "running",
            reason: None,
            places: attached.places.clone(),
            pending: running.pending.clone(),
            unlisted: running.unlisted.clone(),
            hooks: attached
                .directions
                .iter()
                .map(|loaded| loaded.plan.attach.hook)
                .collect(),
            programs: programs(&attached.directions),
            shared_maps: shared_maps(&attached.directions),
            joins: Some(
                running
                    .open
                    .metrics
                    .iter()
                    .filter_map(MetricState::join_status)
                    .collect(),
            ),
            close_error: running.close_error.clone(),
            sees: running.sees(),
            exactness: Arc::clone(&running.exactness),
        }
    }

    pub fn failed(reason: &str, held: Option<&HeldDeployment>) -> Self {
        let places = held.map(|held| held.places.clone()).unwrap_or_default();
        let reason = match places.is_empty() {
            true => reason.to_owned(),
            false => format!(
                "{reason}; programs that an earlier daemon has attached continue, and are not read: PUT a configuration \
                 to replace them, or DELETE the probe"
            ),
        };
        Self {
            state: "failed",
            reason: Some(reason),
            places,
            ..Self::default()
        }
    }

    /// Tells whether the probe belongs, or may belong, on more interfaces than its present ones.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.is_unsure()
    }

    /// Tells whether the probe's interfaces could not be listed.
    pub fn is_unsure(&self) -> bool {
        self.unlisted.is_some()
    }

    /// Returns the attachments that the probe waits for, and those that it has. An interface that
    /// the probe waits for in one direction may be attached in the other.
    pub fn facts(&self) -> Vec<AttachmentFacts> {
        let waits = self.pending.iter().flat_map(|pending| {
            let interface = &pending.interface;
            let at = |hook| AttachmentFacts {
                interface: interface.clone(),
                hook,
                attached: false,
                repairs: 0,
            };
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

    /// Returns the indices of the interfaces to which the probe is attached.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        self.places.iter().map(|at| at.place.ifindex)
    }

    /// Returns the interfaces to which the probe is attached, each with its namespace.
    pub fn attached(&self) -> impl Iterator<Item = (&Netns, u32)> {
        self.places
            .iter()
            .map(|at| (&at.place.netns, at.place.ifindex))
    }

    /// Finds out the present status of each attachment.
    pub fn refresh(&self) {
        self.exactness.refresh(&self.places, &self.sees);
    }

    /// Returns, for each attachment, the reasons why its numbers differ from those on the wire.
    pub fn found(&self) -> Vec<Found> {
        self.exactness.known(&self.places)
    }

    /// Returns these reasons as the text for documents; `None` if all numbers are exact.
    pub fn approximate(&self) -> Option<String> {
        self.exactness.text(&self.places)
    }

    /// Returns the warnings that follow from these findings.
    pub fn warnings(&self, found: &[Found]) -> Vec<Finding> {
        let mut warnings = BTreeSet::new();
        for (at, found) in self.places.iter().zip(found) {
            let messages = found.approximate.iter().map(|reason| approximately(reason));
            let messages = messages.chain(found.warning.clone());
            warnings
                .extend(messages.map(|message| (Direction::from(at.place.hook).name(), message)));
        }
        let finding = |(field, message)| Finding::new(Stage::Attach, field, message);
        warnings.into_iter().map(finding).collect()
    }

    pub fn interfaces(&self, found: &[Found]) -> Vec<AttachmentStatus> {
        let attachments = self.places.iter().enumerate().map(|(index, at)| {
            let (place, health) = (&at.place, at.health());
            AttachmentStatus {
                interface: place.interface.clone(),
                state: if health.mode.is_some() {
                    "attached"
                } else {
                    "pending"
                }
                .into(),
                reason: reason_of(&health)
                    .or_else(|| health.fallback.clone())
                    .or_else(|| self.unlisted.clone()),
                ifindex: Some(place.ifindex),
                direction: Some(Direction::from(place.hook)),
                hook: Some(place.hook.kind().section().into()),
                mode: health.mode.map(Word::Borrowed),
                approximate: found.get(index).and_then(Found::text),
            }
        });
        let pending = self.pending.iter().map(|pending| AttachmentStatus {
            interface: pending.interface.clone(),
            state: "pending".into(),
            reason: Some(pending.reason.clone()),
            ifindex: None,
            direction: None,
            hook: None,
            mode: None,
            approximate: None,
        });
        attachments.chain(pending).collect()
    }
}

/// Returns the text about a removed attachment: when somebody removed it, and whether it could be
/// restored.
fn reason_of(health: &Health) -> Option<String> {
    if let Some((reason, since)) = &health.failure {
        let since = rfc3339(*since);
        return Some(format!(
            "removed by somebody, noticed {since}; the daemon can't attach it again: {reason}; it tries again every 2 s"
        ));
    }
    let last = rfc3339(health.repaired?);
    let times = if health.repairs == 1 {
        "once".to_owned()
    } else {
        format!("{} times", health.repairs)
    };
    Some(format!(
        "removed by somebody; the daemon has attached it again {times}, the last time {last}"
    ))
}

pub fn validation_report(
    config: &ProbeConfig,
    loaded: &LoadedProbe,
    kernel: &Kernel,
) -> ValidationReport {
    let maps = loaded
        .directions
        .iter()
        .zip(&loaded.parsed)
        .map(|(loaded, object)| {
            let uses = kernel
                .uses(&loaded.plan, object)
                .into_iter()
                .map(|uses| MapReport {
                    map: uses.map,
                    kind: uses.kind.into(),
                    max_entries: uses.max_entries,
                    adds: uses.adds,
                    deletes: uses.deletes,
                });
            (Direction::from(loaded.plan.attach.hook), uses.collect())
        });
    let metrics = loaded.directions.iter().map(|loaded| {
        let configured = config
            .direction(Direction::from(loaded.plan.attach.hook))
            .map_or(0, |config| config.metrics.len());
        let reports = loaded
            .plan
            .metrics
            .iter()
            .take(configured)
            .map(|metric| MetricReport {
                name: metric.request.name.clone(),
                map: metric.request.map.clone(),
                kind: metric.kind_name().into(),
            });
        (Direction::from(loaded.plan.attach.hook), reports.collect())
    });
    ValidationReport {
        valid: true,
        interfaces: config
            .places
            .interfaces
            .iter()
            .map(|interface| interface.text.clone())
            .collect(),
        programs: programs(&loaded.directions),
        shared_maps: shared_maps(&loaded.directions),
        metrics: metrics.collect(),
        maps: maps.collect(),
        cost: loaded.cost.clone(),
        warnings: loaded.warnings.clone(),
    }
}

fn programs(directions: &[LoadedDirection]) -> BTreeMap<Direction, ProgramStatus> {
    let taken = |name: &&String| directions.iter().any(|loaded| loaded.plan.entry == **name);
    let status = |loaded: &LoadedDirection| {
        let plan = &loaded.plan;
        // Both directions may come from one file.
        let left_out = plan
            .others
            .iter()
            .filter(|name| !taken(name))
            .cloned()
            .collect();
        let status = ProgramStatus {
            entry: plan.entry.clone(),
            twins: plan.has_twins(),
            left_out,
        };
        (Direction::from(plan.attach.hook), status)
    };
    directions.iter().map(status).collect()
}

/// Returns the maps that both directions use, ordered by name.
fn shared_maps(directions: &[LoadedDirection]) -> Vec<SharedMapStatus> {
    let maps = directions
        .first()
        .into_iter()
        .flat_map(|first| &first.plan.maps);
    let status = |map: &MapPlan| SharedMapStatus {
        map: map.name.clone(),
        kind: map.kind_name().unwrap_or("bloom_filter").into(),
        twins: map.private,
    };
    maps.filter(|map| map.common).map(status).collect()
}
