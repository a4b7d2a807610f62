//! The owner of all probes: deploys, replaces, reads and removes probes, one change at a time.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinError;
use twinprobe_api::{ConfigDocument, ProbeStatus, ValidationReport};
use twinprobe_ebpf_common::ProbeCost;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::Verdict;
use twinprobe_faults::crash;
use twinprobe_kernel::Kernel;
use twinprobe_windows::WindowStore;

use crate::engine::conditions::Conditions;
use crate::engine::deploy::admission::check_rules_budget;
use crate::engine::deploy::cause::{ChangeAuthor, DeployCause, Deployed, Occasion};
use crate::engine::deploy::lineage::{Lineage, removal};
use crate::engine::deploy::loaded::LoadedAhead;
use crate::engine::deployer::Deployer;
use crate::engine::error::EngineError;
use crate::engine::events::framing::Framing;
use crate::engine::events::stream::StreamReader;
use crate::engine::pods::options::PodOptions;
use crate::engine::probe::lease::Lease;
use crate::engine::probe::probe::Probe;
use crate::engine::probe::status;
use crate::engine::readings::Readings;
use crate::engine::registry::Registry;
use crate::engine::streaming::Streaming;
use crate::engine::window::delivery::Delivery;
use crate::limits::options::RequestLimits;
use crate::store::Store;
use crate::telemetry::registry::Telemetry;
use twinprobe_access::{Principal, Role, Who};
use twinprobe_compiler::Toolchain;
use twinprobe_config::{ProbeConfig, check_netns};

/// All probes of this daemon, and the parts that work on them.
#[derive(Debug)]
pub struct Engine {
    /// The name of this machine in documents.
    pub node: String,
    pub telemetry: Arc<Telemetry>,
    pub registry: Registry,
    pub deployer: Deployer,
    pub readings: Readings,
    pub streaming: Streaming,
}

impl Engine {
    pub fn new(
        node: String,
        kernel: Arc<Kernel>,
        toolchain: Toolchain,
        store: Store,
        windows: WindowStore,
        limits: RequestLimits,
        pods: PodOptions,
    ) -> io::Result<Arc<Self>> {
        let telemetry = Arc::<Telemetry>::default();
        let readings = Readings::new(windows, &limits)?;
        let streaming = Streaming::new(&limits);
        let deployer = Deployer::new(kernel, toolchain, store, limits, &telemetry, pods);
        let registry = Registry::default();
        Ok(Arc::new(Self {
            node,
            telemetry,
            registry,
            deployer,
            readings,
            streaming,
        }))
    }

    /// Creates the probe, or replaces the probe of the same name between two packets. After an
    /// error nothing has changed.
    pub async fn put(
        self: &Arc<Self>,
        name: &str,
        document: ConfigDocument,
        author: ChangeAuthor,
        when: &Conditions,
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        self.put_ahead(name, document, author, when, None).await
    }

    /// Does the same as [`Self::put`] with a probe that [`Self::load_ahead`] may have loaded.
    pub async fn put_ahead(
        self: &Arc<Self>,
        name: &str,
        document: ConfigDocument,
        author: ChangeAuthor,
        when: &Conditions,
        ahead: Option<Box<LoadedAhead>>,
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        let config = permitted(name, &document, &author.principal)?;
        let turn = self.registry.turns.request(name).await?;
        let old = self.registry.get(name).ok();
        when.check(old.as_ref().map(|old| &old.stored))?;
        if let Some(old) = old.filter(|old| old.runs(&config)) {
            return Ok((
                Deployed::Unchanged,
                self.renew(old, config.expires, turn).await?,
            ));
        }
        let cause = DeployCause::Request {
            author,
            anew: BTreeSet::new(),
        };
        self.deploy(config, document, cause, turn, ahead).await
    }

