//! The owner of all probes: deploys, replaces, reads and removes probes, one change at a time.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::task::{AbortHandle, JoinError};
use twinprobe_client::{ConfigDocument, ProbeStatus, ValidationReport};
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::Verdict;
use twinprobe_kernel::{Kernel, crash};
use twinprobe_windows::WindowStore;

use crate::engine::clock::Clock;
use crate::engine::conditions::Conditions;
use crate::engine::deploy::cause::{Cause, Deployed};
use crate::engine::deploy::history::History;
use crate::engine::deploy::trials::Trials;
use crate::engine::error::EngineError;
use crate::engine::events::framing::Framing;
use crate::engine::events::probe_events::{EventLoop, ProbeEvents};
use crate::engine::events::stream::EventStream;
use crate::engine::events::told::Herald;
use crate::engine::placement::Namespace;
use crate::engine::probe::lease::Lease;
use crate::engine::probe::probe::Probe;
use crate::engine::probe::retained::Expired;
use crate::engine::probe::status;
use crate::engine::turns::Turns;
use crate::engine::window::delivery::Delivery;
use crate::limits::ledger::Ledger;
use crate::limits::options::Limits;
use crate::limits::queue::Queue;
use crate::limits::streams::Streams;
use crate::store::Store;
use crate::store::spool::Spools;
use crate::telemetry::registry::Telemetry;
use twinprobe_compiler::Toolchain;
use twinprobe_config::{ProbeConfig, check_netns};
use twinprobe_serve::{Principal, Role, Who};

/// All probes of this daemon.
#[derive(Debug)]
pub struct Engine {
    /// The name of this machine in documents.
    pub node: String,
    pub kernel: Arc<Kernel>,
    pub toolchain: Arc<Toolchain>,
    pub store: Store,
    pub windows: Arc<WindowStore>,
    pub expired: Expired,
    pub events: EventLoop,
    pub herald: Herald,
    pub streams: Arc<Streams>,
    pub telemetry: Telemetry,
    pub ledger: Arc<Ledger>,
    pub trials: Arc<Trials>,
    pub compilations: Queue,
    pub loads: Queue,
    pub replays: Queue,
    pub clock: Clock,
    /// Every stored probe, running or not, once a start has listed the stored probes.
    probes: RwLock<BTreeMap<String, Arc<Probe>>>,
    /// The tasks that wait for interfaces, one for each namespace that a probe is in.
    pub watches: Mutex<BTreeMap<Namespace, AbortHandle>>,
    /// Set once the task runs that checks attachments.
    pub looks: OnceLock<()>,
    /// The turn of each probe's changes. A change holds the turn from its loading, which reads the state of the present
    /// probe, to its attachment.
    pub turns: Turns,
    /// A lock held while attachments and the registry change.
    pub changes: Arc<tokio::sync::Mutex<()>>,
    /// True if a start has listed the stored probes. Changes only while [`Self::changes`] is held, as does
    /// [`Self::detached`].
    pub listed: AtomicBool,
    /// True if all probes were taken out of the kernel for good.
    detached: AtomicBool,
    /// Wakes the requests that wait for a window or a change: a probe was created, replaced or deleted, or (true) the
    /// daemon stops.
    pub disturbed: watch::Sender<bool>,
}

impl Engine {
    pub fn new(
        node: String,
        kernel: Arc<Kernel>,
        toolchain: Toolchain,
        store: Store,
        windows: WindowStore,
        limits: Limits,
    ) -> io::Result<Arc<Self>> {
        let places = |places: NonZeroUsize| places.get();
        let clock = Clock::start()?;
        Ok(Arc::new(Self {
            node,
            kernel,
            toolchain: Arc::new(toolchain),
            store,
            windows: Arc::new(windows),
            expired: Expired::default(),
            events: EventLoop::default(),
            herald: Herald::default(),
            streams: Streams::new(limits.max_streams),
            trials: Arc::default(),
            telemetry: Telemetry::default(),
            compilations: Queue::new("compilations", "--max-compilations", places(limits.max_compilations)),
            replays: Queue::new("replays", "--max-replays", places(limits.max_replays)),
            loads: Queue::new("loads", "--max-loads", places(limits.max_loads)),
            ledger: Ledger::new(limits),
            clock,
            probes: RwLock::default(),
            watches: Mutex::default(),
            looks: OnceLock::new(),
            turns: Turns::default(),
            changes: Arc::default(),
            listed: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            disturbed: watch::Sender::default(),
        }))
    }

