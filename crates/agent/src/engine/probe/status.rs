//! The status of a probe, and the report on a configuration that was validated, as the API shows them.

use std::collections::BTreeMap;

use twinprobe_client::{
    AttachmentStatus, EventStatus, MetricReport, ProbeStatus, ProgramStatus, ValidationReport, WindowStatus,
    Word,
};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::window::Statistics;
use twinprobe_kernel::{AttachedAt, Health, Held, LoadedDirection};

use crate::config::probe::ProbeConfig;
use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::placement::placement::Pending;
use crate::engine::probe::running::Running;
use crate::engine::time::timestamp;
use crate::store::record::StoredProbe;
use crate::telemetry::page::AttachmentFacts;

/// The part of the state that the status shows, kept apart from the state, which is locked while a window is read.
#[derive(Clone, Debug)]
pub struct Shown {
    state: &'static str,
    reason: Option<String>,
    /// The attachments, each with its own health.
    places: Vec<AttachedAt>,
    pending: Vec<Pending>,
    /// The reason why the interfaces can't be listed.
    unlisted: Option<String>,
    /// The hooks of the probe's directions.
    hooks: Vec<Hook>,
    programs: BTreeMap<Direction, ProgramStatus>,
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
            hooks: attached.directions().iter().map(|loaded| loaded.plan.attach.hook).collect(),
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
                state: if health.mode.is_some() { "attached" } else { "pending" }.into(),
                reason: reason_of(&health).or_else(|| self.unlisted.clone()),
                ifindex: Some(place.ifindex),
                direction: Some(direction(place.hook)),
                hook: Some(place.hook.kind().section().into()),
                mode: health.mode.map(Word::Borrowed),
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
        });
        attachments.chain(pending).collect()
    }
}

/// Describes when somebody removed an attachment, and whether it could be made again.
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

/// The status of a probe, without its sums.
pub fn probe_status(
    name: &str,
    stored: &StoredProbe,
    warnings: &[Finding],
    shown: Shown,
    windows: Statistics,
    events: Vec<EventStatus>,
) -> ProbeStatus {
    let interfaces = shown.interfaces();
    let Shown { state, reason, programs, trouble, .. } = shown;
    ProbeStatus {
        name: name.to_owned(),
        state: state.into(),
        reason,
        revision: stored.revision,
        created: stored.created.clone(),
        pushed_by: stored.pushed_by.clone(),
        interfaces,
        programs,
        events,
        sums: Vec::new(),
        windows: WindowStatus { statistics: windows, error: trouble },
        warnings: warnings.to_vec(),
        config: Some(stored.config.clone()),
    }
}

pub fn validation_report(config: &ProbeConfig, loaded: &LoadedProbe) -> ValidationReport {
    let metrics = loaded.directions.iter().map(|loaded| {
        let reports = loaded.plan.metrics.iter().map(|metric| MetricReport {
            name: metric.request.name.clone(),
            map: metric.request.map.clone(),
            kind: metric.kind_name().into(),
        });
        (direction(loaded.plan.attach.hook), reports.collect())
    });
    ValidationReport {
        valid: true,
        interfaces: config.interfaces().to_vec(),
        programs: programs(&loaded.directions),
        metrics: metrics.collect(),
        warnings: loaded.warnings.clone(),
    }
}

fn programs(directions: &[LoadedDirection]) -> BTreeMap<Direction, ProgramStatus> {
    directions
        .iter()
        .map(|loaded| {
            let (entry, twins) = (loaded.plan.entry.clone(), loaded.plan.has_twins());
            (direction(loaded.plan.attach.hook), ProgramStatus { entry, twins })
        })
        .collect()
}

const fn direction(hook: Hook) -> Direction {
    match hook {
        Hook::Xdp | Hook::TcIngress => Direction::Ingress,
        Hook::TcEgress => Direction::Egress,
    }
}
