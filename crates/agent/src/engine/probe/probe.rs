//! One probe: its configuration, its twins, and the reading of its windows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use twinprobe_api::{CostStatus, LiveCost, ProbeStatus, RevisionWindows, SumStatus, WindowStatus};
use twinprobe_ebpf_common::finding::{Finding, with_causes};
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_ebpf_common::{DocumentOrigin, ProbeCost};
use twinprobe_exporter::Metric;
use twinprobe_kernel::clock::Moment;
use twinprobe_kernel::watch::LinkChanges;
use twinprobe_kernel::{HeldDeployment, Predecessor};
use twinprobe_windows::{ClosedBy, StoredWindow, WindowError, Windows};

use crate::engine::error::EngineError;
use crate::engine::events::probe_events::ProbeEvents;
use crate::engine::placement::Namespace;
use crate::engine::pods::table::NodePods;
use crate::engine::probe::lease::Lease;
use crate::engine::probe::running::Running;
use crate::engine::probe::status::Shown;
use crate::engine::window::delivery::Delivery;
use crate::limits::ledger::Share;
use crate::store::record::StoredProbe;
use crate::telemetry::counters::Counters;
use twinprobe_config::PodSelector;
use twinprobe_config::ProbeConfig;
use twinprobe_config::Schedule;

#[derive(Debug)]
pub struct Probe {
    pub name: String,
    /// The stored record of the probe.
    pub stored: StoredProbe,
    pub origin: Arc<DocumentOrigin>,
    /// The lease, at whose end the probe is removed; `None` if the probe has no end.
    pub lease: Mutex<Option<Lease>>,
    /// The rank of the probe among probes of the same priority; `None` if it was never deployed.
    pub order: Option<u64>,
    pub warnings: Vec<Finding>,
    /// The parts that only a running probe has, in addition to its state; `None` if the probe does
    /// not run.
    pub running: Option<RunningParts>,
    pub windows: Arc<Windows>,
    /// The right to read the probe, which work that takes long holds. Requests wait for it in a
    /// task and not on a thread, because requests for a slow probe must not occupy the threads of
    /// other probes.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    /// The number of values that OpenMetrics answers have left out so far.
    pub skipped: Arc<AtomicU64>,
    /// The status of the sums, as of the last window.
    pub sums: Arc<Mutex<Vec<SumStatus>>>,
    /// The windows of the present configuration.
    pub revision: Arc<Mutex<RevisionWindows>>,
    /// The cost at each interface, as the last measurement has found it.
    pub live: Mutex<Vec<LiveCost>>,
    /// The part of the state that the status shows. Code that holds this lock takes no other lock,
    /// except that of an attachment's health.
    pub shown: Mutex<Shown>,
    pub state: Mutex<ProbeState>,
}

/// The constant parts of a probe that runs, kept apart from the state, which is locked while a
/// window is read.
#[derive(Debug)]
pub struct RunningParts {
    /// The network namespace of the interfaces; `None` for the daemon's own.
    pub namespace: Namespace,
    /// The selector of the pods whose interfaces the probe uses; `None` if the configuration names
    /// interfaces.
    pub pods: Option<PodSelector>,
    /// The event metrics.
    pub events: ProbeEvents,
    /// The share of the kernel that the probe takes.
    pub share: Share,
}

/// The metrics of a probe that have one name: one for each direction that has it.
#[derive(Debug)]
pub struct ExportedMetrics {
    pub metrics: Vec<Arc<Metric>>,
    /// The labels of the configuration.
    pub labels: BTreeMap<String, String>,
    /// The time between two windows; `None` if only requests close them.
    pub interval: Option<Duration>,
}

#[derive(Debug)]
pub enum ProbeState {
    Running(Box<Running>),
    /// A stored probe that this daemon has not deployed. Programs that an earlier daemon left
    /// attached continue until the probe is deployed.
    Failed {
        reason: String,
        held: Option<Box<HeldDeployment>>,
    },
    Gone,
}

impl Probe {
    /// Creates a stored probe that this daemon does not run, or not yet. `held` is the part of the
    /// probe that remains in the kernel.
    pub fn failed(
        name: &str,
        node: &str,
        stored: StoredProbe,
        lease: Option<Lease>,
        reason: String,
        held: Option<HeldDeployment>,
        windows: Arc<Windows>,
    ) -> Self {
        let recorded = stored
            .running
            .as_ref()
            .map(|running| running.deployment.order);
        let order = recorded.or(held.as_ref().map(|held| held.note.order));
        let held = held.map(Box::new);
        Self {
            name: name.to_owned(),
            order,
            origin: stored.origin(node),
            lease: Mutex::new(lease),
            stored,
            warnings: Vec::new(),
            running: None,
            windows,
            turn: Arc::default(),
            skipped: Arc::default(),
            sums: Arc::default(),
            revision: Arc::default(),
            live: Mutex::default(),
            shown: Mutex::new(Shown::failed(&reason, held.as_deref())),
            state: Mutex::new(ProbeState::Failed { reason, held }),
        }
    }