    /// Creates the probe or replaces it between two packets. After an error nothing has changed.
    pub async fn put(
        self: &Arc<Self>,
        name: &str,
        document: ConfigDocument,
        by: &Principal,
        message: Option<String>,
        when: &Conditions,
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        let config = permitted(name, &document, by)?;
        let turn = self.turns.request(name).await?;
        let old = self.get(name).ok();
        when.check(old.as_ref().map(|old| &old.stored))?;
        if let Some(old) = old.filter(|old| old.runs(&config)) {
            return Ok((Deployed::Unchanged, self.renew(old, config.expires, turn).await?));
        }
        self.deploy(config, document, Cause::Request(by.who.clone(), message), turn).await
    }

    /// Does the same as [`Self::put`], in the turn of the probe and without a condition.
    pub async fn deploy(
        self: &Arc<Self>,
        config: ProbeConfig,
        document: ConfigDocument,
        cause: Cause,
        turn: OwnedMutexGuard<()>,
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        let name = config.name.clone();
        let first = matches!(cause, Cause::Request(..));
        if first {
            self.ledger.check_sources(&document)?;
        }
        let old = self.get(&name).ok();
        let place = old.is_none().then(|| self.ledger.create(&name, &self.probes)).transpose()?;
        let mut loaded = self.load(&config, first, old).await?;
        self.change(move |engine| {
            let (_turn, _place) = (turn, place);
            // An attachment made now would outlive a daemon that is to leave nothing behind.
            if engine.detached.load(Ordering::Acquire) {
                return Err(EngineError::Stopping);
            }
            engine.settle_again();
            let old = engine.get(&name).ok();
            let lease = || config.expires.map(Lease::begin);
            let pushed = |who: Who, message, history| History {
                pushed_by: Some(who.to_string()),
                message,
                lease: lease(),
                ..history
            };
            let mut history = match (cause, &old) {
                (Cause::Start(stored), _) => {
                    let lease = Lease::recorded(&stored, &engine.kernel.host.boot_id).or_else(lease);
                    History { revision: stored.revision.max(1), lease, ..History::of(&stored)? }
                }
                // Revision numbers go on even if the file with the last number can't be read.
                (Cause::Request(who, message), Some(old)) => {
                    pushed(who, message, History::of(&old.stored)?.next(engine.store.last_revision(&name)))
                }
                (Cause::Request(who, message), None) => pushed(who, message, History::new()?),
            };
            if first {
                history.dropped = engine.find_room(&name, history.revision, &document, &mut loaded)?;
            }
            let (revision, pushed_by) = (history.revision, history.pushed_by.clone());
            let probe = Probe::deploy(engine, config, document, loaded, old.as_deref(), history);
            // Objects are without use once they are replaced, or if their probe was refused, but not after a creation.
            if old.is_some() || probe.is_err() {
                engine.store.sweep_objects();
            }
            let probe = probe?;
            let status = probe.status();
            engine.insert(Arc::new(probe));
            engine.hand_on_expired(&name);
            engine.watch();
            let deployed = if old.is_some() { Deployed::Replaced } else { Deployed::Created };
            tracing::info!(probe = name, revision, pushed_by, ?deployed, "deployed");
            Ok((deployed, status))
        })
        .await?
    }

