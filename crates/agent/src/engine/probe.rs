//! One probe: its configuration, its twins, and the reading of its windows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::EngineError;
use super::delivery::Delivery;
use super::deploy::LoadedProbe;
use super::events::{EventLoop, ProbeEvents};
use super::reading::{Running, readers};
use super::status::ProbeStatus;
use crate::config::{ConfigDocument, ProbeConfig};
use crate::kernel::{Attached, Kernel, KernelError};
use crate::report::Finding;

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
    document: ConfigDocument,
    created: Timestamp,
    warnings: Vec<Finding>,
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

impl Probe {
    /// Attaches a loaded probe, in the place of `old` if it is running.
    pub(super) fn attach(
        kernel: &Arc<Kernel>,
        event_loop: &EventLoop,
        config: ProbeConfig,
        document: ConfigDocument,
        loaded: LoadedProbe,
        old: Option<&Self>,
    ) -> Result<Self, EngineError> {
        let readers = readers(&config, &loaded)?;
        let events = ProbeEvents::open(&config, &loaded, event_loop)?;
        let mut old_state = old.map(Self::lock);
        let replaces = match old_state.as_deref() {
            Some(State::Running(running)) => Some(running.attached()),
            _ => None,
        };
        let attached = Attached::attach(kernel, loaded.directions, &loaded.interfaces, replaces)?;
        if let Some(state) = old_state.as_deref_mut() {
            *state = State::Gone;
        }
        if let Some(old) = old {
            old.close_events();
        }
        let opened = Timestamp::now();
        let name = config.name().to_owned();
        let running = Running::new(config, attached, readers, opened);
        Ok(Self {
            name,
            document,
            created: opened,
            warnings: loaded.warnings,
            events: Some(events),
            state: Mutex::new(State::Running(Box::new(running))),
        })
    }

    /// A stored probe that could not be deployed.
    pub(super) fn failed(name: &str, document: ConfigDocument, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            document,
            created: Timestamp::now(),
            warnings: Vec::new(),
            events: None,
            state: Mutex::new(State::Failed(reason)),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn status(&self) -> ProbeStatus {
        let state = self.lock();
        let (attached, reason) = match &*state {
            State::Running(running) => (Some(running.attached()), None),
            State::Failed(reason) => (None, Some(reason.clone())),
            State::Gone => (None, Some("replaced or deleted".to_owned())),
        };
        let status =
            ProbeStatus::new(&self.name, &self.document, self.created, &self.warnings, attached, reason);
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