    /// Sets the reason why a probe that does not run could not be deployed.
    pub fn set_reason(&self, new: String) {
        let mut state = self.state.lock();
        if let ProbeState::Failed { reason, held } = &mut *state {
            *self.shown.lock() = Shown::failed(&new, held.as_deref());
            *reason = new;
        }
    }

    /// Tells whether the probe runs with a configuration that has the same meaning as `config`.
    pub fn runs(&self, config: &ProbeConfig) -> bool {
        let own = || ProbeConfig::validate(&self.name, &self.stored.config).ok();
        self.running.is_some() && own().as_ref() == Some(config)
    }

    /// Attaches the probe to the interfaces that exist now, and detaches it from interfaces that
    /// have disappeared.
    pub fn follow(&self, changes: &LinkChanges, pods: &NodePods) {
        if let ProbeState::Running(running) = &mut *self.state.lock() {
            running.follow(changes, pods);
            *self.shown.lock() = Shown::of(running);
        }
    }

    /// Notes whether the lease of the probe `has_ended`. A probe whose lease has ended is detached
    /// everywhere; otherwise the probe is attached to all its interfaces.
    pub fn set_ended(&self, has_ended: bool, pods: &NodePods) {
        if let ProbeState::Running(running) = &mut *self.state.lock()
            && running.has_ended != has_ended
        {
            running.has_ended = has_ended;
            running.follow(&LinkChanges::default(), pods);
            *self.shown.lock() = Shown::of(running);
        }
    }

    /// Returns the state that a replacement can take over.
    pub fn predecessor(&self) -> Option<Predecessor> {
        match &*self.state.lock() {
            ProbeState::Running(running) => Some(running.predecessor()),
            ProbeState::Failed { .. } | ProbeState::Gone => None,
        }
    }

    /// Returns the status without waiting for a reading or a change of the probe.
    pub fn status(&self) -> ProbeStatus {
        ProbeStatus {
            config: Some(self.stored.config.clone()),
            ..self.status_without_config()
        }
    }

    /// Returns the status without the configuration, whose sources and objects may be large.
    pub fn status_without_config(&self) -> ProbeStatus {
        let events = self.events().map(ProbeEvents::status).unwrap_or_default();
        let shown = self.shown.lock().clone();
        let found = shown.found();
        let interfaces = shown.interfaces(&found);
        let mut warnings = self.warnings.clone();
        warnings.extend(shown.warnings(&found));
        let sums = self.sums.lock().clone();
        ProbeStatus {
            name: self.name.clone(),
            state: shown.state.into(),
            reason: shown.reason,
            node: self.origin.node.clone(),
            instance: self.origin.instance.clone(),
            labels: self.origin.labels.clone(),
            expires_at: self.lease.lock().map(Lease::expires_at),
            revision: self.stored.revision,
            created: self.stored.created.clone(),
            pushed_by: self.stored.pushed_by.clone(),
            interfaces,
            programs: shown.programs,
            shared_maps: shown.shared_maps,
            events,
            sums,
            joins: shown.joins,
            cost: self.cost_status(),
            windows: WindowStatus {
                statistics: self.windows.statistics(),
                error: shown.close_error,
                last_reads: Vec::new(),
                revision: None,
            },
            warnings,
            config: None,
        }
    }

    /// Returns the windows of the present configuration; `None` if the probe does not run.
    pub fn revision_windows(&self) -> Option<RevisionWindows> {
        self.running.is_some().then(|| *self.revision.lock())
    }

    /// Returns the cost of the probe, with the last measurement; `None` if the probe does not run
    /// or its cost is not known.
    pub fn cost_status(&self) -> Option<CostStatus> {
        let tried = self.cost().filter(|_| self.running.is_some())?.clone();
        Some(CostStatus {
            tried,
            live: self.live.lock().clone(),
        })
    }

    /// Returns the cost that a trial has found; `None` if an earlier version has deployed the
    /// probe.
    pub fn cost(&self) -> Option<&ProbeCost> {
        self.stored.running.as_ref()?.cost.as_ref()
    }

    /// Returns the serial of the deployment.
    pub fn serial(&self) -> Option<u64> {
        Some(self.stored.running.as_ref()?.deployment.serial)
    }

    /// Notes the cost that was measured at each interface. Places without packets keep their cost.
    pub fn set_live(&self, mut measured: Vec<LiveCost>) {
        let mut live = self.live.lock();
        for new in measured.iter_mut().filter(|new| new.packets == 0) {
            let place =
                |cost: &LiveCost| (cost.interface.clone(), cost.hook.clone(), cost.direction);
            if let Some(known) = live.iter().find(|known| place(known) == place(new)) {
                new.clone_from(known);
            }
        }
        measured.retain(|cost| cost.packets > 0);
        *live = measured;
    }

    /// Returns the event metrics of a running probe.
    pub fn events(&self) -> Option<&ProbeEvents> {
        self.running.as_ref().map(|running| &running.events)
    }

