//! One probe: its configuration, its twins, and the reading of its windows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedMutexGuard, watch};

use super::delivery::Delivery;
use super::deploy::LoadedProbe;
use super::events::{EventLoop, ProbeEvents};
use super::interfaces::{Wanted, refused};
use super::reader::readers;
use super::reading::{CloseError, Kept, Running, timestamp};
use super::restore::Adopted;
use super::status::ProbeStatus;
use super::telemetry::Counters;
use super::windows::{ClosedBy, Limits, StoredWindow, WindowError, Windows};
use super::{Engine, EngineError};
use crate::config::{ConfigDocument, Direction, ProbeConfig, Schedule};
use crate::crash;
use crate::kernel::clock::{self, Moment};
use crate::kernel::watch::Changes;
use crate::kernel::{Deployable, Predecessor, with_causes};
use crate::report::Finding;
use crate::store::{Pending, Store, StoreError, StoredDeployment, StoredProbe};

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
    warnings: Vec<Finding>,
    /// Where its interfaces are. `None`: it is not running.
    namespace: Option<Option<PathBuf>>,
    /// Apart from the state, which is locked while a window is read. `None`: it is not running.
    events: Option<ProbeEvents>,
    windows: Arc<Windows>,
    /// Who reads waits here, not on a thread: readers of a slow probe must not take the threads of the others.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The same for those who ask for the status: they come after one reading, not after all that wait.
    looking: Arc<tokio::sync::Mutex<()>>,
    /// What OpenMetrics answers have left out.
    skipped: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running(Box<Running>),
    /// Stored, but it could not be deployed.
    Failed(String),
    Gone,
}

/// Which of a probe's configurations it is, and since when there is one.
pub(super) struct History {
    pub revision: u64,
    pub created: String,
}

impl History {
    pub fn new() -> Self {
        Self { revision: 1, created: timestamp(clock::now()) }
    }

