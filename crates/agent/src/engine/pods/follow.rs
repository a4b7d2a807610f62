//! The following of pods. The kernel reports interfaces, and an agent reports pods. Nothing reports
//! that a process has entered a cgroup, so the daemon looks again while a pod that a probe waits
//! for has no interface.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use twinprobe_api::{PodList, PodTable};
use twinprobe_config::PodSelector;
use twinprobe_kernel::watch::LinkChanges;

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;

/// The first pause between two looks, and the longest one for a while after a change.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(400);
/// The time after a change in which the pauses are short.
const LIVELY: Duration = Duration::from_secs(60);
/// The pause between two looks after that time: a pod may never have an interface.
const RARELY: Duration = Duration::from_secs(5);

impl Engine {
    /// Replaces the table of pods, first on disk, and updates the probes that follow pods. After an
    /// error nothing has changed.
    pub async fn put_pods(self: &Arc<Self>, table: PodTable) -> Result<PodList, EngineError> {
        self.change(move |engine| {
            let pods = &engine.deployer.pods;
            engine.deployer.store.keep_pods(&table)?;
            pods.set(table);
            pods.look();
            engine.place_on_pods(&LinkChanges::default());
            pods.stirred.notify_one();
            Ok(pods.list())
        })
        .await?
    }

    /// Looks for the pods, and returns its findings.
    pub async fn list_pods(self: &Arc<Self>) -> Result<PodList, EngineError> {
        self.look_for_pods().await?;
        Ok(self.deployer.pods.list())
    }

    /// Looks for pods if anything follows them, before probes follow a change of interfaces.
    pub fn look_for_pods_now(&self) {
        if self.pod_selectors().next().is_some() {
            self.deployer.pods.look();
            self.deployer.pods.stirred.notify_one();
        }
    }

    async fn look_for_pods(self: &Arc<Self>) -> Result<(), EngineError> {
        let pods = Arc::clone(&self.deployer.pods);
        if spawn_blocking(move || pods.look()).await? {
            self.change(|engine| engine.place_on_pods(&LinkChanges::default()))
                .await?;
        }
        Ok(())
    }

    fn place_on_pods(&self, changes: &LinkChanges) {
        for probe in self
            .registry
            .list()
            .iter()
            .filter(|probe| probe.pods().is_some())
        {
            probe.follow(changes, &self.deployer.pods);
        }
    }

    /// Returns the pod selectors of probes. If documents name pods, also returns a selector for all
    /// pods.
    fn pod_selectors(&self) -> impl Iterator<Item = PodSelector> {
        let all = self.deployer.pods.has_owners().then(PodSelector::default);
        all.into_iter().chain(
            self.registry
                .list()
                .into_iter()
                .filter_map(|probe| probe.pods().cloned()),
        )
    }

    /// Starts the task that looks again for pods that probes, or the names of addresses, wait for.
    pub fn follow_pods(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        let pods = Arc::clone(&self.deployer.pods);
        tokio::spawn(async move {
            let (mut stirred, mut pause) = (Instant::now(), FIRST);
            loop {
                let is_short = {
                    let Some(engine) = engine.upgrade() else {
                        return;
                    };
                    engine
                        .pod_selectors()
                        .any(|selector| engine.deployer.pods.is_short_of(&selector))
                };
                let wait = if stirred.elapsed() < LIVELY {
                    pause
                } else {
                    RARELY
                };
                tokio::select! {
                    () = pods.stirred.notified() => {
                        (stirred, pause) = (Instant::now(), FIRST);
                        continue;
                    }
                    () = tokio::time::sleep(wait), if is_short => pause = (pause * 2).min(LONGEST),
                }
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                if let Err(error) = engine.look_for_pods().await {
                    tracing::error!(%error, "probes could not follow their pods");
                }
            }
        });
    }
}