    /// Returns the namespace in which a probe runs.
    pub fn namespace(&self) -> Option<&Namespace> {
        self.running.as_ref().map(|running| &running.namespace)
    }

    /// Returns the selector of the pods whose interfaces the probe uses; `None` if the
    /// configuration names interfaces.
    pub fn pods(&self) -> Option<&PodSelector> {
        self.running
            .as_ref()
            .and_then(|running| running.pods.as_ref())
    }

    pub fn close_events(&self) {
        self.events().into_iter().for_each(ProbeEvents::close);
    }

    /// Closes the last window before the probe is detached: its rows would be lost with the maps.
    pub fn close_last(&self) {
        let closed = self.close_window(ClosedBy::Schedule);
        if let Err(error @ (EngineError::Close(_) | EngineError::Kernel(_))) = closed {
            tracing::error!(
                probe = self.name,
                error = with_causes(&error),
                "the last window is lost"
            );
        }
    }

    /// Closes the last window of a probe that is about to be removed. If no clock closes windows,
    /// the window also contains the live metrics.
    pub fn close_at_end(&self) -> Result<(), EngineError> {
        self.with_running(|running| {
            let by = if running.config.schedule().is_some() {
                ClosedBy::Schedule
            } else {
                ClosedBy::Request
            };
            if running.open.resets() {
                running.close(by)?;
            }
            Ok(())
        })
    }

    pub fn detach(&self) {
        match std::mem::replace(&mut *self.state.lock(), ProbeState::Gone) {
            ProbeState::Running(running) => {
                // Events left in the rings go to the clients that listen. After that, no stream
                // holds the maps open.
                self.close_events();
                running.detach();
            }
            ProbeState::Failed {
                held: Some(held), ..
            } => held.detach(),
            ProbeState::Failed { .. } | ProbeState::Gone => {}
        }
    }

    /// Reads the probe by Algorithm 2 of the paper.
    pub fn read(&self) -> Result<Delivery, EngineError> {
        self.with_running(|running| Ok(running.read()?))
    }

    /// Reads the counts of the open window so far.
    pub fn peek(&self) -> Result<Delivery, EngineError> {
        self.with_running(|running| Ok(running.peek()?))
    }

    /// Returns the shape of the windows.
    pub fn shape(&self) -> Result<WindowShape, EngineError> {
        self.with_running(|running| Ok(running.compose().shape(false)))
    }

    /// Returns the metrics with this name, and the other data on which their samples depend.
    pub fn exported(&self, name: &str) -> Result<ExportedMetrics, EngineError> {
        self.with_running(|running| {
            let own = running
                .open
                .metrics
                .iter()
                .filter(|own| own.is_shown() && own.metric.name == name);
            Ok(ExportedMetrics {
                metrics: own.map(|own| Arc::clone(&own.metric)).collect(),
                labels: running.config.labels.clone(),
                interval: running.config.schedule().map(|schedule| schedule.interval),
            })
        })
    }

    /// Reads the probe for a page about all probes.
    pub fn read_for_page(&self) -> Result<Delivery, EngineError> {
        self.with_running(|running| Ok(running.read_for_page()?))
    }

    /// Closes the open window.
    pub fn close_window(&self, by: ClosedBy) -> Result<Arc<StoredWindow>, EngineError> {
        self.with_running(|running| match running.open.resets() {
            true => Ok(running.close(by)?),
            false => Err(EngineError::NoWindows(self.name.clone())),
        })
    }

    /// Returns the delivery of a retained window.
    pub fn deliver(&self, stored: &StoredWindow) -> Result<Delivery, WindowError> {
        Delivery::of_window(&self.windows, stored, Arc::clone(&self.skipped), None)
    }

    /// Returns the schedule of the windows, the start of the open window, a channel that closes
    /// with the probe, and the counters; `None` if the probe does not run or the clock closes no
    /// windows.
    pub fn schedule(&self) -> Option<(Schedule, Moment, watch::Receiver<()>, Arc<Counters>)> {
        match &*self.state.lock() {
            ProbeState::Running(running) => {
                let counters = Arc::clone(&running.counters);
                Some((
                    running.config.schedule()?,
                    running.open.opened,
                    running.gone.subscribe(),
                    counters,
                ))
            }
            ProbeState::Failed { .. } | ProbeState::Gone => None,
        }
    }

    fn with_running<T>(
        &self,
        action: impl FnOnce(&mut Running) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match &mut *self.state.lock() {
            ProbeState::Running(running) => {
                let done = action(running);
                self.shown
                    .lock()
                    .close_error
                    .clone_from(&running.close_error);
                match done {
                    // The probe is deleted, and about to be taken out of the list.
                    Err(_) if self.windows.is_removed() => Err(EngineError::NotFound {
                        name: self.name.clone(),
                        meant: String::new(),
                    }),
                    done => done,
                }
            }
            ProbeState::Failed { reason, .. } => Err(EngineError::NotRunning {
                name: self.name.clone(),
                reason: reason.clone(),
            }),
            ProbeState::Gone => Err(EngineError::Gone),
        }
    }
}