    /// Does `work` on a thread for blocking work while nothing else changes. The task outlives its request: a client
    /// that hangs up leaves no change half done.
    pub async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let change = Arc::clone(&self.changes).lock_owned().await;
        let engine = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _change = change;
            let _expedited = engine.kernel.expedite();
            work(&engine)
        });
        task.await
    }

    /// Compiles and verifies, attaches nothing.
    pub async fn validate(
        self: &Arc<Self>,
        name: &str,
        document: &ConfigDocument,
        by: &Principal,
    ) -> Result<ValidationReport, EngineError> {
        self.ledger.check_sources(document)?;
        let config = permitted(name, document, by)?;
        let loaded = self.load_for_validation(&config).await?;
        Ok(status::validation_report(&config, &loaded))
    }

    /// The place for files of what is too large for the memory.
    pub fn spools(&self) -> Spools {
        self.store.spools(self.ledger.limits.keep_free_bytes)
    }

    pub async fn delete(self: &Arc<Self>, name: &str, when: &Conditions) -> Result<(), EngineError> {
        let turn = self.turns.request(name).await?;
        when.check(Some(&self.get(name)?.stored))?;
        let name = name.to_owned();
        self.change(move |engine| {
            let _turn = turn;
            let probe = engine.get(&name)?;
            engine.windows.remove(&name, |windows| engine.store.remove(&name, windows))?;
            crash::point("forgotten");
            engine.take_out(&probe);
            tracing::info!(probe = name, "removed");
            Ok(())
        })
        .await?
    }

    /// Takes a probe without a record out of the list and out of the kernel. Its windows stay.
    pub fn take_out(self: &Arc<Self>, probe: &Probe) {
        self.probes.write().remove(&probe.name);
        probe.detach();
        self.disturbed.send_modify(|_| {});
        self.store.sweep_objects();
        self.telemetry.forget(&probe.name);
        self.watch();
    }

    /// Reads a probe by Algorithm 2 of the paper: closes the window if a metric asks for it. A window that was closed
    /// for a client, and that no client has taken to its end, is given again first.
    pub async fn read(self: &Arc<Self>, name: &str) -> Result<Delivery, EngineError> {
        Ok(self.tracked(self.in_turn(name, Probe::read).await?))
    }

    /// Streams the events of one metric, or of all metrics, from now on.
    pub async fn stream(
        &self,
        name: &str,
        metric: Option<&str>,
        framing: Framing,
    ) -> Result<EventStream, EngineError> {
        let stopped =
            |reason: &str| EngineError::NotRunning { name: name.to_owned(), reason: reason.to_owned() };
        let mut closed: Option<Arc<Probe>> = None;
        loop {
            let probe = self.get(name)?;
            if closed.is_some_and(|closed| Arc::ptr_eq(&closed, &probe)) {
                return Err(stopped("the daemon is stopping"));
            }
            let events = probe.events.as_ref().ok_or_else(|| stopped("see its status"))?;
            match events.stream(metric, framing) {
                Ok(Some(stream)) => return Ok(stream),
                Err(known) => return Err(EngineError::Missing(no_events(name, metric, &known))),
                // The probe was replaced or deleted since the look-up: look again once that change is done.
                Ok(None) => drop(self.changes.lock().await),
            }
            closed = Some(probe);
        }
    }

    /// Ends all event streams and all waiting for windows. No stream and no waiting begins from now on.
    pub fn end_streams(&self) {
        self.disturbed.send_replace(true);
        for probe in self.list() {
            probe.events.iter().for_each(ProbeEvents::end);
        }
    }

    pub fn get(&self, name: &str) -> Result<Arc<Probe>, EngineError> {
        let probes = self.probes.read();
        probes.get(name).cloned().ok_or_else(|| EngineError::NotFound(name.to_owned()))
    }

    /// Returns all probes, ordered by name.
    pub fn list(&self) -> Vec<Arc<Probe>> {
        self.probes.read().values().cloned().collect()
    }

    /// Takes every probe out of the kernel for good; the configurations stay stored.
    pub async fn detach_all(self: &Arc<Self>) -> Result<(), EngineError> {
        let detached = self.change(|engine| {
            // A daemon may be told to stop before it has listed the stored probes: only a known probe can be detached.
            if !engine.listed.load(Ordering::Acquire)
                && let Err(error) = engine.take_over()
            {
                tracing::error!(error = with_causes(&error), "probes can't be listed and stay attached");
                return;
            }
            engine.detached.store(true, Ordering::Release);
            let probes = std::mem::take(&mut *engine.probes.write());
            for probe in probes.values() {
                probe.close_last();
                probe.detach();
            }
            engine.kernel.unpin();
        });
        Ok(detached.await?)
    }

    pub fn insert(self: &Arc<Self>, probe: Arc<Probe>) {
        let name = probe.name.clone();
        self.clock.timetable.schedule(&probe, &self.windows);
        // Creates the probe's counters, so that /metrics shows them from now on, if only as zeros.
        self.telemetry.probe(&name);
        let leased = Arc::downgrade(&probe);
        self.probes.write().insert(name, probe);
        self.disturbed.send_modify(|_| {});
        // The lease of a probe that was adopted may be over: the task looks for the probe in the list.
        self.watch_lease(leased);
    }
}

/// Validates the configuration, and refuses one that decides about packets unless `by` may do that.
pub fn permitted(name: &str, document: &ConfigDocument, by: &Principal) -> Result<ProbeConfig, EngineError> {
    let config = ProbeConfig::validate(name, document)?;
    check_netns(document)?;
    if config.directions().any(|(_, direction)| direction.attach.verdict == Verdict::Enforce) {
        by.need(Role::Admin)?;
    }
    Ok(config)
}

fn no_events(name: &str, metric: Option<&str>, known: &[String]) -> String {
    match metric.filter(|_| !known.is_empty()) {
        Some(metric) => format!("probe {name} has no event metric {metric}; it has {}", known.join(", ")),
        None => format!(
            "probe {name} has no event metrics, which are those of a RINGBUF or PERF_EVENT_ARRAY; its \
             other metrics are read as a document"
        ),
    }
}
