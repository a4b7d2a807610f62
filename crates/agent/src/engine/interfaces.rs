//! Following of interfaces: when an interface appears, the probes that name it are attached; when it disappears, they
//! wait for it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_kernel::interface::{self, Interfaces};
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::watch::{Changes, Event, PlaceWatch};
use twinprobe_kernel::{Interface, NotAttached};

use super::Engine;
use super::placement::{Pending, Placement, place, place_first};
use crate::config::ProbeConfig;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};

/// The interval at which a failed attachment is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// The interval of the check that attachments still exist: the kernel does not report the removal of a BPF link.
const LOOK: Duration = Duration::from_secs(2);

/// A network namespace: the daemon's own, or that of a path.
pub(super) type Namespace = Option<PathBuf>;

/// The tasks that wait for interfaces, one for each namespace that a probe is in, and the task that checks attachments.
#[derive(Debug, Default)]
pub(super) struct Watches {
    namespaces: Mutex<BTreeMap<Namespace, AbortHandle>>,
    looks: OnceLock<()>,
}

/// The interfaces a probe is to be attached to.
#[derive(Debug)]
pub(super) struct Wanted {
    pub interfaces: Vec<Interface>,
    pub pending: Vec<Pending>,
    /// The reason why the interfaces can't be listed. While there is one, the other fields do not mean that interfaces
    /// are missing.
    pub unlisted: Option<String>,
}

/// The reason why a namespace's interfaces are not listed.
#[derive(Debug)]
struct Unlisted {
    error: io::Error,
    /// True if the namespace is known not to exist, and so no interface in it.
    gone: bool,
}

/// Returns the interfaces that exist now. Without `first`, missing interfaces are waited for, whatever the
/// configuration says. May have to wait for the namespace's path.
pub(super) fn wanted(config: &ProbeConfig, first: bool) -> Result<Wanted, Rejection> {
    let listed = listing(config.netns());
    let unlisted = listed.as_ref().err().filter(|unlisted| !unlisted.gone);
    let unlisted = unlisted.map(|Unlisted { error, .. }| format!("the interfaces can't be listed: {error}"));
    if let Some(reason) = unlisted.as_ref().filter(|_| first) {
        let field = if config.netns().is_some() { "netns" } else { "interface" };
        return Err(Finding::new(Stage::Attach, field, format!("{reason}; try again")).into());
    }
    let interfaces = listed.as_ref().map(|(_, interfaces)| interfaces).map_err(|unlisted| &unlisted.error);
    let Placement { wanted, pending } =
        if first { place_first(config, interfaces)? } else { place(config, interfaces) };
    let Ok((netns, _)) = &listed else { return Ok(Wanted { interfaces: Vec::new(), pending, unlisted }) };
    let named = |name: &str| {
        config.patterns().iter().any(|pattern| !pattern.is_pattern() && pattern.as_str() == name)
    };
    let interfaces = wanted
        .into_iter()
        .map(|(name, index)| {
            let required = first && named(&name);
            Interface { netns: netns.clone(), name, index, required }
        })
        .collect();
    Ok(Wanted { interfaces, pending, unlisted })
}

/// Returns the names of a namespace's interfaces by index; `None` if the interfaces can't be listed.
pub(super) fn names(namespace: Option<&Path>) -> Option<HashMap<u32, String>> {
    let (_, interfaces) = listing(namespace).ok()?;
    Some(interfaces.by_name().iter().map(|(name, index)| (*index, name.clone())).collect())
}

fn listing(namespace: Option<&Path>) -> Result<(Netns, Interfaces), Unlisted> {
    let opened = namespace.map_or_else(Netns::own, Netns::open);
    let netns = opened.map_err(|error| Unlisted { gone: Netns::is_not_there(&error), error })?;
    let interfaces = interface::list(&netns).map_err(|error| Unlisted { error, gone: false })?;
    Ok((netns, interfaces))
}

/// Logs and returns the interfaces that exist and that a probe could not be attached to.
pub(super) fn refused(failed: Vec<NotAttached>) -> Vec<Pending> {
    let pending = |NotAttached { interface, error }| {
        let reason = with_causes(&error);
        tracing::warn!(interface, reason, "a probe could not be attached");
        Pending { interface, reason }
    };
    failed.into_iter().map(pending).collect()
}

impl Engine {
    /// Starts to wait for the interfaces of every probe's namespace, and stops where no probe is left.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut used: Vec<Namespace> = self.list().iter().filter_map(|probe| probe.namespace()).collect();
        used.sort();
        used.dedup();
        self.watches.looks.get_or_init(|| self.look_after());
        let mut watches = self.watches.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
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
                    let mut event = Some(Event::Namespace);
                    loop {
                        let Some(engine) = engine.upgrade() else { return };
                        let changes = match event {
                            Some(Event::Links(changes)) => changes,
                            Some(Event::Namespace) => Changes::unknown(),
                            None => Changes::default(),
                        };
                        if changes.links || engine.is_waiting(&namespace) {
                            Arc::clone(&engine).follow(namespace.clone(), changes).await;
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

    /// Tells whether a probe of the namespace waits to be attached to an interface.
    fn is_waiting(&self, namespace: &Namespace) -> bool {
        self.list().iter().any(|probe| probe.namespace().as_ref() == Some(namespace) && probe.is_waiting())
    }

    /// Attaches and detaches the probes of a namespace according to its present interfaces.
    async fn follow(self: Arc<Self>, namespace: Namespace, changes: Changes) {
        let change = Arc::clone(&self.changes).lock_owned().await;
        let followed = tokio::task::spawn_blocking(move || {
            let _change = change;
            let probes = self.list().into_iter();
            probes
                .filter(|probe| probe.namespace().as_ref() == Some(&namespace))
                .for_each(|probe| probe.follow(&changes));
            self.settle_again();
        });
        if let Err(error) = followed.await {
            tracing::error!(%error, "probes could not follow their interfaces");
        }
    }

    /// Starts the task that checks at intervals of [`LOOK`] whether attachments still exist.
    fn look_after(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(engine) = engine.upgrade() else { return };
                engine.look().await;
            }
        });
    }

    async fn look(self: &Arc<Self>) {
        let kernel = Arc::clone(&self.kernel);
        if let Err(error) = tokio::task::spawn_blocking(move || kernel.look()).await {
            tracing::error!(%error, "attachments could not be checked");
        }
    }

    /// Has the probes look again for the interfaces that they could not list when they were adopted; then the kernel
    /// can remove attachments that no probe claims. Must be called while nothing else changes.
    pub(super) fn settle_again(&self) {
        if self.kernel.is_unsettled() {
            self.list().iter().for_each(|probe| probe.follow(&Changes::default()));
            self.kernel.settle_again(self.is_unsure());
        }
    }

    /// Tells whether a running probe does not know where its interfaces are.
    fn is_unsure(&self) -> bool {
        self.list().iter().any(|probe| probe.is_unsure())
    }
}
