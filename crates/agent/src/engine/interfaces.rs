//! Probes follow their interfaces: where one comes, the probes that want it are attached; where one goes, they
//! wait for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::Engine;
use super::placement::{Pending, Placement, place, place_first};
use crate::config::ProbeConfig;
use crate::kernel::interface::{self, Interfaces};
use crate::kernel::netns::Netns;
use crate::kernel::watch::{Changes, Event, PlaceWatch};
use crate::kernel::{Interface, NotAttached, with_causes};
use crate::report::Rejection;

/// How often it is tried again to attach where something was in the way.
const AGAIN: Duration = Duration::from_secs(5);

/// A network namespace: the daemon's own, or that of a path.
type Namespace = Option<PathBuf>;

/// The tasks that wait for interfaces, one for each namespace that a probe is in.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<BTreeMap<Namespace, AbortHandle>>);

/// The interfaces a probe is to be attached to.
#[derive(Debug)]
pub(super) struct Wanted {
    pub interfaces: Vec<Interface>,
    pub pending: Vec<Pending>,
}

/// What there is now. Without `first` what is missing is waited for, whatever the configuration says.
pub(super) fn wanted(config: &ProbeConfig, first: bool) -> Result<Wanted, Rejection> {
    let listed = listing(config.netns());
    let interfaces = listed.as_ref().map(|(_, interfaces)| interfaces);
    let Placement { wanted, pending } =
        if first { place_first(config, interfaces)? } else { place(config, interfaces) };
    let Ok((netns, _)) = &listed else { return Ok(Wanted { interfaces: Vec::new(), pending }) };
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
    Ok(Wanted { interfaces, pending })
}

/// The names of a namespace's interfaces by index.
pub(super) fn names(namespace: Option<&Path>) -> std::collections::HashMap<u32, String> {
    let by_index = |(_, interfaces): (Netns, Interfaces)| {
        interfaces.by_name().iter().map(|(name, index)| (*index, name.clone())).collect()
    };
    listing(namespace).map(by_index).unwrap_or_default()
}

fn listing(namespace: Option<&Path>) -> std::io::Result<(Netns, Interfaces)> {
    let netns = namespace.map_or_else(Netns::own, Netns::open)?;
    let interfaces = interface::list(&netns)?;
    Ok((netns, interfaces))
}

/// What keeps a probe off an interface that is there.
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
        let mut watches = self.watches.0.lock().unwrap_or_else(PoisonError::into_inner);
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
                    let mut watch = PlaceWatch::new(namespace.as_deref());
                    // What has changed before the watch began is seen by looking once.
                    let mut event = Some(Event::Namespace);
                    loop {
                        let Some(engine) = engine.upgrade() else { return };
                        if event.is_some() || engine.is_waiting(namespace.clone()).await {
                            let changes = match event {
                                Some(Event::Links(changes)) => changes,
                                Some(Event::Namespace) => Changes::unknown(),
                                None => Changes::default(),
                            };
                            Arc::clone(&engine).follow(namespace.clone(), changes).await;
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

    /// Whether a probe could not be attached to an interface of the namespace.
    async fn is_waiting(self: &Arc<Self>, namespace: Namespace) -> bool {
        let probes = self.list();
        let mut probes =
            probes.into_iter().filter(move |probe| probe.namespace().as_ref() == Some(&namespace));
        // A probe that is being read keeps its lock.
        tokio::task::spawn_blocking(move || probes.any(|probe| probe.is_waiting())).await.unwrap_or(false)
    }

    /// Attaches and detaches the probes of a namespace as its interfaces are now.
    async fn follow(self: Arc<Self>, namespace: Namespace, changes: Changes) {
        let change = Arc::clone(&self.changes).lock_owned().await;
        let followed = tokio::task::spawn_blocking(move || {
            let _change = change;
            let probes = self.list().into_iter();
            probes
                .filter(|probe| probe.namespace().as_ref() == Some(&namespace))
                .for_each(|probe| probe.follow(&changes));
        });
        if let Err(error) = followed.await {
            tracing::error!(%error, "probes could not follow their interfaces");
        }
    }
}
