//! The step from loaded to running: a probe is attached as a new one, replaces another probe, or is
//! adopted while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::{ProbeCost, TableLayout};
use twinprobe_faults::crash;
use twinprobe_kernel::clock::Moment;
use twinprobe_kernel::{Deployable, Identity, Loss, ReplacedDeployment};

use crate::engine::deploy::lineage::{self, Lineage};
use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::events::probe_events::ProbeEvents;
use crate::engine::placement::{WantedInterfaces, refused, wanted};
use crate::engine::probe::exactness::fitting;
use crate::engine::probe::lease::Lease;
use crate::engine::probe::probe::{Probe, ProbeState, RunningParts};
use crate::engine::probe::running::Running;
use crate::engine::probe::status::Shown;
use crate::engine::reading::base::begin;
use crate::engine::reading::open::OpenWindow;
use crate::limits::ledger::Share;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::pending::PendingRecord;
use crate::store::record::{StoredDeployment, StoredProbe};
use twinprobe_config::ProbeConfig;

impl Probe {
    /// Attaches a loaded probe, in the place of `old` if `old` runs, and makes the new
    /// configuration the stored one.
    pub fn deploy(
        engine: &Engine,
        config: ProbeConfig,
        document: ConfigDocument,
        mut loaded: LoadedProbe,
        old: Option<&Self>,
        lineage: Lineage,
    ) -> Result<Self, EngineError> {
        // The list is made only here: the watch reports interfaces that appear later, after this
        // change.
        let WantedInterfaces {
            interfaces,
            mut pending,
            unlisted,
        } = wanted(&config.places, loaded.occasion, &engine.deployer.pods)?;
        let (interfaces, left) = fitting(interfaces, &loaded.directions)?;
        pending.extend(left);
        let codes = loaded
            .directions
            .iter()
            .map(|loaded| (loaded.plan.direction(), loaded.plan.code.clone()));
        let codes: BTreeMap<&str, String> = codes.collect();
        let warning = |(direction, message): &Loss| {
            Finding::new(Stage::Load, codes[direction].clone(), message)
        };
        let mut old_state = old.map(|old| old.state.lock());
        let mut warnings = Vec::new();
        if let Some(ProbeState::Running(running)) = old_state.as_deref_mut() {
            running.finish()?;
            warnings = running.close_before(&loaded.metrics, &loaded.directions)?;
        }
        let (running, replaces) = match old_state.as_deref() {
            Some(ProbeState::Running(running)) => (
                Some(&**running),
                ReplacedDeployment::Attached(&running.open.attached),
            ),
            Some(ProbeState::Failed {
                held: Some(held), ..
            }) => (None, ReplacedDeployment::Held(held)),
            _ => (None, ReplacedDeployment::Nothing),
        };
        if let Some(old) = running {
            loaded.follow(&engine.deployer.kernel, old)?;
        }
        let mut readers = std::mem::take(&mut loaded.metrics);
        let events = ProbeEvents::open(&config, &loaded.directions, &engine.streaming.event_loop)?;
        let name = config.name.clone();
        let windows = engine.readings.windows.of(&name);
        let (first, order) = (windows.last_seq() + 1, old.and_then(|old| old.order));
        let identity = Identity {
            probe: &name,
            netns: config.places.netns(),
        };
        let more_known =
            |direction: &'static str, map: &str, layout: &TableLayout, rows| match running {
                Some(old) => old.open.with_more(direction, map, layout, rows),
                None => rows,
            };
        let (kernel, directions, attached) = (
            &engine.deployer.kernel,
            loaded.directions,
            replaces.attached(),
        );
        let deployable = Deployable::new(
            &kernel.host,
            identity,
            directions,
            attached,
            first,
            order,
            &more_known,
        )?;
        warnings.extend(deployable.losses().iter().map(&warning));
        let serial = deployable.record().serial;
        let begun = begin(
            &mut readers,
            &deployable,
            running.map(|old| &old.open),
            lineage.before,
            lineage.replaces,
            &windows,
        );
        let prepared = begun.map_err(EngineError::from).and_then(|awaited| {
            crash::point("saved");
            let (objects, cost) = (&loaded.objects, loaded.cost);
            let prepared = prepare(
                &engine.deployer.store,
                &name,
                lineage,
                document,
                objects,
                cost,
                &deployable,
            );
            Ok((awaited, prepared?))
        });
        let (awaited, (stored, commit)) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                deployable.discard();
                windows.forget_baseline(serial);
                return Err(error);
            }
        };
        crash::point("prepared");
        let attached = deployable.attach(&interfaces, replaces);
        let (attached, failed) = attached.inspect_err(|_| windows.forget_baseline(serial))?;
        if replaces.attached().is_none() {
            attached.epoch.set_opened(Moment::now());
        }
        pending.extend(refused(failed));
        warnings.extend(attached.fallbacks().into_iter().map(|(direction, reason)| {
            Finding::new(
                Stage::Attach,
                &attached.directions[direction].plan.code,
                reason,
            )
        }));
        // The probe's file decides which deployment runs after a crash: before the commit the old
        // one, after it the new one.
        crash::point("switched");
        if let Err(error) = commit.commit() {
            attached.undo(replaces);
            windows.forget_baseline(serial);
            return Err(error.into());
        }
        crash::point("committed");
        let counters = engine.telemetry.probe(&name);
        let open = OpenWindow::new(attached, readers, awaited, windows);
        let mut running = Running::new(config, stored.origin(&engine.node), open, counters);
        match old_state
            .as_deref_mut()
            .map(|state| std::mem::replace(state, ProbeState::Gone))
        {
            Some(ProbeState::Running(old)) => {
                warnings.extend(running.succeed(*old).iter().map(&warning));
            }
            state => {
                running.resume();
                if let Some(ProbeState::Failed {
                    held: Some(held), ..
                }) = state
                {
                    held.retire(&running.open.attached);
                }
            }
        }
        if let Some(old) = old {
            old.close_events();
        }
        running.pods = Arc::clone(&engine.deployer.pods.names);
        running.set_pending(pending, unlisted);
        let lease = Lease::recorded(&stored, &engine.deployer.kernel.host.boot_id);
        warnings.splice(0..0, loaded.warnings);
        Ok(Self::running(
            stored,
            lease,
            warnings,
            events,
            running,
            loaded.share,
        ))
    }

    /// Continues with the windows of an adopted probe, once the dispatchers call the right
    /// programs.
    pub fn resume(&self) {
        if let ProbeState::Running(running) = &mut *self.state.lock() {
            running.resume();
            // The reason for a failure has been logged; the next reading tries again.
            let _ = running.finish_window();
            self.shown
                .lock()
                .close_error
                .clone_from(&running.close_error);
        }
    }

    pub fn running(
        stored: StoredProbe,
        lease: Option<Lease>,
        warnings: Vec<Finding>,
        events: ProbeEvents,
        running: Running,
        share: Share,
    ) -> Self {
        let (namespace, pods) = (
            running.config.places.netns.clone(),
            running.config.places.pods().cloned(),
        );
        running.refresh_exactness_after_a_change();
        Self {
            name: running.config.name.clone(),
            order: stored
                .running
                .as_ref()
                .map(|running| running.deployment.order),
            stored,
            origin: Arc::clone(&running.origin),
            lease: Mutex::new(lease),
            warnings,
            running: Some(RunningParts {
                namespace,
                pods,
                events,
                share,
            }),
            windows: Arc::clone(&running.open.windows),
            turn: Arc::default(),
            skipped: Arc::clone(&running.skipped),
            sums: Arc::clone(&running.open.sums),
            revision: Arc::clone(&running.open.revision),
            live: Mutex::default(),
            shown: Mutex::new(Shown::of(&running)),
            state: Mutex::new(ProbeState::Running(Box::new(running))),
        }
    }
}

