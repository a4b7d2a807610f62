//! The pods of the node, for the daemon. The agent reads only their metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::core::PartialObjectMeta;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use twinprobe_api::{PodEntry, PodTable, Workload};
use twinprobe_client::Client;
use twinprobe_ebpf_common::finding::with_causes;

use crate::node::folder::HeldProbe;
use crate::node::follow::{Described, Followed, Seen, follow, pause};
use crate::node::server::ApiServer;
use crate::node::services::ServiceTable;

/// The time for which changes are gathered into one table: a pod changes several times in its first
/// second.
const TOGETHER: Duration = Duration::from_millis(30);
/// The time between two requests that check whether the daemon still has the table.
const AGAIN: Duration = Duration::from_secs(30);
/// The longest time that a table waits for the labels of namespaces. Without these labels, pods
/// that are selected by them are missing.
const NAMESPACES: Duration = Duration::from_secs(10);
/// The most pods that a daemon accepts.
const MOST: usize = 1024;
/// The number of changes that may wait.
const CHANGES: usize = 64;

/// The annotation of a pod that the kubelet has read from a file. The hash of the file names the
/// cgroup of such a pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
const HASH: &str = "kubernetes.io/config.hash";
const TEMPLATE_HASH: &str = "pod-template-hash";

type PodLabels = BTreeMap<String, String>;
/// The changes of a kind of objects, and the task that watches it.
type WatchedKind<K> = (Receiver<Seen<K>>, AbortHandle);

/// The task that follows the pods of a node.
pub struct PodFollower {
    server: Arc<ApiServer>,
    daemon: Client,
    /// True while a probe of this node asks for the labels of namespaces.
    needs_namespaces: watch::Receiver<bool>,
    /// The pods by namespace and name; `None` until all are known.
    pods: Option<BTreeMap<(String, String), PodEntry>>,
    /// The labels of namespaces; `None` until all are known.
    namespaces: Option<BTreeMap<String, PodLabels>>,
    watched: Option<WatchedKind<PartialObjectMeta<Namespace>>>,
    /// The Services of the cluster; `None` unless the agent follows them.
    services: Option<ServiceTable>,
    /// The table that the daemon has now.
    told: Option<PodTable>,
    failures: u32,
    due: Instant,
    since: Instant,
}

/// Tells whether a probe of the node asks for the labels of namespaces.
pub fn needs_namespaces<'a>(mut held: impl Iterator<Item = &'a HeldProbe>) -> bool {
    held.any(|held| {
        let asks = |config: &serde_json::Value| {
            let labels = config
                .pointer("/pods/namespace_labels")
                .and_then(|labels| labels.as_object());
            labels.is_some_and(|labels| !labels.is_empty())
        };
        held.assignment.is_some()
            && held
                .revisions
                .values()
                .any(|revision| asks(&revision.config))
    })
}

impl PodFollower {
    /// A follower that tells the daemon of pods, and of `services` as well.
    pub fn new(
        server: Arc<ApiServer>,
        daemon: Client,
        needs_namespaces: watch::Receiver<bool>,
        services: bool,
    ) -> Self {
        let now = Instant::now();
        Self {
            server,
            daemon,
            needs_namespaces,
            pods: None,
            namespaces: None,
            watched: None,
            services: services.then(ServiceTable::default),
            told: None,
            failures: 0,
            due: now + AGAIN,
            since: now,
        }
    }

    /// Follows the pods of a node until the agent ends.
    pub async fn run(mut self, node: &str) {
        // A pod that has ended has no processes, so it is not followed.
        let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
        let all = Followed {
            path: Pod::url_path(&(), None),
            fields: Some(fields),
            is_metadata: true,
        };
        let mut pods = Some(self.watch(all));
        let mut services = self.watch_services();
        loop {
            self.watch_namespaces();
            tokio::select! {
                Some(change) = next(&mut pods) => self.take(change),
                Some(change) = next(&mut self.watched) => self.describe(change),
                Some(change) = next(&mut services) => {
                    self.services.get_or_insert_default().take(change);
                    self.change();
                }
                Ok(()) = self.needs_namespaces.changed() => self.since = Instant::now(),
                () = tokio::time::sleep_until(self.due.into()) => self.tell().await,
                else => return,
            }
        }
    }

    /// Begins the watch of Services if the agent follows them.
    fn watch_services(&self) -> Option<WatchedKind<Service>> {
        self.services
            .is_some()
            .then(|| self.watch(ServiceTable::followed()))
    }

