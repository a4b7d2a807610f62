//! The agent beside a daemon: it reads assignments, deploys their probes on the daemon, and
//! reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use kube::core::PartialObjectMeta;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::watch;
use twinprobe_client::{Client, Credentials};
use twinprobe_ebpf_common::finding::with_causes;

use crate::node::due::{Pending, REST};
use crate::node::folder::{HeldProbe, NodeFolder};
use crate::node::follow::{Followed, Seen, follow, random};
use crate::node::options::NodeOptions;
use crate::node::pods::{PodFollower, needs_namespaces};
use crate::node::server::{ApiServer, ApiServerError};
use crate::objects::nodes::ProbeAssignment;

/// The time between two looks at a probe whose cost is not known yet.
pub const SOON: Duration = Duration::from_millis(500);
/// The number of changes that may wait for the agent; if that many wait, the watch waits as well.
const CHANGES: usize = 64;

/// The agent of one node.
pub struct NodeAgent {
    pub options: NodeOptions,
    /// The release of the node's kernel.
    pub kernel: Option<String>,
    pub server: Arc<ApiServer>,
    pub daemon: Client,
    pub folder: NodeFolder,
    /// The node's labels; `None` until they are known, and with them the probes for the node.
    pub labels: Option<BTreeMap<String, String>>,
    pub held: BTreeMap<String, HeldProbe>,
    pub pending: BTreeMap<String, Pending>,
    /// True if the node's kernel has XDP programs for packets of several buffers; `None` before the
    /// agent has asked the daemon.
    pub frags: Option<bool>,
    /// The time of the next look at each probe.
    due: BTreeMap<String, Instant>,
}

