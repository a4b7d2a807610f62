//! Who owns which probe: deploys, replaces, reads and removes them, one change at a time.

mod capabilities;
mod delivery;
mod deploy;
mod events;
mod live;
mod probe;
mod reading;
mod spool;
mod status;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::oneshot;

pub use self::delivery::{Cursor, Delivery, MetricRows};
use self::events::{EventLoop, NoStream, ProbeEvents};
pub use self::events::{EventStream, Framing};
pub use self::probe::{Probe, ReadError};
pub use self::spool::Broken;
pub use self::status::{ProbeStatus, ValidationReport};
use crate::compiler::Compiler;
use crate::config::{ConfigDocument, ProbeConfig};
use crate::kernel::{AttachError, Kernel, KernelError};
use crate::report::{Rejection, Stage};
use crate::store::{Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("there is no probe named {0}")]
    NotFound(String),
    #[error("the configuration was refused")]
    Rejected(Rejection),
    /// Something else is in the way.
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    NoEvents(String),
    #[error("probe {name} is not running: {reason}")]
    NotRunning { name: String, reason: String },
    #[error(
        "the kernel did not verify and load the program within {0:?}; simplify it, and see the kernel's log"
    )]
    LoadStuck(std::time::Duration),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the maps could not be read: {0}")]
    Broken(#[from] Broken),
    #[error("an internal task ended before its time")]
    Task(#[from] tokio::task::JoinError),
}

impl From<Rejection> for EngineError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<AttachError> for EngineError {
    fn from(error: AttachError) -> Self {
        use crate::report::Finding;
        match error {
            AttachError::Occupied(message) => Self::Conflict(message),
            error @ (AttachError::Unsupported(_) | AttachError::Failed { .. }) => {
                let message = crate::kernel::with_causes(&error);
                Self::Rejected(Finding { field: None, ..Finding::new(Stage::Attach, "", message) }.into())
            }
        }
    }
}

/// Whether a PUT made a probe or replaced one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployed {
    Created,
    Replaced,
}

/// All probes of this daemon.
#[derive(Debug)]
pub struct Engine {
    kernel: Arc<Kernel>,
    compiler: Compiler,
    store: Store,
    events: EventLoop,
    probes: RwLock<BTreeMap<String, Arc<Probe>>>,
    /// Held while attachments and the registry change. Tasks own the guard and outlive their request: a client that hangs up leaves no change half done.
    changes: Arc<tokio::sync::Mutex<()>>,
}

impl Engine {
    pub fn new(kernel: Arc<Kernel>, compiler: Compiler, store: Store) -> Arc<Self> {
        Arc::new(Self {
            kernel,
            compiler,
            store,
            events: EventLoop::default(),
            probes: RwLock::default(),
            changes: Arc::default(),
        })
    }

    /// Deploys what the state directory holds. What fails now stays listed, with the reason.
    pub async fn restore(self: &Arc<Self>) -> Result<(), StoreError> {
        for (name, document) in self.store.load()? {
            let result = match document {
                Ok(document) => self.put(&name, document.clone()).await.map(drop).map_err(|error| {
                    let reason = describe(&error);
                    (document, reason)
                }),
                Err(reason) => Err((ConfigDocument::default(), reason)),
            };
            if let Err((document, reason)) = result {
                tracing::error!(probe = name, reason, "a stored probe could not be deployed");
                self.insert(Arc::new(Probe::failed(&name, document, reason)));
            }
        }
        Ok(())
    }

    /// Creates the probe or replaces it between two packets. After an error nothing has changed.
    pub async fn put(
        self: &Arc<Self>,
        name: &str,
        document: ConfigDocument,
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        let config = ProbeConfig::validate(name, &document)?;
        let loaded = self.load(&config).await?;
        let change = Arc::clone(&self.changes).lock_owned().await;
        let (engine, name) = (Arc::clone(self), name.to_owned());
        tokio::task::spawn_blocking(move || {
            let _change = change;
            let pending = engine.store.prepare(&name, &document)?;
            let old = engine.get(&name).ok();
            let probe =
                Probe::attach(&engine.kernel, &engine.events, config, document, loaded, old.as_deref())?;
            if let Err(error) = pending.commit() {
                tracing::error!(probe = name, %error, "the probe runs but will not survive a restart");
            }
            let status = probe.status();
            engine.insert(Arc::new(probe));
            let deployed = if old.is_some() { Deployed::Replaced } else { Deployed::Created };
            tracing::info!(probe = name, ?deployed, "deployed");
            Ok((deployed, status))
        })
        .await?
    }

