//! One probe: its configuration, its twins, and the reading of its windows.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedMutexGuard, watch};
use twinprobe_ebpf_common::TableLayout;

use super::delivery::Delivery;
use super::deploy::{LoadedProbe, prepare};
use super::events::ProbeEvents;
use super::history::History;
use super::interfaces::{Wanted, refused, wanted};
use super::reader::readers;
use super::reading::{Before, CloseError, Kept, Running, Start, begin};
use super::restore::Adopted;
use super::status::{ProbeStatus, Shown, SumStatus};
use super::telemetry::{AttachmentFacts, Counters};
use super::windows::{ClosedBy, Limits, StoredWindow, WindowError, Windows};
use super::{Engine, EngineError};
use crate::config::{ConfigDocument, Direction, ProbeConfig, Schedule};
use crate::crash;
use crate::kernel::clock::Moment;
use crate::kernel::watch::Changes;
use crate::kernel::{Beginning, Deployable, Held, Identity, Loss, Predecessor, Replaced, with_causes};
use crate::report::{Finding, Stage};
use crate::store::StoredProbe;

#[derive(Debug)]
pub enum ReadError {
    /// Replaced or deleted.
    Gone,
    NotRunning(String),
    /// No metric asks for snapshots.
    NoWindows,
    Close(CloseError),
}

impl From<CloseError> for ReadError {
    fn from(error: CloseError) -> Self {
        Self::Close(error)
    }
}

#[derive(Debug)]
pub struct Probe {
    name: String,
    /// What is stored about it.
    stored: StoredProbe,
    /// Where it is among those of the same priority, if it was ever deployed.
    order: Option<u64>,
    warnings: Vec<Finding>,
    /// Where its interfaces are. `None`: it is not running.
    namespace: Option<Option<PathBuf>>,
    /// Apart from the state, which is locked while a window is read. `None`: it is not running.
    events: Option<ProbeEvents>,
    windows: Arc<Windows>,
    /// Who reads waits here, not on a thread: readers of a slow probe must not take the threads of the others.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// What OpenMetrics answers have left out.
    skipped: Arc<AtomicU64>,
    /// As they were after the last window.
    sums: Arc<Mutex<Vec<SumStatus>>>,
    /// What the status says of the state. Nobody takes another lock while holding it.
    shown: Mutex<Shown>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running(Box<Running>),
    /// Stored, but not deployed by this daemon. What an earlier one has left attached goes on until then.
    Failed {
        reason: String,
        held: Option<Box<Held>>,
    },
    Gone,
}

