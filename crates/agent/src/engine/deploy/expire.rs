//! The end of a lease. The probe gets no more packets, its last window is closed, and the probe is
//! removed. Windows that no collector has acknowledged stay readable for some time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use twinprobe_api::ProbeStatus;
use twinprobe_faults::crash;

use crate::engine::deploy::lineage::removal;
use crate::engine::engine::Engine;
use crate::engine::error::{EngineError, describe};
use crate::engine::pods::table::NodePods;
use crate::engine::probe::lease::Lease;
use crate::engine::probe::probe::Probe;
use crate::engine::probe::retained::RetainedWindows;
use crate::engine::probe::running::limits;
use crate::store::error::StoreError;
use crate::store::format::Unread;
use crate::store::record::StoredProbe;
use twinprobe_config::ProbeConfig;

/// The time for which the windows of a probe stay readable after the end of its lease.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest sleep of a task that waits for the end of a lease: the timer's clock stops while the
/// machine sleeps.
const LOOK: Duration = Duration::from_secs(10);
/// The pause after a failed attempt to store the last window.
const AGAIN: Duration = Duration::from_secs(1);

impl Engine {
    /// Returns the windows of a probe, or of a probe whose lease has ended.
    pub fn retained(&self, name: &str) -> Result<RetainedWindows, EngineError> {
        match self.registry.get(name) {
            Ok(probe) => Ok(probe.retained()),
            Err(error) => self
                .registry
                .expired
                .get(name)
                .map(|(retained, _)| retained)
                .ok_or(error),
        }
    }

    /// Extends the lease of a running probe by this duration, if it has a lease. Attaches the probe
    /// at the interfaces where it is missing. The caller holds the turn of the probe.
    pub async fn renew(
        self: &Arc<Self>,
        probe: Arc<Probe>,
        duration: Option<Duration>,
        turn: OwnedMutexGuard<()>,
    ) -> Result<ProbeStatus, EngineError> {
        if let Some(duration) = duration {
            let renewed = Arc::clone(&probe);
            let renewed = self.change(move |engine| {
                let _turn = turn;
                let lease = Lease::begin(duration);
                let record = Some(lease.stored(&engine.deployer.kernel.host.boot_id));
                let stored = StoredProbe {
                    lease: record,
                    ..renewed.stored.clone()
                };
                engine
                    .deployer
                    .store
                    .prepare(&renewed.name, &stored, None)?
                    .commit()?;
                renewed.set_lease(lease, &engine.deployer.pods);
                Ok::<(), EngineError>(())
            });
            renewed.await??;
        }
        // A client may send the same configuration again because it has seen that an attachment has
        // ended.
        self.attach_again(probe).await
    }