    /// Compiles and verifies, attaches nothing.
    pub async fn validate(
        self: &Arc<Self>,
        name: &str,
        document: &ConfigDocument,
    ) -> Result<ValidationReport, EngineError> {
        let config = ProbeConfig::validate(name, document)?;
        let loaded = self.load(&config).await?;
        Ok(ValidationReport::new(&config, &loaded))
    }

    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), EngineError> {
        let change = Arc::clone(&self.changes).lock_owned().await;
        let (engine, name) = (Arc::clone(self), name.to_owned());
        tokio::task::spawn_blocking(move || {
            let _change = change;
            let probe = engine.get(&name)?;
            engine.store.remove(&name)?;
            engine.probes.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
            probe.detach();
            tracing::info!(probe = name, "removed");
            Ok(())
        })
        .await?
    }

    /// Algorithm 2 of the paper: flips if a metric asks for it, extracts, resets. A reading whose client went
    /// away before its end is given again first. Its rows follow while the client takes it.
    pub async fn read(self: &Arc<Self>, name: &str) -> Result<Delivery, EngineError> {
        let (engine, name) = (Arc::clone(self), name.to_owned());
        let (sender, begun) = oneshot::channel();
        let reading = tokio::task::spawn_blocking(move || {
            let mut sender = Some(sender);
            let mut deliver = |delivery| {
                // A client that did not wait for its answer leaves the reading to the next one.
                let _ = sender.take().map(|sender| sender.send(delivery));
            };
            loop {
                match engine.get(&name)?.read(&mut deliver) {
                    Ok(()) => return Ok(()),
                    // Replaced or deleted since it was looked up: look again.
                    Err(ReadError::Gone) => {}
                    Err(ReadError::NotRunning(reason)) => {
                        return Err(EngineError::NotRunning { name, reason });
                    }
                    Err(ReadError::Kernel(error)) => return Err(error.into()),
                }
            }
        });
        match begun.await {
            Ok(delivery) => Ok(delivery),
            Err(_) => match reading.await? {
                Err(error) => Err(error),
                Ok(()) => unreachable!("a reading that was made was handed on"),
            },
        }
    }

    /// The events of one metric, or of all, from now on.
    pub async fn stream(
        &self,
        name: &str,
        metric: Option<&str>,
        framing: Framing,
    ) -> Result<EventStream, EngineError> {
        let stopped =
            |reason: &str| EngineError::NotRunning { name: name.to_owned(), reason: reason.to_owned() };
        let mut closed: Option<Arc<Probe>> = None;
        loop {
            let probe = self.get(name)?;
            if closed.is_some_and(|closed| Arc::ptr_eq(&closed, &probe)) {
                return Err(stopped("the daemon is stopping"));
            }
            let events = probe.events().ok_or_else(|| stopped("see its status"))?;
            match events.stream(metric, framing) {
                Ok(stream) => return Ok(stream),
                Err(NoStream::Unknown(known)) => {
                    return Err(EngineError::NoEvents(no_events(name, metric, &known)));
                }
                // Replaced or deleted since it was looked up: look again once that is done.
                Err(NoStream::Closed) => drop(self.changes.lock().await),
            }
            closed = Some(probe);
        }
    }

    /// Ends all streams of events; none begins any more.
    pub fn end_streams(&self) {
        for probe in self.list() {
            probe.events().into_iter().for_each(ProbeEvents::end);
        }
    }

    pub fn get(&self, name: &str) -> Result<Arc<Probe>, EngineError> {
        let probes = self.probes.read().unwrap_or_else(PoisonError::into_inner);
        probes.get(name).cloned().ok_or_else(|| EngineError::NotFound(name.to_owned()))
    }

    /// By name.
    pub fn list(&self) -> Vec<Arc<Probe>> {
        self.probes.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Takes every probe out of the kernel; their configurations stay stored.
    pub async fn detach_all(self: &Arc<Self>) -> Result<(), EngineError> {
        let change = Arc::clone(&self.changes).lock_owned().await;
        let engine = Arc::clone(self);
        Ok(tokio::task::spawn_blocking(move || {
            let _change = change;
            let probes = std::mem::take(&mut *engine.probes.write().unwrap_or_else(PoisonError::into_inner));
            for probe in probes.values() {
                probe.detach();
            }
        })
        .await?)
    }

    fn insert(&self, probe: Arc<Probe>) {
        let name = probe.name().to_owned();
        self.probes.write().unwrap_or_else(PoisonError::into_inner).insert(name, probe);
    }
}

fn no_events(name: &str, metric: Option<&str>, known: &[String]) -> String {
    match metric {
        _ if known.is_empty() => format!(
            "probe {name} has no event metrics, which are those of a RINGBUF or PERF_EVENT_ARRAY; see \
             GET /v1/probes/{name}/metrics for the others"
        ),
        Some(metric) => format!("probe {name} has no event metric {metric}; it has {}", known.join(", ")),
        None => format!("probe {name} has no event metrics"),
    }
}

fn describe(error: &EngineError) -> String {
    match error {
        EngineError::Rejected(rejection) => {
            let messages: Vec<&str> = rejection.findings.iter().map(|f| f.message.as_str()).collect();
            messages.join("; ")
        }
        other => crate::kernel::with_causes(other),
    }
}