    pub fn next(self) -> Self {
        Self { revision: self.revision + 1, ..self }
    }
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
        let mut old_state = old.map(Self::lock);
        let mut replaced = match old_state.as_deref_mut() {
            Some(State::Running(running)) => Some(running),
            _ => None,
        };
        if let Some(running) = &mut replaced {
            running.finish()?;
        }
        let replaces = replaced.as_ref().map(|running| running.attached());
        if let Some(old) = replaces {
            loaded.follow(&engine.kernel, &config, old)?;
        }
        let readers = readers(&config, &loaded.directions)?;
        let events = ProbeEvents::open(&config, &loaded.directions, &engine.events)?;
        let name = config.name().to_owned();
        let windows = engine.windows.of(&name);
        let first_epoch = windows.last_seq() + 1;
        let deployable = Deployable::new(&engine.kernel, loaded.directions, replaces, first_epoch)?;
        let namespace = Some(config.netns().map(Path::to_owned));
        let prepared = prepare(&engine.store, &name, history, document, &loaded.objects, &deployable);
        let (stored, commit) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                deployable.discard();
                return Err(error.into());
            }
        };
        crash::point("prepared");
        let Wanted { interfaces, mut pending } = loaded.wanted;
        let (attached, failed) = deployable.attach(&interfaces, replaces)?;
        pending.extend(refused(failed));
        // What is on disk decides what runs after a crash: up to here the old deployment, from here the new one.
        crash::point("switched");
        if let Err(error) = commit.commit() {
            attached.undo(replaces);
            return Err(error.into());
        }
        crash::point("committed");
        windows.set_limits(limits(&config));
        let kept = engine.kept(&name);
        if replaces.is_none() {
            attached.set_opened(Moment::now());
        }
        let mut running = Running::new(config, attached, readers, kept);
        match old_state.as_deref_mut().map(|state| std::mem::replace(state, State::Gone)) {
            Some(State::Running(old)) => running.succeed(*old),
            // A probe that was stored goes on with its sums, as after a reboot; of a new one there are none.
            _ => running.resume(false),
        }
        if let Some(old) = old {
            old.close_events();
        }
        running.set_pending(pending);
        let (warnings, skipped) = (loaded.warnings, running.skipped());
        let events = Some(events);
        let state = Mutex::new(State::Running(Box::new(running)));
        let (turn, looking) = Default::default();
        Ok(Self { name, stored, warnings, namespace, events, windows, turn, looking, skipped, state })
    }

    /// What an earlier daemon deployed and what still runs.
    pub(super) fn adopt(
        name: &str,
        stored: StoredProbe,
        config: ProbeConfig,
        adopted: Adopted,
        kept: Kept,
        events: &EventLoop,
    ) -> Result<Self, EngineError> {
        let readers = readers(&config, adopted.attached.directions())?;
        let events = ProbeEvents::open(&config, adopted.attached.directions(), events)?;
        let namespace = Some(config.netns().map(Path::to_owned));
        let windows = Arc::clone(&kept.windows);
        windows.set_limits(limits(&config));
        let mut running = Running::new(config, adopted.attached, readers, kept);
        running.resume(true);
        running.set_pending(adopted.pending);
        // What keeps it from that was said; the next reading tries again.
        let _ = running.finish_window();
        Ok(Self {
            name: name.to_owned(),
            stored,
            warnings: adopted.warnings,
            namespace,
            events: Some(events),
            windows,
            turn: Arc::default(),
            looking: Arc::default(),
            skipped: running.skipped(),
            state: Mutex::new(State::Running(Box::new(running))),
        })
    }

    /// A stored probe that could not be deployed.
    pub(super) fn failed(name: &str, stored: StoredProbe, reason: String, windows: Arc<Windows>) -> Self {
        Self {
            name: name.to_owned(),
            stored,
            warnings: Vec::new(),
            namespace: None,
            events: None,
            windows,
            turn: Arc::default(),
            looking: Arc::default(),
            skipped: Arc::default(),
            state: Mutex::new(State::Failed(reason)),
        }
    }

    pub(super) fn history(&self) -> History {
        History { revision: self.stored.revision, created: self.stored.created.clone() }
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
        }
    }

    /// Whether it should be at more interfaces than it is.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(&*self.lock(), State::Running(running) if !running.pending().is_empty())
    }

    /// What a replacement can take over.
    pub(super) fn predecessor(&self, direction: Direction, unnamed: bool) -> Option<Predecessor> {
        match &*self.lock() {
            State::Running(running) => running.attached().predecessor(direction.name(), unnamed),
            State::Failed(_) | State::Gone => None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn status(&self) -> ProbeStatus {
        let state = self.lock();
        let (running, reason) = match &*state {
            State::Running(running) => (Some(&**running), None),
            State::Failed(reason) => (None, Some(reason.clone())),
            State::Gone => (None, Some("replaced or deleted".to_owned())),
        };
        let windows = self.windows.statistics();
        let status = ProbeStatus::new(&self.name, &self.stored, &self.warnings, running, windows, reason);
        ProbeStatus { events: self.events.as_ref().map(ProbeEvents::status).unwrap_or_default(), ..status }
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
        if let State::Running(running) = std::mem::replace(&mut *self.lock(), State::Gone) {
            // What is left in the rings goes to those who listen; then nothing of ours keeps the maps.
            self.close_events();
            running.detach();
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

    /// As [`Self::turn`], before [`Self::status`].
    pub async fn looking(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.looking).lock_owned().await
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
            State::Failed(_) | State::Gone => None,
        }
    }

    fn with_running<T>(
        &self,
        action: impl FnOnce(&mut Running) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        match &mut *self.lock() {
            State::Running(running) => action(running),
            State::Failed(reason) => Err(ReadError::NotRunning(reason.clone())),
            State::Gone => Err(ReadError::Gone),
        }
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

/// Brings onto the disk what is needed to adopt the deployment.
fn prepare<'a>(
    store: &'a Store,
    name: &str,
    history: History,
    config: ConfigDocument,
    objects: &BTreeMap<&'static str, Vec<u8>>,
    deployable: &Deployable,
) -> Result<(StoredProbe, Pending<'a>), StoreError> {
    let keep =
        |(direction, elf): (&&'static str, &Vec<u8>)| Ok((String::from(*direction), store.keep_object(elf)?));
    let objects = objects.iter().map(keep).collect::<Result<_, StoreError>>()?;
    let running = Some(StoredDeployment { deployment: deployable.record().clone(), objects });
    let History { revision, created } = history;
    let stored = StoredProbe { revision, created, config, running };
    let pending = store.prepare(name, &stored)?;
    Ok((stored, pending))
}
