//! One probe: its configuration, its twins, and the reading of its windows.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedMutexGuard, watch};
use twinprobe_client::{ProbeStatus, SumStatus};
use twinprobe_ebpf_common::finding::{Finding, with_causes};
use twinprobe_kernel::clock::Moment;
use twinprobe_kernel::watch::Changes;
use twinprobe_kernel::{Held, Predecessor};
use twinprobe_windows::{ClosedBy, StoredWindow, WindowError, Windows};

use crate::config::window::Schedule;
use crate::engine::deploy::history::History;
use crate::engine::error::ReadError;
use crate::engine::events::probe_events::ProbeEvents;
use crate::engine::probe::running::Running;
use crate::engine::probe::status::{self, Shown};
use crate::engine::window::delivery::Delivery;
use crate::store::record::StoredProbe;
use crate::telemetry::counters::Counters;
use crate::telemetry::page::AttachmentFacts;

#[derive(Debug)]
pub struct Probe {
    pub name: String,
    /// What is stored about it.
    pub stored: StoredProbe,
    /// Where it is among those of the same priority, if it was ever deployed.
    pub order: Option<u64>,
    pub warnings: Vec<Finding>,
    /// Where its interfaces are. `None`: it is not running.
    pub namespace: Option<Option<PathBuf>>,
    /// Apart from the state, which is locked while a window is read. `None`: it is not running.
    pub events: Option<ProbeEvents>,
    pub windows: Arc<Windows>,
    /// Who reads waits here, not on a thread: readers of a slow probe must not take the threads of the others.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    /// What OpenMetrics answers have left out.
    pub skipped: Arc<AtomicU64>,
    /// As they were after the last window.
    pub sums: Arc<Mutex<Vec<SumStatus>>>,
    /// What the status says of the state. Nobody takes another lock while holding it.
    pub shown: Mutex<Shown>,
    pub state: Mutex<State>,
}

#[derive(Debug)]
pub enum State {
    Running(Box<Running>),
    /// Stored, but not deployed by this daemon. What an earlier one has left attached goes on until then.
    Failed {
        reason: String,
        held: Option<Box<Held>>,
    },
    Gone,
}

impl Probe {
    /// A stored probe that is not deployed by this daemon, or not yet. `held` is what is left of it in the kernel.
    pub fn failed(
        name: &str,
        stored: StoredProbe,
        reason: String,
        held: Option<Held>,
        windows: Arc<Windows>,
    ) -> Self {
        let recorded = stored.running.as_ref().map(|running| running.deployment.order);
        let order = recorded.or(held.as_ref().map(Held::order));
        let held = held.map(Box::new);
        Self {
            name: name.to_owned(),
            order,
            stored,
            warnings: Vec::new(),
            namespace: None,
            events: None,
            windows,
            turn: Arc::default(),
            skipped: Arc::default(),
            sums: Arc::default(),
            shown: Mutex::new(Shown::failed(&reason, held.as_deref())),
            state: Mutex::new(State::Failed { reason, held }),
        }
    }

    /// Why a probe that does not run could not be deployed.
    pub fn set_reason(&self, why: String) {
        let mut state = self.lock();
        if let State::Failed { reason, held } = &mut *state {
            *self.shown() = Shown::failed(&why, held.as_deref());
            *reason = why;
        }
    }

    pub fn history(&self) -> History {
        History::of(&self.stored)
    }

    pub const fn stored(&self) -> &StoredProbe {
        &self.stored
    }

    pub fn namespace(&self) -> Option<Option<PathBuf>> {
        self.namespace.clone()
    }

    /// Attaches it to the interfaces there are now, and detaches it from those that have gone.
    pub fn follow(&self, changes: &Changes) {
        if let State::Running(running) = &mut *self.lock() {
            running.follow(changes);
            *self.shown() = Shown::of(running);
        }
    }