    /// Does the same as [`Self::put_ahead`], but without a condition. The caller holds the turn of
    /// the probe.
    pub async fn deploy(
        self: &Arc<Self>,
        config: ProbeConfig,
        document: ConfigDocument,
        cause: DeployCause,
        turn: OwnedMutexGuard<()>,
        ahead: Option<Box<LoadedAhead>>,
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        let name = config.name.clone();
        let anew = match &cause {
            DeployCause::Request { anew, .. } => anew.clone(),
            DeployCause::Start(_) => BTreeSet::new(),
        };
        let occasion = cause.occasion();
        if occasion.is_new() {
            self.deployer.ledger.check_sources(&document)?;
        }
        let old = self.registry.get(&name).ok();
        let place = old
            .is_none()
            .then(|| self.deployer.ledger.create(&name, &self.registry.probes))
            .transpose()?;
        let mut loaded = match ahead.filter(|ahead| old.is_none() && ahead.config == config) {
            Some(ahead) => ahead.loaded,
            None => self.deployer.load(&config, occasion, old, anew).await?,
        };
        self.change(move |engine| {
            let (_turn, _place) = (turn, place);
            // An attachment made now would outlive a daemon that must leave nothing behind.
            if engine.registry.detached.load(Ordering::Acquire) {
                return Err(EngineError::Stopping);
            }
            engine.check_budget(&name, &cause, &loaded.cost)?;
            engine.settle_again();
            let old = engine.registry.get(&name).ok();
            let lease = || config.expires.map(Lease::begin);
            let boot_id = &engine.deployer.kernel.host.boot_id;
            let asked = |author, lineage: Lineage| {
                lineage.asked(
                    author,
                    lease(),
                    old.as_ref().map(|old| &old.stored),
                    boot_id,
                )
            };
            let mut lineage = match (cause, &old) {
                (DeployCause::Start(stored), _) => {
                    let lease = Lease::recorded(&stored, boot_id).or_else(lease);
                    Lineage {
                        revision: stored.revision.max(1),
                        lease,
                        ..Lineage::of(&stored)?
                    }
                }
                // Revision numbers continue even if the file with the last number can't be read.
                (DeployCause::Request { author, .. }, Some(old)) => asked(
                    author,
                    Lineage::of(&old.stored)?.next(engine.deployer.store.last_revision(&name)),
                ),
                (DeployCause::Request { author, .. }, None) => asked(author, Lineage::new()?),
            };
            if occasion.is_new() {
                lineage.dropped =
                    engine.find_room(&name, lineage.revision, &document, &mut loaded)?;
            }
            let (revision, pushed_by) = (lineage.revision, lineage.pushed_by.clone());
            let probe = Probe::deploy(engine, config, document, loaded, old.as_deref(), lineage);
            // A replaced or refused probe no longer needs its objects.
            if old.is_some() || probe.is_err() {
                engine.deployer.store.sweep_objects();
            }
            let probe = probe?;
            let status = probe.status();
            engine.insert(Arc::new(probe));
            engine.hand_on_expired(&name);
            engine.watch();
            let deployed = if old.is_some() {
                Deployed::Replaced
            } else {
                Deployed::Created
            };
            tracing::info!(probe = name, revision, pushed_by, ?deployed, "deployed");
            Ok((deployed, status))
        })
        .await?
    }

    /// Refuses a probe that exceeds the budget of rules, if a rule deploys it. Changes are made one
    /// after the other, so that two rules can't both take the rest of the budget.
    fn check_budget(
        &self,
        name: &str,
        cause: &DeployCause,
        cost: &ProbeCost,
    ) -> Result<(), EngineError> {
        if let DeployCause::Request { author, .. } = cause
            && let Who::Rule(_) = &author.principal.who
        {
            let limit = self.deployer.ledger.limits.max_rule_ns_per_packet;
            check_rules_budget(name, cost, &self.registry.list(), limit)?;
        }
        Ok(())
    }