/// Writes the facts to disk that a later daemon needs to adopt the deployment.
fn prepare<'a>(
    store: &'a Store,
    name: &str,
    lineage: Lineage,
    config: ConfigDocument,
    objects: &BTreeMap<&'static str, Vec<u8>>,
    cost: ProbeCost,
    deployable: &Deployable,
) -> Result<(StoredProbe, PendingRecord<'a>), StoreError> {
    let keep = |(direction, elf): (&&'static str, &Vec<u8>)| {
        Ok((String::from(*direction), store.keep_object(elf)?))
    };
    let objects = objects
        .iter()
        .map(keep)
        .collect::<Result<_, StoreError>>()?;
    let change = lineage::deployment(name, &lineage, &cost);
    let (deployment, cost) = (deployable.record().clone(), Some(cost));
    let running = Some(StoredDeployment {
        deployment,
        objects,
        cost,
    });
    let Lineage {
        revision,
        created,
        instance,
        lease,
        pushed_by,
        author,
        dropped,
        ..
    } = lineage;
    let lease = lease.map(|lease| lease.stored(&deployable.record().boot_id));
    let stored = StoredProbe {
        revision,
        created,
        instance: Some(instance),
        pushed_by,
        config,
        lease,
        running,
    };
    let mut pending = store.prepare(name, &stored, author.and_then(|author| author.message))?;
    (pending.dropped, pending.change) = (dropped, change);
    Ok((stored, pending))
}
