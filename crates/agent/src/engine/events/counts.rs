//! The message with the packet counters of interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use hyper::body::Bytes;
use serde::Serialize;
use twinprobe_api::ProbeTraffic;
use twinprobe_kernel::clock::{Moment, rfc3339};
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::traffic::{self, Traffic};

use crate::engine::engine::Engine;
use crate::engine::events::changes::message;

/// The most interfaces without a probe in the message for clients that may deploy probes.
const OTHERS: usize = 64;

/// The counts of interfaces so far.
#[derive(Serialize)]
struct InterfaceCounts {
    time: String,
    interfaces: Vec<CountedInterface>,
}

#[derive(Serialize)]
struct CountedInterface {
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<PathBuf>,
    interface: String,
    ifindex: u32,
    received: PacketsAndBytes,
    sent: PacketsAndBytes,
}

#[derive(Serialize)]
struct PacketsAndBytes {
    packets: u64,
    bytes: u64,
    dropped: u64,
}

impl Engine {
    /// Returns the message with the counters of interfaces; see [`Self::count`].
    pub fn counts(&self, all: bool) -> Bytes {
        let interfaces = self.count(all);
        message(
            "traffic",
            &InterfaceCounts {
                time: rfc3339(Moment::now().wall),
                interfaces,
            },
        )
    }

    /// Adds up the traffic of the interfaces of probes. This may block, because a namespace's path
    /// may be on a slow disk.
    pub fn traffic(&self) -> ProbeTraffic {
        let counted = self.count(false);
        let time = rfc3339(Moment::now().wall);
        let ways = || counted.iter().flat_map(|one| [&one.received, &one.sent]);
        let packets = ways().map(|way| way.packets).fold(0, u64::saturating_add);
        ProbeTraffic {
            time,
            packets,
            bytes: ways().map(|way| way.bytes).fold(0, u64::saturating_add),
        }
    }

    /// Counts the packets that the interfaces of probes have received and sent. With `all`, also
    /// the other interfaces of the daemon's own namespace, up to [`OTHERS`].
    fn count(&self, all: bool) -> Vec<CountedInterface> {
        let mut wanted: BTreeMap<Option<PathBuf>, BTreeSet<u32>> = BTreeMap::new();
        if all {
            wanted.insert(None, BTreeSet::new());
        }
        for probe in self.registry.list() {
            let Some(namespace) = probe.namespace() else {
                continue;
            };
            let attached = probe.shown.lock().indices().collect();
            wanted
                .entry(namespace.clone())
                .or_default()
                .append(&mut { attached });
        }
        let mut counted = Vec::new();
        for (netns, indices) in wanted {
            let opened = netns.as_deref().map_or_else(Netns::own, Netns::open);
            // The message leaves out interfaces that can't be counted, as it leaves out removed
            // ones.
            let present = opened
                .and_then(|netns| traffic::traffic(&netns))
                .unwrap_or_default();
            let of = |one: Traffic| CountedInterface {
                netns: netns.clone(),
                interface: one.name,
                ifindex: one.index,
                received: PacketsAndBytes {
                    packets: one.received_packets,
                    bytes: one.received_bytes,
                    dropped: one.received_dropped,
                },
                sent: PacketsAndBytes {
                    packets: one.sent_packets,
                    bytes: one.sent_bytes,
                    dropped: one.sent_dropped,
                },
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
