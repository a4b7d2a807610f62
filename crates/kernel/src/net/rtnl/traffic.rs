//! The kernel's counters of packets that interfaces have received and sent.

use std::io;

use crate::net::netns::Netns;
use crate::net::rtnl::socket::{LINK_INFO, NetlinkSocket, Request, attributes, text, u32_at};

/// An attribute of `linux/if_link.h`: `struct rtnl_link_stats64`.
const IFLA_STATS64: u16 = 23;

/// Counts of packets and bytes that an interface has received and sent since its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub index: u32,
    pub name: String,
    pub received_packets: u64,
    pub received_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    /// The packets that the interface has received and that the card or the kernel has dropped,
    /// added up as in `/proc/net/dev`.
    pub received_dropped: u64,
    pub sent_dropped: u64,
}

/// Returns the traffic of all interfaces of a namespace. Namespaces with many interfaces take a
/// millisecond for each hundred of them.
pub fn traffic(netns: &Netns) -> io::Result<Vec<Traffic>> {
    let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; LINK_INFO]);
    NetlinkSocket::open(netns)?.ask(&request, one)
}

fn one(payload: &[u8]) -> Option<Traffic> {
    let mut found = Traffic {
        index: u32_at(payload, 4)?,
        ..Traffic::default()
    };
    for (kind, value) in attributes(payload.get(LINK_INFO..)?) {
        match kind {
            libc::IFLA_IFNAME => found.name = text(value),
            IFLA_STATS64 => {
                let word = |place: usize| {
                    let bytes = value
                        .get(8 * place..8 * place + 8)
                        .and_then(|bytes| bytes.try_into().ok());
                    u64::from_ne_bytes(bytes.unwrap_or_default())
                };
                [found.received_packets, found.sent_packets] = [word(0), word(1)];
                [found.received_bytes, found.sent_bytes] = [word(2), word(3)];
                // Missed packets found no room in the card.
                let missed = word(15);
                [found.received_dropped, found.sent_dropped] = [word(6) + missed, word(7)];
            }
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::netns::testing::Named;

    #[test]
    fn what_an_interface_received_and_sent_is_that_of_the_kernel() {
        let named = Named::new();
        let netns = Netns::open(&named.path()).unwrap();
        named.ip("link set lo up");
        let of = |netns: &Netns| {
            traffic(netns)
                .unwrap()
                .into_iter()
                .find(|one| one.name == "lo")
                .unwrap()
        };
        let before = of(&netns);
        let sender = netns
            .run(|| std::net::UdpSocket::bind("127.0.0.1:0"))
            .unwrap()
            .unwrap();
        for _ in 0..3 {
            sender.send_to(&[0; 100], "127.0.0.1:9").unwrap();
        }
        let after = of(&netns);
        assert_eq!(after.index, 1);
        // Three datagrams, each with an answer: no socket listens.
        assert!(
            after.received_packets >= before.received_packets + 3,
            "{before:?} {after:?}"
        );
        assert!(
            after.sent_bytes >= before.sent_bytes + 3 * 128,
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn what_an_interface_throws_away_is_counted_apart() {
        let named = Named::new();
        let netns = Netns::open(&named.path()).unwrap();
        // The other end takes no packets of this length.
        named.ip("link add tpa type veth peer name tpb");
        named.ip("link set tpb mtu 200");
        named.ip("address add 192.0.2.1/24 dev tpa");
        named.ip("link set tpa up");
        named.ip("link set tpb up");
        named.ip("neighbor add 192.0.2.2 lladdr 02:00:00:00:00:01 dev tpa");
        let of = |name: &str| {
            traffic(&netns)
                .unwrap()
                .into_iter()
                .find(|one| one.name == name)
                .unwrap()
        };
        let (sent, received) = (of("tpa"), of("tpb"));
        let sender = netns
            .run(|| std::net::UdpSocket::bind("192.0.2.1:0"))
            .unwrap()
            .unwrap();
        for _ in 0..5 {
            sender.send_to(&[0; 700], "192.0.2.2:9").unwrap();
        }
        assert_eq!(of("tpa").sent_dropped, sent.sent_dropped + 5);
        assert_eq!(of("tpb").received_dropped, received.received_dropped + 5);
    }
}
