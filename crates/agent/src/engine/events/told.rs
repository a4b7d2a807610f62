//! The messages about changes that the clients have received, and the next message of each client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use twinprobe_ebpf_common::window::WindowStatistics;
use twinprobe_windows::Closed;

use crate::engine::events::changes::{self, ToldStatus};
use crate::engine::probe::probe::Probe;

/// The number of unread changes that a client may have before it misses some.
const BEHIND: usize = 1024;

/// The messages that clients have received; `None` while no client follows changes.
#[derive(Debug, Default)]
pub struct Herald(pub Mutex<Option<ChangeTeller>>);

#[derive(Debug)]
pub struct ChangeTeller {
    pub out: broadcast::Sender<ToldChange>,
    pub known: BTreeMap<Arc<str>, ToldStatus>,
    /// The counts that were sent last: to all clients, and to clients who may choose interfaces.
    pub counts: [Option<Bytes>; 2],
    /// A token for each of these two kinds of clients. Each client has a copy of the token of its
    /// kind.
    pub audiences: [Arc<()>; 2],
}

#[derive(Clone, Debug)]
pub struct ToldChange {
    pub about: About,
    pub bytes: Bytes,
}

#[derive(Clone, Debug)]
pub enum About {
    Probe(Arc<str>),
    /// The counts for clients that may choose interfaces (1), or for all other clients (0).
    Counts(usize),
    All,
}

/// A client that follows changes.
pub struct ChangeFollower {
    /// The messages that come first.
    pub first: VecDeque<Bytes>,
    pub changes: broadcast::Receiver<ToldChange>,
    pub only: Option<String>,
    pub audience: usize,
    pub _token: Arc<()>,
    pub has_ended: bool,
}

impl ChangeFollower {
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.first.pop_front() {
                return Some(bytes);
            }
            if self.has_ended {
                return None;
            }
            match self.changes.recv().await {
                Ok(ToldChange { about, bytes }) if self.is_told(&about) => return Some(bytes),
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => {
                    self.has_ended = true;
                    return Some(changes::missed(count));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn is_told(&self, about: &About) -> bool {
        match about {
            About::Probe(name) => self.only.as_ref().is_none_or(|only| **only == **name),
            About::Counts(audience) => *audience == self.audience,
            About::All => true,
        }
    }
}

impl ChangeTeller {
    pub fn new() -> Self {
        let out = broadcast::Sender::new(BEHIND);
        Self {
            out,
            known: BTreeMap::new(),
            counts: [None, None],
            audiences: [Arc::default(), Arc::default()],
        }
    }

    pub fn tell(&self, about: About, bytes: Bytes) {
        // An error means that the last client has hung up.
        let _ = self.out.send(ToldChange { about, bytes });
    }

    /// Announces a window. `windows` is `None` if the probe no longer exists.
    pub fn window(&mut self, closed: &Closed, windows: Option<WindowStatistics>) {
        if let (Some(known), Some(windows)) = (self.known.get_mut(&*closed.probe), windows) {
            known.windows = windows;
        }
        self.tell(
            About::Probe(closed.probe.as_str().into()),
            changes::window(closed, windows),
        );
    }

    /// Sends the statuses that have changed since the last messages. With `listing`, returns the
    /// messages about all probes, or about the named one.
    pub fn look(&mut self, probes: &[Arc<Probe>], listing: Option<Option<&str>>) -> Vec<Bytes> {
        let names: BTreeSet<&str> = probes.iter().map(|probe| &*probe.name).collect();
        let gone: Vec<Arc<str>> = self
            .known
            .keys()
            .filter(|name| !names.contains(&***name))
            .cloned()
            .collect();
        for name in gone {
            self.known.remove(&name);
            let bytes = changes::removed(&name);
            self.tell(About::Probe(name), bytes);
        }
        let mut listed = Vec::new();
        for probe in probes {
            let status = probe.status().without_secrets();
            let known = ToldStatus::of(&status);
            let is_listed = listing.is_some_and(|only| only.is_none_or(|only| only == probe.name));
            let is_new = self.known.get(&*probe.name) != Some(&known);
            if !is_listed && !is_new {
                continue;
            }
            let bytes = changes::probe(&status);
            if is_new {
                let name: Arc<str> = probe.name.as_str().into();
                self.known.insert(Arc::clone(&name), known);
                self.tell(About::Probe(name), bytes.clone());
            }
            if is_listed {
                listed.push(bytes);
            }
        }
        listed
    }
}