    /// Whether it should be at more interfaces than it is, or may have to be.
    pub fn is_waiting(&self) -> bool {
        self.shown().is_waiting()
    }

    /// Whether it could not be told where its interfaces are.
    pub fn is_unsure(&self) -> bool {
        self.shown().is_unsure()
    }

    /// Where it is attached or should be. Waits for nobody, as [`Self::status`].
    pub fn attachments(&self) -> Vec<AttachmentFacts> {
        self.shown().facts()
    }

    /// What a replacement can take over.
    pub fn predecessor(&self, direction: &str) -> Option<Predecessor> {
        match &*self.lock() {
            State::Running(running) => running.predecessor(direction),
            State::Failed { .. } | State::Gone => None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for nobody who reads or changes the probe.
    pub fn status(&self) -> ProbeStatus {
        let events = self.events.as_ref().map(ProbeEvents::status).unwrap_or_default();
        let shown = self.shown().clone();
        let windows = self.windows.statistics();
        let status = status::probe_status(&self.name, &self.stored, &self.warnings, shown, windows, events);
        ProbeStatus { sums: self.sums(), ..status }
    }

    /// Its sums whose entries come and go, as they were after the last window.
    pub fn sums(&self) -> Vec<SumStatus> {
        self.sums.lock().clone()
    }

    pub fn events(&self) -> Option<&ProbeEvents> {
        self.events.as_ref()
    }

    pub fn close_events(&self) {
        if let Some(events) = &self.events {
            events.close();
        }
    }

    /// Closes the open window for good: what it holds is not to go with the maps.
    pub fn close_last(&self) {
        let closed = self.with_running(|running| match running.has_windows() {
            true => running.close(ClosedBy::Schedule).map(drop).map_err(Into::into),
            false => Ok(()),
        });
        if let Err(ReadError::Close(error)) = closed {
            tracing::error!(probe = self.name, error = with_causes(&error), "the last window is lost");
        }
    }

    pub fn detach(&self) {
        match std::mem::replace(&mut *self.lock(), State::Gone) {
            State::Running(running) => {
                // What is left in the rings goes to those who listen; then nothing of ours keeps the maps.
                self.close_events();
                running.detach();
            }
            State::Failed { held: Some(held), .. } => held.detach(),
            State::Failed { .. } | State::Gone => {}
        }
    }

    /// Its windows on disk.
    pub fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    /// What may be waited for before anything that takes its time is done with it.
    pub async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Algorithm 2 of the paper.
    pub fn read(&self) -> Result<Delivery, ReadError> {
        self.with_running(|running| Ok(running.read()?))
    }

    /// Closes the open window.
    pub fn close_window(&self, by: ClosedBy) -> Result<Arc<StoredWindow>, ReadError> {
        self.with_running(|running| match running.has_windows() {
            true => Ok(running.close(by)?),
            false => Err(ReadError::NoWindows),
        })
    }

    /// A retained window, to be handed out.
    pub fn deliver(&self, stored: &StoredWindow) -> Result<Delivery, WindowError> {
        Delivery::of_window(&self.windows, stored, Arc::clone(&self.skipped), None)
    }

    /// When its windows are to be closed, since when the open one is, and what ends with the probe.
    pub fn schedule(&self) -> Option<(Schedule, Moment, watch::Receiver<()>, Arc<Counters>)> {
        match &*self.lock() {
            State::Running(running) => {
                Some((running.schedule()?, running.opened(), running.gone(), running.counters()))
            }
            State::Failed { .. } | State::Gone => None,
        }
    }

    fn with_running<T>(
        &self,
        action: impl FnOnce(&mut Running) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        match &mut *self.lock() {
            State::Running(running) => {
                let done = action(running);
                self.shown().set_trouble(running.trouble());
                done
            }
            State::Failed { reason, .. } => Err(ReadError::NotRunning(reason.clone())),
            State::Gone => Err(ReadError::Gone),
        }
    }

    pub fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock()
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