impl Probe {
    /// Attaches a loaded probe, in the place of `old` if it is running, and makes it the stored one.
    pub(super) fn deploy(
        engine: &Engine,
        config: ProbeConfig,
        document: ConfigDocument,
        mut loaded: LoadedProbe,
        old: Option<&Self>,
        history: History,
    ) -> Result<Self, EngineError> {
        // Not earlier: whatever comes from now on is told once this change is done.
        let Wanted { interfaces, mut pending, unlisted } = wanted(&config, loaded.first)?;
        let mut old_state = old.map(Self::lock);
        let mut warnings = Vec::new();
        if let Some(State::Running(running)) = old_state.as_deref_mut() {
            running.finish()?;
            let next = readers(&config, &loaded.directions)?;
            warnings = running.close_before(&next, &loaded.directions)?;
        }
        let running = match old_state.as_deref() {
            Some(State::Running(running)) => Some(&**running),
            _ => None,
        };
        let replaces = match old_state.as_deref() {
            Some(State::Running(running)) => Replaced::Attached(running.attached()),
            Some(State::Failed { held: Some(held), .. }) => Replaced::Held(held),
            _ => Replaced::Nothing,
        };
        if let Some(old) = running {
            loaded.follow(&engine.kernel, &config, old)?;
        }
        let mut readers = readers(&config, &loaded.directions)?;
        let events = ProbeEvents::open(&config, &loaded.directions, &engine.events)?;
        let name = config.name().to_owned();
        let windows = engine.windows.of(&name);
        let beginning =
            Beginning { first_epoch: windows.last_seq() + 1, order: old.and_then(|old| old.order) };
        let identity = Identity { probe: &name, netns: config.netns() };
        let more_known = |direction: &'static str, map: &str, layout: &TableLayout, rows| match running {
            Some(old) => old.with_more(direction, map, layout, rows),
            None => rows,
        };
        let (kernel, directions, attached) = (&engine.kernel, loaded.directions, replaces.attached());
        let deployable = Deployable::new(kernel, identity, directions, attached, beginning, &more_known)?;
        warnings.extend(deployable.losses().iter().map(warning));
        let serial = deployable.record().serial;
        let mut kept = engine.kept(&name);
        let begun =
            begin(&mut readers, &deployable, running, history.before, history.replaces, &mut kept, &name);
        let start = match begun {
            Ok(start) => start,
            Err(error) => {
                deployable.discard();
                return Err(error.into());
            }
        };
        crash::point("saved");
        let prepared = prepare(&engine.store, &name, history, document, &loaded.objects, &deployable);
        let (stored, commit) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                deployable.discard();
                windows.forget_baseline(serial);
                return Err(error.into());
            }
        };
        crash::point("prepared");
        let attached = deployable.attach(&interfaces, replaces);
        let (attached, failed) = attached.inspect_err(|_| windows.forget_baseline(serial))?;
        pending.extend(refused(failed));
        // What is on disk decides what runs after a crash: up to here the old deployment, from here the new one.
        crash::point("switched");
        if let Err(error) = commit.commit() {
            attached.undo(replaces);
            windows.forget_baseline(serial);
            return Err(error.into());
        }
        crash::point("committed");
        windows.set_limits(limits(&config));
        if replaces.attached().is_none() {
            attached.set_opened(Moment::now());
        }
        let mut running = Running::new(config, attached, readers, start, kept);
        match old_state.as_deref_mut().map(|state| std::mem::replace(state, State::Gone)) {
            Some(State::Running(old)) => warnings.extend(running.succeed(*old).iter().map(warning)),
            state => {
                running.resume();
                if let Some(State::Failed { held: Some(held), .. }) = state {
                    held.retire(running.attached());
                }
            }
        }
        if let Some(old) = old {
            old.close_events();
        }
        running.set_pending(pending, unlisted);
        warnings.splice(0..0, loaded.warnings);
        Ok(Self::running(stored, warnings, events, running))
    }

    /// What an earlier daemon deployed and what still runs. No window of it is closed before [`Self::resume`].
    pub(super) fn adopt(stored: StoredProbe, config: ProbeConfig, adopted: Adopted, kept: Kept) -> Self {
        let Adopted { attached, readers, events, pending, unlisted, warnings } = adopted;
        kept.windows.set_limits(limits(&config));
        let start = Start::Awaited(Before(Some(attached.serial())));
        let mut running = Running::new(config, attached, readers, start, kept);
        running.set_pending(pending, unlisted);
        Self::running(stored, warnings, events, running)
    }

    /// Goes on with the windows of a probe that was adopted, once the dispatchers call what they should.
    pub(super) fn resume(&self) {
        if let State::Running(running) = &mut *self.lock() {
            running.resume();
            // What keeps it from that was said; the next reading tries again.
            let _ = running.finish_window();
            self.shown().set_trouble(running.trouble());
        }
    }

    fn running(stored: StoredProbe, warnings: Vec<Finding>, events: ProbeEvents, running: Running) -> Self {
        let config = running.config();
        Self {
            name: config.name().to_owned(),
            order: stored.running.as_ref().map(|running| running.deployment.order),
            stored,
            warnings,
            namespace: Some(config.netns().map(Path::to_owned)),
            events: Some(events),
            windows: running.windows(),
            turn: Arc::default(),
            skipped: running.skipped(),
            sums: running.sums(),
            shown: Mutex::new(Shown::of(&running)),
            state: Mutex::new(State::Running(Box::new(running))),
        }
    }

    /// A stored probe that is not deployed by this daemon, or not yet. `held` is what is left of it in the kernel.
    pub(super) fn failed(
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
    pub(super) fn set_reason(&self, why: String) {
        let mut state = self.lock();
        if let State::Failed { reason, held } = &mut *state {
            *self.shown() = Shown::failed(&why, held.as_deref());
            *reason = why;
        }
    }

    pub(super) fn history(&self) -> History {
        History::of(&self.stored)
    }

    pub(super) const fn stored(&self) -> &StoredProbe {
        &self.stored
    }

    pub(super) fn namespace(&self) -> Option<Option<PathBuf>> {
        self.namespace.clone()
    }

    /// Attaches it to the interfaces there are now, and detaches it from those that have gone.
    pub(super) fn follow(&self, changes: &Changes) {
        if let State::Running(running) = &mut *self.lock() {
            running.follow(changes);
            *self.shown() = Shown::of(running);
        }
    }

    /// Whether it should be at more interfaces than it is, or may have to be.
    pub(super) fn is_waiting(&self) -> bool {
        self.shown().is_waiting()
    }

    /// Whether it could not be told where its interfaces are.
    pub(super) fn is_unsure(&self) -> bool {
        self.shown().is_unsure()
    }

    /// Where it is attached or should be. Waits for nobody, as [`Self::status`].
    pub(super) fn attachments(&self) -> Vec<AttachmentFacts> {
        self.shown().facts()
    }

    /// What a replacement can take over.
    pub(super) fn predecessor(&self, direction: Direction, unnamed: bool) -> Option<Predecessor> {
        match &*self.lock() {
            State::Running(running) => running.predecessor(direction.name(), unnamed),
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
        let status = ProbeStatus::new(&self.name, &self.stored, &self.warnings, shown, windows, events);
        ProbeStatus { sums: self.sums(), ..status }
    }

    /// Its sums whose entries come and go, as they were after the last window.
    pub fn sums(&self) -> Vec<SumStatus> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn events(&self) -> Option<&ProbeEvents> {
        self.events.as_ref()
    }

    fn close_events(&self) {
        if let Some(events) = &self.events {
            events.close();
        }
    }

    /// Closes the open window for good: what it holds is not to go with the maps.
    pub(super) fn close_last(&self) {
        let closed = self.with_running(|running| match running.has_windows() {
            true => running.close(ClosedBy::Schedule).map(drop).map_err(Into::into),
            false => Ok(()),
        });
        if let Err(ReadError::Close(error)) = closed {
            tracing::error!(probe = self.name, error = with_causes(&error), "the last window is lost");
        }
    }

    pub(super) fn detach(&self) {
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
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Algorithm 2 of the paper. What is given is handed to `deliver` before all of it is out of the maps.
    pub(super) fn read(&self, deliver: impl FnOnce(Delivery)) -> Result<(), ReadError> {
        self.with_running(|running| Ok(running.read(deliver)?))
    }

    /// Closes the open window.
    pub(super) fn close_window(&self, by: ClosedBy) -> Result<Arc<StoredWindow>, ReadError> {
        self.with_running(|running| match running.has_windows() {
            true => Ok(running.close(by)?),
            false => Err(ReadError::NoWindows),
        })
    }

    /// A retained window, to be handed out.
    pub(super) fn deliver(&self, stored: &StoredWindow) -> Result<Delivery, WindowError> {
        Delivery::of_window(&self.windows, stored, Arc::clone(&self.skipped), None)
    }

    /// When its windows are to be closed, since when the open one is, and what ends with the probe.
    pub(super) fn schedule(&self) -> Option<(Schedule, Moment, watch::Receiver<()>, Arc<Counters>)> {
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

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the configuration says of retained windows. A probe of which it says nothing has no collectors: what a
/// reader was given counts as acknowledged.
fn limits(config: &ProbeConfig) -> Limits {
    let window = config.window().cloned().unwrap_or_default();
    Limits {
        retain: window.retain(),
        bytes: window.retain_bytes(),
        collectors: window.collectors().to_vec(),
        taken_counts: config.window().is_none(),
    }
}

fn warning((direction, message): &Loss) -> Finding {
    Finding::new(Stage::Load, format!("{direction}.source"), message)
}
