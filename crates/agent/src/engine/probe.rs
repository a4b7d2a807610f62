//! One probe: its configuration, its twins, and the reading of its windows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::delivery::Delivery;
use super::deploy::LoadedProbe;
use super::events::{EventLoop, ProbeEvents};
use super::interfaces::{Wanted, refused};
use super::reader::readers;
use super::reading::{Running, timestamp, timestamp_of};
use super::restore::Adopted;
use super::status::ProbeStatus;
use super::totals::Totals;
use super::{Engine, EngineError};
use crate::config::{ConfigDocument, Direction, ProbeConfig};
use crate::crash;
use crate::kernel::watch::Changes;
use crate::kernel::{Deployable, KernelError, Predecessor};
use crate::report::Finding;
use crate::store::{Pending, Store, StoreError, StoredDeployment, StoredProbe};

#[derive(Debug)]
pub enum ReadError {
    /// Replaced or deleted.
    Gone,
    NotRunning(String),
    Kernel(KernelError),
}

impl From<KernelError> for ReadError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
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
    /// Readers wait for each other: a window belongs to one of them.
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
        Self { revision: 1, created: timestamp(Timestamp::now()) }
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
        loaded: LoadedProbe,
        old: Option<&Self>,
        history: History,
    ) -> Result<Self, EngineError> {
        let readers = readers(&config, &loaded.directions)?;
        let events = ProbeEvents::open(&config, &loaded.directions, &engine.events)?;
        let mut old_state = old.map(Self::lock);
        let mut replaced = match old_state.as_deref_mut() {
            Some(State::Running(running)) => Some(running),
            _ => None,
        };
        if let Some(running) = &mut replaced {
            running.finish_extraction(config.name())?;
        }
        let replaces = replaced.as_ref().map(|running| running.attached());
        let deployable = Deployable::new(&engine.kernel, loaded.directions, replaces)?;
        let name = config.name().to_owned();
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
        let totals = Totals::new(engine.store.totals(&name));
        let mut running = Running::new(config, attached, readers, Timestamp::now(), totals);
        match old_state.as_deref_mut().map(|state| std::mem::replace(state, State::Gone)) {
            Some(State::Running(old)) => running.succeed(*old),
            _ => running.forget_totals(&[]),
        }
        if let Some(old) = old {
            old.close_events();
        }
        running.set_pending(pending);
        let (warnings, state) = (loaded.warnings, State::Running(Box::new(running)));
        Ok(Self { name, stored, warnings, namespace, events: Some(events), state: Mutex::new(state) })
    }

    /// What an earlier daemon deployed and what still runs.
    pub(super) fn adopt(
        name: &str,
        stored: StoredProbe,
        config: ProbeConfig,
        adopted: Adopted,
        totals: Totals,
        events: &EventLoop,
    ) -> Result<Self, EngineError> {
        let readers = readers(&config, adopted.attached.directions())?;
        let events = ProbeEvents::open(&config, adopted.attached.directions(), events)?;
        let opened = timestamp_of(adopted.attached.opened());
        let namespace = Some(config.netns().map(Path::to_owned));
        let mut running = Running::new(config, adopted.attached, readers, opened, totals);
        running.resume();
        running.set_pending(adopted.pending);
        Ok(Self {
            name: name.to_owned(),
            stored,
            warnings: adopted.warnings,
            namespace,
            events: Some(events),
            state: Mutex::new(State::Running(Box::new(running))),
        })
    }

    /// A stored probe that could not be deployed.
    pub(super) fn failed(name: &str, stored: StoredProbe, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            stored,
            warnings: Vec::new(),
            namespace: None,
            events: None,
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
        let status = ProbeStatus::new(&self.name, &self.stored, &self.warnings, running, reason);
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

    pub(super) fn detach(&self) {
        if let State::Running(running) = std::mem::replace(&mut *self.lock(), State::Gone) {
            // What is left in the rings goes to those who listen; then nothing of ours keeps the maps.
            self.close_events();
            running.detach();
        }
    }

    /// Begins a reading, hands it to `deliver`, and then takes out of the maps what it consists of.
    pub(super) fn read(&self, deliver: impl FnOnce(Delivery)) -> Result<(), ReadError> {
        match &mut *self.lock() {
            State::Running(running) => {
                deliver(running.begin(&self.name)?);
                running.extract();
                Ok(())
            }
            State::Failed(reason) => Err(ReadError::NotRunning(reason.clone())),
            State::Gone => Err(ReadError::Gone),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
