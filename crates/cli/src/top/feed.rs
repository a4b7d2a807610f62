//! Requests of the live view to a daemon: the list of probes and the page for Prometheus. Neither
//! request takes anything from other readers. For a daemon on this machine, the view also reads the
//! counters of the interfaces.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use twinprobe_api::ProbeStatus;
use twinprobe_client::{Client, ClientError};
use twinprobe_ebpf_common::Direction;

/// The answers of one round.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub probes: Vec<ProbeStatus>,
    /// The page in OpenMetrics.
    pub page: String,
    /// The time since the previous page, if there was one.
    pub elapsed: Option<Duration>,
    /// The interfaces of this network namespace by name.
    pub interfaces: BTreeMap<String, InterfaceCounters>,
}

/// The counters of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceCounters {
    pub index: u32,
    pub received: u64,
    pub sent: u64,
}

/// The packets that have passed each interface, by direction.
pub type PlaceCounts = BTreeMap<(u32, Direction), u64>;

/// The source of looks.
#[derive(Debug)]
pub struct Feed<'a> {
    client: &'a Client,
    /// True if the daemon is on this machine.
    is_local: bool,
    last: Option<Instant>,
}

impl<'a> Feed<'a> {
    pub const fn new(client: &'a Client, is_local: bool) -> Self {
        Self {
            client,
            is_local,
            last: None,
        }
    }

    /// Asks the daemon.
    pub async fn look(&mut self) -> Result<Look, ClientError> {
        let page = self.client.scrape().await?;
        let now = Instant::now();
        let elapsed = self.last.replace(now).map(|last| now - last);
        let probes = self.client.probes().await?.read()?.probes;
        let text = if self.is_local {
            std::fs::read_to_string("/proc/self/net/dev")
        } else {
            Ok(String::new())
        };
        let interfaces = interfaces(&text.unwrap_or_default(), index);
        Ok(Look {
            probes,
            page,
            elapsed,
            interfaces,
        })
    }
}

impl Look {
    /// Returns the packets that the interfaces of a probe have seen; `None` unless all are
    /// interfaces of this namespace. The index distinguishes interfaces of the same name in
    /// different namespaces.
    pub fn seen(&self, status: &ProbeStatus) -> Option<u64> {
        let mut seen = None;
        for at in status.interfaces.iter().filter(|at| at.state == "attached") {
            let known = self
                .interfaces
                .get(&at.interface)
                .filter(|known| Some(known.index) == at.ifindex)?;
            let packets = if at.direction == Some(Direction::Egress) {
                known.sent
            } else {
                known.received
            };
            seen = Some(seen.unwrap_or_default() + packets);
        }
        seen
    }

    /// Returns the packets that passed each place with a probe; `None` unless all are interfaces of
    /// this namespace.
    pub fn places(&self) -> Option<PlaceCounts> {
        let mut places = PlaceCounts::new();
        let attached = |probe: &'_ ProbeStatus| {
            probe
                .interfaces
                .clone()
                .into_iter()
                .filter(|at| at.state == "attached")
        };
        for at in self.probes.iter().flat_map(attached) {
            let known = self
                .interfaces
                .get(&at.interface)
                .filter(|known| Some(known.index) == at.ifindex)?;
            let direction = at.direction.unwrap_or(Direction::Ingress);
            let packets = if direction == Direction::Egress {
                known.sent
            } else {
                known.received
            };
            places.insert((known.index, direction), packets);
        }
        (!places.is_empty()).then_some(places)
    }
}

#[cfg(target_os = "linux")]
fn index(name: &str) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};

    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    name_to_index(any, name).ok()
}

/// Daemons run on Linux only, so a daemon is never on this machine.
#[cfg(not(target_os = "linux"))]
const fn index(_: &str) -> Option<u32> {
    None
}

/// Parses `/proc/net/dev`.
fn interfaces(
    text: &str,
    index: impl Fn(&str) -> Option<u32>,
) -> BTreeMap<String, InterfaceCounters> {
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        let (received, sent) = (*numbers.get(1)?, *numbers.get(9)?);
        let name = name.trim();
        Some((
            name.to_owned(),
            InterfaceCounters {
                index: index(name)?,
                received,
                sent,
            },
        ))
    };
    text.lines().filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_interfaces_are_read() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs\n    lo: 100 7 0 0 0 0 0 0 900 8 0 0 0 0 0 0\n";
        let found = interfaces(text, |name| (name == "lo").then_some(1));
        assert_eq!(
            found["lo"],
            InterfaceCounters {
                index: 1,
                received: 7,
                sent: 8
            }
        );
        assert_eq!(found.len(), 1);
    }
}