    /// Does `work` on a thread for blocking work, while nothing else changes. The task continues
    /// without its request, so that a client that hangs up leaves no change unfinished.
    pub async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let change = Arc::clone(&self.registry.changes).lock_owned().await;
        let engine = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _change = change;
            let _expedited = engine.deployer.kernel.expedite();
            work(&engine)
        });
        task.await
    }

    /// Loads a probe that does not exist yet and that may be deployed soon, unless `ready` is such
    /// a probe. Attaches nothing.
    pub async fn load_ahead(
        &self,
        name: &str,
        document: &ConfigDocument,
        by: &Principal,
        ready: Option<Box<LoadedAhead>>,
    ) -> Result<Box<LoadedAhead>, EngineError> {
        let config = permitted(name, document, by)?;
        let ready = ready.filter(|ready| ready.config == config);
        if let Some(ready) = self.deployer.still_fitting(ready).await? {
            return Ok(ready);
        }
        self.deployer.ledger.check_sources(document)?;
        let loaded = self
            .deployer
            .load(&config, Occasion::New, None, BTreeSet::new())
            .await?;
        Ok(Box::new(LoadedAhead { config, loaded }))
    }

    /// Compiles and verifies the programs of a probe, and attaches nothing.
    pub async fn validate(
        self: &Arc<Self>,
        name: &str,
        document: &ConfigDocument,
        by: &Principal,
    ) -> Result<ValidationReport, EngineError> {
        self.deployer.ledger.check_sources(document)?;
        let config = permitted(name, document, by)?;
        let loaded = self.deployer.load_for_validation(&config).await?;
        let kernel = Arc::clone(&self.deployer.kernel);
        let report = move || status::validation_report(&config, &loaded, &kernel);
        Ok(tokio::task::spawn_blocking(report).await?)
    }

    pub async fn delete(
        self: &Arc<Self>,
        name: &str,
        author: ChangeAuthor,
        when: &Conditions,
    ) -> Result<(), EngineError> {
        let turn = self.registry.turns.request(name).await?;
        when.check(Some(&self.registry.get(name)?.stored))?;
        let name = name.to_owned();
        self.change(move |engine| {
            let _turn = turn;
            let probe = engine.registry.get(&name)?;
            let entry = removal(&name, &probe.stored, Some(author));
            engine.readings.windows.remove(&name, |windows| {
                engine.deployer.store.remove(entry, windows)
            })?;
            crash::point("forgotten");
            engine.take_out(&probe);
            tracing::info!(probe = name, "removed");
            Ok(())
        })
        .await?
    }

    /// Removes a probe without a record from the list and from the kernel. Its windows stay.
    pub fn take_out(self: &Arc<Self>, probe: &Probe) {
        self.registry.probes.write().remove(&probe.name);
        probe.detach();
        self.registry.disturbed.send_modify(|_| {});
        self.deployer.store.sweep_objects();
        self.telemetry.forget(&probe.name);
        self.watch();
    }

    /// Reads a probe by Algorithm 2 of the paper. Closes the window if a metric requires it. If a
    /// window was closed for a client and no client has received all of it, the reader gets that
    /// window first.
    pub async fn read(self: &Arc<Self>, name: &str) -> Result<Delivery, EngineError> {
        Ok(self
            .readings
            .tracked(self.in_turn(name, Probe::read).await?))
    }

    /// Reads the counts of a probe's open window so far. Removes nothing that other readers need.
    pub async fn peek(self: &Arc<Self>, name: &str) -> Result<Delivery, EngineError> {
        self.in_turn(name, Probe::peek).await
    }

    /// Streams the events of one metric, or of all metrics, from now on.
    pub async fn stream(
        &self,
        name: &str,
        metric: Option<&str>,
        framing: Framing,
    ) -> Result<StreamReader, EngineError> {
        let stopped = |reason: &str| EngineError::NotRunning {
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        let mut closed: Option<Arc<Probe>> = None;
        loop {
            let probe = self.registry.get(name)?;
            if closed.is_some_and(|closed| Arc::ptr_eq(&closed, &probe)) {
                return Err(stopped("the daemon is stopping"));
            }
            let events = probe.events().ok_or_else(|| stopped("see its status"))?;
            match events.stream(metric, framing) {
                Ok(Some(stream)) => return Ok(stream),
                Err(known) => return Err(EngineError::Missing(no_events(name, metric, &known))),
                // The probe was replaced or deleted since the look-up: look again once that change
                // is done.
                Ok(None) => drop(self.registry.changes.lock().await),
            }
            closed = Some(probe);
        }
    }

    /// Removes every probe from the kernel permanently. The configurations stay stored.
    pub async fn detach_all(self: &Arc<Self>) -> Result<(), EngineError> {
        let detached = self.change(|engine| {
            // A daemon may have to stop before it has listed the stored probes: only a known probe
            // can be detached.
            if !engine.registry.listed.load(Ordering::Acquire)
                && let Err(error) = engine.take_over()
            {
                tracing::error!(
                    error = with_causes(&error),
                    "probes can't be listed and stay attached"
                );
                return;
            }
            engine.registry.detached.store(true, Ordering::Release);
            let probes = std::mem::take(&mut *engine.registry.probes.write());
            for probe in probes.values() {
                probe.close_last();
                probe.detach();
            }
            engine.deployer.kernel.unpin();
        });
        Ok(detached.await?)
    }

    pub fn insert(self: &Arc<Self>, probe: Arc<Probe>) {
        let name = probe.name.clone();
        self.readings
            .clock
            .timetable
            .schedule(&probe, &self.readings.windows);
        // Creates the probe's counters, so that /metrics shows them from now on, if only as zeros.
        self.telemetry.probe(&name);
        let leased = Arc::downgrade(&probe);
        self.registry.probes.write().insert(name, probe);
        self.registry.disturbed.send_modify(|_| {});
        // The lease of a probe that was adopted may be over: the task looks for the probe in the
        // list.
        self.watch_lease(leased);
    }
}

/// Validates the configuration. Refuses a configuration that decides about packets, unless `by` may
/// deploy such configurations.
pub fn permitted(
    name: &str,
    document: &ConfigDocument,
    by: &Principal,
) -> Result<ProbeConfig, EngineError> {
    let config = ProbeConfig::validate(name, document)?;
    check_netns(document)?;
    if config
        .directions()
        .any(|(_, direction)| direction.attach.verdict == Verdict::Enforce)
    {
        by.need(Role::Admin)?;
    }
    Ok(config)
}

fn no_events(name: &str, metric: Option<&str>, known: &[String]) -> String {
    match metric.filter(|_| !known.is_empty()) {
        Some(metric) => {
            format!(
                "probe {name} has no event metric {metric}; it has {}",
                known.join(", ")
            )
        }
        None => format!(
            "probe {name} has no event metrics, which are those of a RINGBUF or PERF_EVENT_ARRAY; its \
             other metrics are read as a document"
        ),
    }
}