/// Runs the agent until it is told to end. Probes continue to run after that.
pub async fn run_node(options: NodeOptions) -> anyhow::Result<()> {
    let server = Arc::new(ApiServer::new(&options.server)?);
    let folder = NodeFolder::open(&options.state_dir)?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let mut agent = NodeAgent {
        kernel: kernel.map(|release| release.trim().to_owned()),
        daemon: Client::new(options.daemon.clone(), &Credentials::default())?,
        labels: folder.labels()?,
        held: folder.probes()?,
        pending: BTreeMap::new(),
        frags: None,
        due: BTreeMap::new(),
        server: Arc::clone(&server),
        folder,
        options,
    };
    agent.due = agent
        .held
        .keys()
        .map(|name| (name.clone(), Instant::now()))
        .collect();
    let (assignments, mut assigned) = channel(CHANGES);
    let (nodes, mut described) = channel(CHANGES);
    let this = Followed {
        path: Node::url_path(&(), None),
        fields: Some(format!("metadata.name={}", agent.options.node_name)),
        is_metadata: true,
    };
    let all = Followed {
        path: ProbeAssignment::url_path(&(), None),
        fields: None,
        is_metadata: false,
    };
    // Without `--pods` no task reads this channel.
    let (asks, asked) = watch::channel(false);
    if agent.options.pods {
        let services = agent.options.services;
        let pods = PodFollower::new(Arc::clone(&server), agent.daemon.clone(), asked, services);
        let node = agent.options.node_name.clone();
        tokio::spawn(async move { pods.run(&node).await });
    }
    let follows_node = Arc::clone(&server);
    tokio::spawn(async move { follow(&follows_node, &this, &nodes).await });
    tokio::spawn(async move { follow(&server, &all, &assignments).await });
    let mut ended = signal(SignalKind::terminate()).context("signals")?;
    tracing::info!(node = agent.options.node_name, "the agent runs");
    loop {
        tokio::select! {
            () = agent.next_change(&mut assigned, &mut described) => {}
            _ = ended.recv() => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
        agent.settle_all().await;
        let needs = needs_namespaces(agent.held.values());
        asks.send_if_modified(|asked| std::mem::replace(asked, needs) != needs);
    }
}

impl NodeAgent {
    /// Waits for a change or for the time of the next look at a probe, and takes the changes that
    /// arrive until then.
    async fn next_change(
        &mut self,
        assigned: &mut Receiver<Seen<ProbeAssignment>>,
        described: &mut Receiver<Seen<PartialObjectMeta<Node>>>,
    ) {
        let next = self.due.values().min().copied();
        let wait = next.map_or(REST, |next| next.saturating_duration_since(Instant::now()));
        tokio::select! {
            Some(change) = assigned.recv() => self.take(change),
            Some(change) = described.recv() => self.describe(change),
            () = tokio::time::sleep(wait) => {}
        }
        while let Ok(change) = assigned.try_recv() {
            self.take(change);
        }
        while let Ok(change) = described.try_recv() {
            self.describe(change);
        }
    }

    fn take(&mut self, change: Seen<ProbeAssignment>) {
        match change {
            Seen::All(all) => {
                let names: Vec<_> = all
                    .iter()
                    .filter_map(|it| it.metadata.name.clone())
                    .collect();
                let gone: Vec<_> = self
                    .held
                    .keys()
                    .filter(|name| !names.contains(name))
                    .cloned()
                    .collect();
                gone.iter().for_each(|name| self.assign(name, None));
                all.into_iter().for_each(|one| self.take(Seen::One(one)));
            }
            Seen::One(one) => {
                let name = one.metadata.name.clone().unwrap_or_default();
                self.assign(&name, Some(one));
            }
            Seen::Gone(one) => self.assign(&one.metadata.name.unwrap_or_default(), None),
        }
    }

    /// Takes over an assignment, or its removal.
    fn assign(&mut self, name: &str, assignment: Option<ProbeAssignment>) {
        let held = self.held.entry(name.to_owned()).or_default();
        let uid = assignment.as_ref().and_then(|it| it.metadata.uid.clone());
        let assignment = assignment.map(|assignment| assignment.spec.0);
        if uid.is_some() && held.uid != uid {
            // Somebody has deleted the object and made a new one with the same name. The reports
            // were deleted with the old object.
            held.reported = None;
            held.uid = uid;
        }
        if held.assignment != assignment {
            let spread = assignment
                .as_ref()
                .map_or(0, |assignment| assignment.spread_ms);
            self.server.learn_spread(spread);
            let wait = random(Duration::from_millis(spread.into()));
            held.assignment = assignment;
            self.due.insert(name.to_owned(), Instant::now() + wait);
        }
        self.keep(name);
    }

    fn describe(&mut self, change: Seen<PartialObjectMeta<Node>>) {
        let node = match change {
            Seen::All(all) => all.into_iter().next(),
            Seen::One(one) => Some(one),
            Seen::Gone(_) => None,
        };
        // A missing node has no labels that select probes. The node's probes stay until the node
        // returns.
        let Some(node) = node else { return };
        let labels = node.metadata.labels.unwrap_or_default();
        if self.labels.as_ref() != Some(&labels) {
            if let Err(error) = self.folder.keep_labels(&labels) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the node's labels can't be kept"
                );
            }
            self.labels = Some(labels);
            self.due = self
                .held
                .keys()
                .map(|name| (name.clone(), Instant::now()))
                .collect();
        }
    }

    /// Sets the time of the next look at a probe or rule to `then`.
    pub fn look_at(&mut self, name: &str, then: Instant) {
        self.due.insert(name.to_owned(), then);
    }

    /// Looks at each due probe.
    async fn settle_all(&mut self) {
        let now = Instant::now();
        let names: Vec<String> = self.held.keys().cloned().collect();
        for name in names {
            if self.due.get(&name).is_none_or(|due| *due > now) {
                continue;
            }
            let wait = match self.settle(&name).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(
                        probe = name,
                        error = with_causes(&*error),
                        "an assignment failed and is tried again"
                    );
                    Some(self.wait_after(&name, &error))
                }
            };
            match wait {
                Some(wait) => drop(self.due.insert(name, Instant::now() + wait)),
                None => drop(self.due.remove(&name)),
            }
        }
    }

    /// Returns the time until the next attempt. The API server serves the requests of all nodes,
    /// while the daemon serves only this agent.
    fn wait_after(&mut self, name: &str, error: &anyhow::Error) -> Duration {
        match error.downcast_ref::<ApiServerError>() {
            Some(_) => self.pending.entry(name.to_owned()).or_default().put_off(),
            None => SOON * 4,
        }
    }

    /// Writes the record of a probe to disk. After a failure the record stays in memory, and is
    /// written with the next change.
    pub fn keep(&self, name: &str) {
        let Some(held) = self.held.get(name) else {
            return;
        };
        if let Err(error) = self.folder.keep(name, held) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                probe = name,
                error,
                "an assignment can't be kept on the node's disk"
            );
        }
    }
}