    /// Starts the task that removes the probe at the end of its lease, if the probe has a lease.
    pub fn watch_lease(self: &Arc<Self>, probe: Weak<Probe>) {
        let engine = Arc::downgrade(self);
        self.readings.clock.spawn(async move {
            while let Some(left) = probe
                .upgrade()
                .and_then(|probe| Some(probe.lease()?.left()))
            {
                let pause = match left {
                    Duration::ZERO if expire(&engine, &probe).await => return,
                    Duration::ZERO => AGAIN,
                    left => left.min(LOOK),
                };
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Removes a probe whose lease has ended. Returns false if the caller must try again.
    async fn expire(self: &Arc<Self>, probe: Arc<Probe>) -> Result<bool, EngineError> {
        let turn = self.registry.turns.take(&probe.name).await;
        if !self
            .registry
            .get(&probe.name)
            .is_ok_and(|present| Arc::ptr_eq(&present, &probe))
        {
            return Ok(true);
        }
        if probe.lease().is_none_or(|lease| !lease.left().is_zero()) {
            return Ok(false);
        }
        let ended = Arc::clone(&probe);
        self.change(move |engine| ended.end(&engine.deployer.pods))
            .await?;
        crash::point("ended");
        let (last, engine) = (Arc::clone(&probe), Arc::clone(self));
        let closed = tokio::task::spawn_blocking(move || {
            let closed = last.close_at_end();
            engine.readings.windows.enforce();
            closed
        });
        // A window that can't be stored stays in the kernel until it can be stored.
        if let Err(error @ (EngineError::Close(_) | EngineError::Kernel(_))) = closed.await? {
            return Err(error);
        }
        crash::point("closed_last");
        self.change(move |engine| {
            let _turn = turn;
            let kept = probe.retained();
            let is_kept = kept.is_needed();
            let entry = removal(&probe.name, &probe.stored, None);
            match probe.lease().filter(|_| is_kept) {
                Some(_) => engine.deployer.store.expire(entry)?,
                None => {
                    engine.readings.windows.remove(&probe.name, |windows| {
                        engine.deployer.store.remove(entry, windows)
                    })?;
                }
            }
            crash::point("expired");
            if let Some(lease) = probe.lease().filter(|_| is_kept) {
                engine.watch_expired(&probe.name, kept, lease);
            }
            engine.take_out(&probe);
            tracing::info!(probe = probe.name, "removed, because its lease has ended");
            Ok(true)
        })
        .await?
    }

    /// Continues with the windows of probes whose leases have ended under an earlier daemon.
    pub fn restore_expired(self: &Arc<Self>) -> Result<(), StoreError> {
        for (name, stored) in self.deployer.store.load_expired()? {
            match stored {
                Ok(stored) => self.go_on_with_expired(&name, &stored),
                Err(Unread(reason)) => {
                    tracing::error!(
                        probe = name,
                        reason,
                        "windows of an expired probe can't be shown; they stay on disk"
                    );
                }
            }
        }
        Ok(())
    }

    fn go_on_with_expired(self: &Arc<Self>, name: &str, stored: &StoredProbe) {
        let lease = Lease::recorded(stored, &self.deployer.kernel.host.boot_id);
        let windows = self.readings.windows.of(name);
        if let Ok(config) = ProbeConfig::validate(name, &stored.config) {
            windows.set_limits(limits(&config));
        }
        let retained = RetainedWindows {
            windows,
            origin: stored.origin(&self.node),
            skipped: Arc::default(),
        };
        self.watch_expired(
            name,
            retained,
            lease.unwrap_or_else(|| Lease::begin(Duration::ZERO)),
        );
    }

    fn watch_expired(self: &Arc<Self>, name: &str, retained: RetainedWindows, ended: Lease) {
        let lease = ended.extended(KEPT);
        self.registry.expired.insert(name, retained, lease);
        let (engine, name) = (Arc::downgrade(self), name.to_owned());
        self.readings.clock.spawn(async move {
            while let Some(engine) = engine
                .upgrade()
                .filter(|engine| engine.registry.expired.is(&name, lease))
            {
                let left = lease.left();
                if left.is_zero() {
                    let of = name.clone();
                    // Files that can't be removed now stay until a later attempt.
                    let _ = engine
                        .change(move |engine| engine.forget_expired(&of, lease))
                        .await;
                }
                drop(engine);
                tokio::time::sleep(if left.is_zero() {
                    AGAIN
                } else {
                    left.min(LOOK)
                })
                .await;
            }
        });
    }

    /// Removes the windows of an expired probe, if they still have this lease. Call this while
    /// nothing else changes.
    fn forget_expired(&self, name: &str, lease: Lease) -> Result<(), StoreError> {
        if self.registry.expired.is(name, lease) {
            self.readings.windows.remove(name, |windows| {
                self.deployer.store.forget_expired(name, windows)
            })?;
            self.registry.expired.remove(name);
            self.registry.disturbed.send_modify(|_| {});
        }
        Ok(())
    }

    /// Removes the windows of an expired probe if all of them are acknowledged.
    pub async fn forget_acknowledged(self: &Arc<Self>, name: &str) -> Result<(), EngineError> {
        if let Some((retained, lease)) = self.registry.expired.get(name)
            && !retained.is_needed()
        {
            let name = name.to_owned();
            self.change(move |engine| engine.forget_expired(&name, lease))
                .await??;
        }
        Ok(())
    }

    /// Passes on the windows of an expired probe to the new probe of the same name. The commit of
    /// the new probe's record has already done this on disk.
    pub fn hand_on_expired(&self, name: &str) {
        self.registry.expired.remove(name);
    }
}

impl Probe {
    pub fn lease(&self) -> Option<Lease> {
        *self.lease.lock()
    }

    /// Notes another lease, with which a probe continues whose lease had just ended.
    fn set_lease(&self, lease: Lease, pods: &NodePods) {
        *self.lease.lock() = Some(lease);
        self.set_ended(false, pods);
    }

    /// Detaches the probe. Its maps stay until the last window is stored.
    fn end(&self, pods: &NodePods) {
        self.set_ended(true, pods);
    }

    fn retained(&self) -> RetainedWindows {
        let (windows, origin) = (Arc::clone(&self.windows), Arc::clone(&self.origin));
        RetainedWindows {
            windows,
            origin,
            skipped: Arc::clone(&self.skipped),
        }
    }
}

/// Removes a probe whose lease has ended. Returns false if the caller must try again.
async fn expire(engine: &Weak<Engine>, probe: &Weak<Probe>) -> bool {
    let (Some(engine), Some(probe)) = (engine.upgrade(), probe.upgrade()) else {
        return true;
    };
    let name = probe.name.clone();
    engine.expire(probe).await.unwrap_or_else(|error| {
        // The reason why a window can't be closed has been logged, and is in the status.
        if !matches!(error, EngineError::Close(_) | EngineError::Kernel(_)) {
            let reason = describe(&error);
            tracing::error!(
                probe = name,
                reason,
                "a probe whose lease has ended can't be removed yet"
            );
        }
        false
    })
}