    fn watch<K: Described + Send + Sync + 'static>(&self, what: Followed) -> WatchedKind<K> {
        let (changes, seen) = channel(CHANGES);
        let server = Arc::clone(&self.server);
        let watch = tokio::spawn(async move { follow(&server, &what, &changes).await });
        (seen, watch.abort_handle())
    }

    /// Begins and ends the watch of namespaces, as probes need it.
    fn watch_namespaces(&mut self) {
        let is_needed = *self.needs_namespaces.borrow_and_update();
        if is_needed == self.watched.is_some() {
            return;
        }
        if let Some((_, watch)) = self.watched.take() {
            watch.abort();
            self.namespaces = None;
            return;
        }
        let all = Followed {
            path: Namespace::url_path(&(), None),
            fields: None,
            is_metadata: true,
        };
        self.watched = Some(self.watch(all));
    }

    fn take(&mut self, change: Seen<PartialObjectMeta<Pod>>) {
        let pods = match change {
            Seen::All(all) => self.pods.insert(
                all.into_iter()
                    .filter_map(|pod| entry(pod.metadata))
                    .collect(),
            ),
            Seen::One(pod) => {
                let pods = self.pods.get_or_insert_default();
                pods.extend(entry(pod.metadata));
                pods
            }
            Seen::Gone(pod) => {
                let pods = self.pods.get_or_insert_default();
                if let Some((key, _)) = entry(pod.metadata) {
                    pods.remove(&key);
                }
                pods
            }
        };
        tracing::debug!(pods = pods.len(), "the node's pods have changed");
        self.change();
    }

    fn describe(&mut self, change: Seen<PartialObjectMeta<Namespace>>) {
        let labels =
            |namespace: ObjectMeta| Some((namespace.name?, namespace.labels.unwrap_or_default()));
        match change {
            Seen::All(all) => {
                let all = all
                    .into_iter()
                    .filter_map(|namespace| labels(namespace.metadata));
                self.namespaces = Some(all.collect());
            }
            Seen::One(namespace) => {
                self.namespaces
                    .get_or_insert_default()
                    .extend(labels(namespace.metadata));
            }
            Seen::Gone(namespace) => {
                if let (Some(known), Some(name)) = (&mut self.namespaces, namespace.metadata.name) {
                    known.remove(&name);
                }
            }
        }
        self.change();
    }

    /// Reports a change to the daemon, together with changes that follow soon.
    fn change(&mut self) {
        if self.failures == 0 {
            self.due = self.due.min(Instant::now() + TOGETHER);
        }
    }

    /// Sends the table to the daemon, unless the daemon has it already.
    async fn tell(&mut self) {
        self.due = Instant::now() + AGAIN;
        let waits = self.watched.is_some() && self.namespaces.is_none();
        if waits && self.since.elapsed() < NAMESPACES {
            self.due = self.since + NAMESPACES;
            return;
        }
        let Some(table) = self.table() else { return };
        let done = match &self.told {
            // The daemon may have started again with an empty state.
            Some(told) if *told == table && self.has(&table).await => Ok(()),
            _ => self.daemon.put_pods(&table).await.map(drop),
        };
        match done {
            Ok(()) => (self.told, self.failures) = (Some(table), 0),
            Err(error) => {
                self.failures += 1;
                tracing::warn!(
                    error = with_causes(&error),
                    "the daemon does not accept the pods; the agent tries again"
                );
                self.due = Instant::now() + pause(self.failures).min(AGAIN);
            }
        }
    }

    async fn has(&self, table: &PodTable) -> bool {
        let Ok(list) = self.daemon.pods().await.and_then(|answer| answer.read()) else {
            return false;
        };
        let known: BTreeSet<&str> = list.pods.iter().map(|pod| &*pod.uid).collect();
        known == table.pods.iter().map(|pod| &*pod.uid).collect()
            && list.services == table.services.len()
    }

    /// Returns the table; `None` until all pods are known.
    fn table(&self) -> Option<PodTable> {
        let all = self.pods.as_ref()?;
        if all.len() > MOST {
            tracing::warn!(
                pods = all.len(),
                "a daemon accepts {MOST} pods; the others have no names and no probes"
            );
        }
        let described = |pod: &PodEntry| {
            let namespaces = self.namespaces.as_ref();
            let labels = namespaces.and_then(|namespaces| namespaces.get(&pod.namespace));
            PodEntry {
                namespace_labels: labels.cloned().unwrap_or_default(),
                ..pod.clone()
            }
        };
        let services = self
            .services
            .as_ref()
            .map(ServiceTable::entries)
            .unwrap_or_default();
        Some(PodTable {
            pods: all.values().take(MOST).map(described).collect(),
            services,
        })
    }
}

async fn next<K>(watched: &mut Option<WatchedKind<K>>) -> Option<Seen<K>> {
    match watched {
        Some((changes, _)) => changes.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns the description of a pod for the daemon.
fn entry(pod: ObjectMeta) -> Option<((String, String), PodEntry)> {
    let annotation = |name: &str| {
        pod.annotations
            .as_ref()
            .and_then(|all| all.get(name))
            .cloned()
    };
    let hash = annotation(MIRROR).and_then(|_| annotation(HASH));
    let uid = hash.or(pod.uid.clone())?;
    let (namespace, name) = (pod.namespace.clone()?, pod.name.clone()?);
    let workload = workload(&pod);
    let labels = pod.labels.unwrap_or_default();
    let entry = PodEntry {
        uid,
        namespace: namespace.clone(),
        name: name.clone(),
        labels,
        namespace_labels: PodLabels::new(),
        workload,
    };
    Some(((namespace, name), entry))
}

/// Returns the controller of a pod. For a `ReplicaSet` the result is its Deployment, whose name is
/// a part of the ReplicaSet's name.
fn workload(pod: &ObjectMeta) -> Option<Workload> {
    let owners = pod.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let hash = pod
        .labels
        .as_ref()
        .and_then(|labels| labels.get(TEMPLATE_HASH));
    let deployment =
        hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    match (&*owner.kind, deployment) {
        ("ReplicaSet", Some(name)) => Some(Workload {
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
        }),
        // Pods that the kubelet reads from files belong to the node.
        ("Node", _) => None,
        (kind, _) => Some(Workload {
            kind: kind.to_owned(),
            name: owner.name.clone(),
        }),
    }
}

#[cfg(test)]
mod tests;
