//! The following of interfaces: when an interface appears, the probes that name it are attached to
//! it. When it disappears, these probes wait for it.

use std::sync::Arc;
use std::time::Duration;

use twinprobe_api::ProbeStatus;
use twinprobe_kernel::watch::{LinkChanges, NamespaceChange, PlaceWatch};

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::placement::Namespace;
use crate::engine::probe::probe::Probe;

/// The pause before a failed attachment is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// The interval of the check that attachments still exist: the kernel does not report the removal
/// of a BPF link.
const LOOK: Duration = Duration::from_secs(2);

impl Engine {
    /// Starts to watch the interfaces of every probe's namespace, and stops this in namespaces
    /// without probes.
    pub fn watch(self: &Arc<Self>) {
        let mut used: Vec<Namespace> = self
            .registry
            .list()
            .iter()
            .filter_map(|probe| probe.namespace().cloned())
            .collect();
        used.sort();
        used.dedup();
        self.registry.looks.get_or_init(|| {
            self.look_after();
            self.follow_pods();
        });
        self.deployer.pods.stirred.notify_one();
        let mut watches = self.registry.watches.lock();
        watches.retain(|namespace, task| {
            let keep = used.contains(namespace);
            if !keep {
                task.abort();
            }
            keep
        });
        for namespace in used {
            let task = || {
                let engine = Arc::downgrade(self);
                let namespace = namespace.clone();
                tokio::spawn(async move {
                    let mut watch = PlaceWatch::new(namespace.as_deref()).await;
                    // One look at the start finds the changes from before the watch began.
                    let mut event = Some(NamespaceChange::Namespace);
                    loop {
                        let Some(engine) = engine.upgrade() else {
                            return;
                        };
                        let changes = match event {
                            Some(NamespaceChange::Links(changes)) => changes,
                            Some(NamespaceChange::Namespace) => LinkChanges::unknown(),
                            None => LinkChanges::default(),
                        };
                        if changes.links || engine.registry.is_waiting(&namespace) {
                            engine.follow(namespace.clone(), changes).await;
                        } else if changes.filters {
                            engine.look().await;
                        }
                        drop(engine);
                        event = tokio::time::timeout(AGAIN, watch.changed()).await.ok();
                    }
                })
                .abort_handle()
            };
            watches.entry(namespace.clone()).or_insert_with(task);
        }
    }

    /// Attaches and detaches the probes of a namespace according to its present interfaces.
    async fn follow(self: &Arc<Self>, namespace: Namespace, changes: LinkChanges) {
        let followed = self.change(move |engine| {
            if changes.links && namespace.is_none() {
                engine.look_for_pods_now();
            }
            for probe in engine
                .registry
                .list()
                .iter()
                .filter(|probe| probe.namespace() == Some(&namespace))
            {
                probe.follow(&changes, &engine.deployer.pods);
            }
            engine.settle_again();
        });
        if let Err(error) = followed.await {
            tracing::error!(%error, "probes could not follow a change of their interfaces");
        }
    }

    /// Starts the task that checks at intervals of [`LOOK`] whether attachments still exist.
    fn look_after(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                engine.look().await;
            }
        });
    }

    async fn look(self: &Arc<Self>) {
        let kernel = Arc::clone(&self.deployer.kernel);
        let probes = self.registry.list();
        let looked = tokio::task::spawn_blocking(move || {
            kernel.look();
            // Somebody may have switched offloads. The kernel is asked once about each interface,
            // for all probes.
            let shown: Vec<_> = probes
                .iter()
                .map(|probe| probe.shown.lock().clone())
                .collect();
            kernel
                .host
                .offloads
                .look(shown.iter().flat_map(|shown| shown.attached()));
            shown.iter().for_each(|shown| shown.refresh());
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "attachments could not be checked; the daemon checks again in 2 s");
        }
    }

    /// Makes the probes look again for interfaces that they could not list when they were adopted.
    /// Then the kernel can remove attachments that no probe claims. Must be called while nothing
    /// else changes.
    pub fn settle_again(&self) {
        if self.deployer.kernel.is_unsettled() {
            let follow =
                |probe: &Arc<Probe>| probe.follow(&LinkChanges::default(), &self.deployer.pods);
            self.registry.list().iter().for_each(follow);
            let is_unsure = self
                .registry
                .list()
                .iter()
                .any(|probe| probe.shown.lock().is_unsure());
            self.deployer.kernel.settle_again(is_unsure);
        }
    }

    /// Attaches a running probe to all interfaces to which it belongs, as far as that is possible
    /// now.
    pub async fn attach_again(
        self: &Arc<Self>,
        probe: Arc<Probe>,
    ) -> Result<ProbeStatus, EngineError> {
        let attached = self.change(move |engine| {
            engine.deployer.kernel.look();
            if probe.shown.lock().is_waiting() {
                probe.follow(&LinkChanges::default(), &engine.deployer.pods);
            }
            probe.status()
        });
        Ok(attached.await?)
    }
}
