//! The messages about changes: the state of each probe, each closed window, and what interfaces count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use hyper::body::Bytes;
use serde::Serialize;
use twinprobe_client::ProbeStatus;
use twinprobe_ebpf_common::window::{Entry, Statistics};
use twinprobe_kernel::clock::{Moment, rfc3339};
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::traffic::{self, Traffic};
use twinprobe_serve::Principal;
use twinprobe_windows::Closed;

use crate::engine::engine::Engine;

/// The number of interfaces without a probe that those are told of who may deploy one.
const OTHERS: usize = 64;

/// The first message.
#[derive(Serialize)]
struct Hello<'a> {
    node: &'a str,
    version: &'a str,
    who: String,
    role: Option<String>,
}

#[derive(Serialize)]
struct Removed<'a> {
    probe: &'a str,
}

#[derive(Serialize)]
struct Window<'a> {
    probe: &'a str,
    window: &'a Entry,
    /// `None` if the probe is gone, as after the last window of a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    windows: Option<Statistics>,
}

#[derive(Serialize)]
struct Missed {
    windows: u64,
}

/// The counts of interfaces so far.
#[derive(Serialize)]
struct Counts {
    time: String,
    interfaces: Vec<Counted>,
}

#[derive(Serialize)]
struct Counted {
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<PathBuf>,
    interface: String,
    ifindex: u32,
    received: Amount,
    sent: Amount,
}

#[derive(Serialize)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Engine {
    /// Returns the first message to a client.
    pub fn hello(&self, by: &Principal) -> Bytes {
        let hello = Hello {
            node: &self.node,
            version: env!("CARGO_PKG_VERSION"),
            who: by.who.to_string(),
            role: by.role.map(|role| role.to_string()),
        };
        message("hello", &hello)
    }

    /// Returns the message about what interfaces have counted; see [`Self::count`].
    pub fn counts(&self, all: bool) -> Bytes {
        let interfaces = self.count(all);
        message("traffic", &Counts { time: rfc3339(Moment::now().wall), interfaces })
    }

    /// Counts what the interfaces that probes are attached to have received and sent.
    /// With `all`, also the other interfaces of the daemon's own namespace, up to [`OTHERS`].
    fn count(&self, all: bool) -> Vec<Counted> {
        let mut wanted: BTreeMap<Option<PathBuf>, BTreeSet<u32>> = BTreeMap::new();
        if all {
            wanted.insert(None, BTreeSet::new());
        }
        for probe in self.list() {
            let Some(namespace) = &probe.namespace else { continue };
            let attached = probe.shown.lock().indices().collect();
            wanted.entry(namespace.clone()).or_default().append(&mut { attached });
        }
        let mut counted = Vec::new();
        for (netns, indices) in wanted {
            let opened = netns.as_deref().map_or_else(Netns::own, Netns::open);
            // An interface that can't be counted is left out, as one that has gone.
            let present = opened.and_then(|netns| traffic::traffic(&netns)).unwrap_or_default();
            let of = |one: Traffic| Counted {
                netns: netns.clone(),
                interface: one.name,
                ifindex: one.index,
                received: Amount { packets: one.received_packets, bytes: one.received_bytes },
                sent: Amount { packets: one.sent_packets, bytes: one.sent_bytes },
            };
            let mut others = if all && netns.is_none() { OTHERS } else { 0 };
            let mut is_told = |one: &Traffic| {
                let is_other = !indices.contains(&one.index);
                let fits = !is_other || others > 0;
                others -= usize::from(is_other && fits);
                fits
            };
            counted.extend(present.into_iter().filter(|one| is_told(one)).map(of));
        }
        counted
    }
}

/// The status of a probe as clients were told it.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The status without the figures about windows, which come with each window.
    status: String,
    pub windows: Statistics,
}

impl Known {
    pub fn of(status: &ProbeStatus) -> Self {
        let mut rest = status.clone();
        let windows = std::mem::take(&mut rest.windows.statistics);
        Self { status: serde_json::to_string(&rest).unwrap_or_default(), windows }
    }
}

pub fn probe(status: &ProbeStatus) -> Bytes {
    message("probe", status)
}

pub fn listed() -> Bytes {
    message("listed", &serde_json::Map::new())
}

pub fn removed(probe: &str) -> Bytes {
    message("removed", &Removed { probe })
}

pub fn window(closed: &Closed, windows: Option<Statistics>) -> Bytes {
    message("window", &Window { probe: &closed.probe, window: &closed.window, windows })
}

pub fn missed(windows: u64) -> Bytes {
    message("missed", &Missed { windows })
}

/// A server-sent event.
fn message(event: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\ndata: {data}\n\n").into()
}
