//! The restoring after a start: the daemon adopts the probes that an earlier daemon left running,
//! and deploys the stored probes that do not run any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::finding::{Finding, Rejection, with_causes};
use twinprobe_faults::crash;
use twinprobe_kernel::{
    Attached, Footprint, HeldDeployment, Identity, KernelFacts, LoadedDirection,
};

use crate::engine::deploy::cause::{DeployCause, Occasion};
use crate::engine::deploy::lineage::EarlierSerial;
use crate::engine::deploy::loaded::planned;
use crate::engine::engine::Engine;
use crate::engine::error::{EngineError, describe};
use crate::engine::events::probe_events::ProbeEvents;
use crate::engine::placement::{WantedInterfaces, refused, wanted};
use crate::engine::probe::exactness::fitting;
use crate::engine::probe::lease::Lease;
use crate::engine::probe::probe::Probe;
use crate::engine::probe::running::Running;
use crate::engine::reading::metric::readers;
use crate::engine::reading::open::OpenWindow;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::format::Unread;
use crate::store::record::{StoredDeployment, StoredProbe};
use twinprobe_config::ProbeConfig;

/// The reason why a stored probe is not adopted.
enum NotAdopted {
    /// The daemon must deploy the probe again.
    Anew(String),
    /// The file or an object of the probe can't be read now: its counts stay for a daemon that can
    /// read them.
    Unreadable(String),
}

impl From<String> for NotAdopted {
    fn from(reason: String) -> Self {
        Self::Anew(reason)
    }
}

impl Engine {
    /// Makes the kernel run the probes of the state directory. If a probe can't be deployed now, it
    /// stays listed with the reason, and its running programs continue.
    pub async fn restore(self: &Arc<Self>) -> Result<(), EngineError> {
        for (name, stored) in self.change(Self::take_over).await?? {
            if let Err(error) = self.deploy_stored(&name, stored).await {
                let reason = describe(&error);
                tracing::error!(
                    probe = name,
                    reason,
                    "a stored probe can't be deployed: it becomes failed"
                );
                if let Ok(probe) = self.registry.get(&name) {
                    probe.set_reason(reason);
                }
            }
        }
        Ok(())
    }

    async fn deploy_stored(
        self: &Arc<Self>,
        name: &str,
        stored: StoredProbe,
    ) -> Result<(), EngineError> {
        let document = stored.config.clone();
        let config = ProbeConfig::validate(name, &document)?;
        let turn = self.registry.turns.take(name).await;
        // The task that ends the lease removes the probe.
        if self
            .registry
            .get(name)?
            .lease()
            .is_some_and(|lease| lease.left().is_zero())
        {
            return Ok(());
        }
        self.deploy(
            config,
            document,
            DeployCause::Start(Box::new(stored)),
            turn,
            None,
        )
        .await
        .map(drop)
    }

    /// Lists every stored probe, with its running programs, and returns the probes that must be
    /// deployed again. Removes nothing of a stored probe.
    pub fn take_over(self: &Arc<Self>) -> Result<Vec<(String, StoredProbe)>, StoreError> {
        let stored = self.deployer.store.load()?;
        for (_, stored) in &stored {
            if let Ok(StoredProbe {
                running: Some(running),
                ..
            }) = stored
            {
                self.deployer
                    .kernel
                    .host
                    .skip_serials(running.deployment.serial);
            }
        }
        let mut serials = Vec::new();
        let (mut adopted, mut others) = (Vec::new(), Vec::new());
        for (name, stored) in stored {
            let (stored, cause) = match stored {
                Ok(stored) => match self.adopt(&name, &stored) {
                    Ok(probe) => {
                        tracing::info!(probe = name, "a running probe was adopted");
                        serials.extend(
                            stored
                                .running
                                .iter()
                                .map(|running| running.deployment.serial),
                        );
                        adopted.push(Arc::new(probe));
                        continue;
                    }
                    Err(cause) => (Some(stored), cause),
                },
                Err(Unread(reason)) => (None, NotAdopted::Unreadable(reason)),
            };
            others.push((name, stored, cause));
        }
        let mut anew = Vec::new();
        for (name, stored, cause) in others {
            let running = stored.as_ref().and_then(|stored| stored.running.as_ref());
            let serial = running.map(|running| running.deployment.serial);
            // A new deployment takes the place of attached programs only. An unreadable probe keeps
            // its deployment, attached or not.
            let attached = matches!(cause, NotAdopted::Anew(_));
            let held = HeldDeployment::find(&self.deployer.kernel.host, &name, serial, attached);
            serials.extend(held.as_ref().map(|held| held.owner.0));
            let reason = match cause {
                NotAdopted::Anew(reason) => {
                    tracing::info!(
                        probe = name,
                        reason,
                        "a probe can't be adopted; the daemon deploys it again"
                    );
                    anew.extend(stored.clone().map(|stored| (name.clone(), stored)));
                    format!("the daemon deploys it again soon: {reason}")
                }
                NotAdopted::Unreadable(reason) => {
                    tracing::error!(
                        probe = name,
                        reason,
                        "a stored probe can't be read; its programs continue"
                    );
                    reason
                }
            };
            let stored = stored.unwrap_or_else(|| StoredProbe {
                revision: 0,
                created: String::new(),
                instance: None,
                pushed_by: None,
                config: ConfigDocument::default(),
                lease: None,
                running: None,
            });
            let lease = Lease::recorded(&stored, &self.deployer.kernel.host.boot_id);
            let windows = self.readings.windows.of(&name);
            self.insert(Arc::new(Probe::failed(
                &name, &self.node, stored, lease, reason, held, windows,
            )));
        }
        crash::pause("claimed");
        self.deployer.kernel.settle(
            &serials,
            adopted.iter().any(|probe| probe.shown.lock().is_unsure()),
        );
        // Probes resume after the kernel has settled: a dispatcher that was half switched may have
        // called programs that follow other twins.
        for probe in adopted {
            probe.resume();
            self.insert(probe);
        }
        self.restore_expired()?;
        self.deployer.store.sweep_objects();
        self.watch();
        self.registry.listed.store(true, Ordering::Release);
        Ok(anew)
    }

    /// Creates the probe that an earlier daemon deployed and that still runs. No window of the
    /// probe is closed before [`Probe::resume`].
    fn adopt(&self, name: &str, stored: &StoredProbe) -> Result<Probe, NotAdopted> {
        let running = stored
            .running
            .as_ref()
            .ok_or_else(|| "it was not running".to_owned())?;
        let config =
            ProbeConfig::validate(name, &stored.config).map_err(|error| describe(&error.into()))?;
        let failed = |error: EngineError| describe(&error);
        let (directions, warnings, footprint) = self.open_directions(&config, running)?;
        let WantedInterfaces {
            interfaces,
            mut pending,
            unlisted,
        } = wanted(&config.places, Occasion::Restored, &self.deployer.pods)
            .map_err(|rejection| failed(rejection.into()))?;
        let (interfaces, left) =
            fitting(interfaces, &directions).map_err(|rejection| failed(rejection.into()))?;
        pending.extend(left);
        // Every step that can fail comes before the first slot is claimed: a claimed slot is called
        // from then on.
        let readers =
            readers(&config, &directions).map_err(|rejection| failed(rejection.into()))?;
        let events = ProbeEvents::open(&config, &directions, &self.streaming.event_loop)
            .map_err(|error| failed(error.into()))?;
        let identity = Identity {
            probe: name,
            netns: config.places.netns(),
        };
        let (attached, failed) = Attached::adopt(
            &self.deployer.kernel.host,
            identity,
            running.deployment.clone(),
            directions,
            &interfaces,
        )?;
        pending.extend(refused(failed));
        let awaited = Some(EarlierSerial(Some(attached.record.serial)));
        let (windows, counters) = (self.readings.windows.of(name), self.telemetry.probe(name));
        let mut running = Running::new(
            config,
            stored.origin(&self.node),
            OpenWindow::new(attached, readers, awaited, windows),
            counters,
        );
        running.pods = Arc::clone(&self.deployer.pods.names);
        running.set_pending(pending, unlisted);
        let share = self.deployer.ledger.take_stored(&footprint);
        let lease = Lease::recorded(stored, &self.deployer.kernel.host.boot_id);
        Ok(Probe::running(
            stored.clone(),
            lease,
            warnings,
            events,
            running,
            share,
        ))
    }

    /// Opens the directions that an earlier daemon has loaded. Returns them with the warnings of
    /// their plan, and with the share of the kernel that they take.
    fn open_directions(
        &self,
        config: &ProbeConfig,
        running: &StoredDeployment,
    ) -> Result<(Vec<LoadedDirection>, Vec<Finding>, Footprint), NotAdopted> {
        let (kernel, store) = (&self.deployer.kernel, &self.deployer.store);
        let elfs = config
            .directions()
            .map(|(direction, _)| object(store, &running.objects, direction.name()));
        let elfs = elfs.collect::<Result<Vec<_>, _>>()?;
        let none = BTreeSet::new();
        let elfs: Vec<&[u8]> = elfs.iter().map(|elf| &elf[..]).collect();
        let common = running.deployment.common_maps();
        // The programs were accepted when they were loaded; the record says for which packets.
        let facts = KernelFacts {
            xdp_frags: true,
            ..kernel.facts()
        };
        let (plan, parsed, findings) = planned(config, &none, &elfs, &common, facts);
        if !findings.is_empty() {
            return Err(describe(&Rejection::from(findings).into()).into());
        }
        let footprint = Footprint::of(&plan, &parsed, kernel.facts());
        let open = |(plan, object)| kernel.open_direction(plan, object, &running.deployment);
        let directions = plan
            .directions
            .into_iter()
            .zip(&parsed)
            .map(open)
            .collect::<Result<Vec<_>, _>>()?;
        Ok((directions, plan.warnings, footprint))
    }
}

fn object(
    store: &Store,
    objects: &BTreeMap<String, String>,
    direction: &str,
) -> Result<Vec<u8>, NotAdopted> {
    let digest = objects
        .get(direction)
        .ok_or_else(|| format!("the {direction} object is not recorded"))?;
    match store.object(digest) {
        Ok(Some(elf)) => Ok(elf),
        Ok(None) => Err(format!("object {digest} is missing or damaged").into()),
        Err(error) => Err(NotAdopted::Unreadable(with_causes(&error))),
    }
}
