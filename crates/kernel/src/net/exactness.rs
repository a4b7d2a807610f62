//! The reasons why a program's numbers differ from those on the wire, because of an interface's
//! work on packets.

use twinprobe_ebpf_common::hook::Hook;

use crate::net::offloads::Offloads;
use crate::plan::sees::Sees;

/// Returns the reasons why the numbers of a program at this hook of the interface are approximate,
/// each with a change that helps. Returns no reason if the numbers equal those on the wire. `mode`
/// is the mode of XDP, if it is known.
pub fn reasons(offloads: &Offloads, hook: Hook, mode: Option<&str>, sees: Sees) -> Vec<String> {
    let reasons = match hook {
        Hook::Xdp => vec![
            tags(offloads, mode, sees),
            uncut_at_xdp(offloads, mode, sees),
            merged_by_card(offloads, sees.counts()),
        ],
        Hook::TcIngress => vec![
            put_together(offloads, sees),
            merged_by_card(offloads, sees.counts()),
            behind_generic_xdp(offloads, sees),
            no_headers(offloads, sees),
        ],
        Hook::TcEgress => vec![uncut(sees)],
    };
    reasons.into_iter().flatten().collect()
}

/// Returns the reason why numbers are approximate if a program has met packets that stand for
/// several frames and have unknown headers.
pub const fn unknown_headers() -> &'static str {
    "packets came that stand for several frames (GRO, GSO), and whose headers are not all known (ESP, SCTP, or a tunnel that \
     twinprobe.h does not follow): some bytes of these headers are not counted; `ethtool -K IFACE gro off` where they are received, \
     `tso off gso off tx-udp-segmentation off` where they are sent, or use XDP"
}

/// Returns the reason why a program can't be attached to the interface; `None` if it can.
pub fn refusal(offloads: &Offloads, sees: Sees) -> Option<String> {
    let Offloads { name, .. } = offloads;
    (sees.ethernet && !offloads.has_ethernet()).then(|| {
        format!(
            "{name} has no Ethernet header (type {}): this program reads one, and would take other bytes for it; attach it to the \
             interface below that carries the packets, and look at them with tp_decapsulate",
            offloads.link_type_name()
        )
    })
}

/// Returns a warning for a program that reads unknown parts of packets; `None` if the interface has
/// an Ethernet header.
pub fn warning(offloads: &Offloads, sees: Sees) -> Option<String> {
    let Offloads { name, .. } = offloads;
    (!sees.is_known && !offloads.has_ethernet()).then(|| {
        format!(
            "{name} has no Ethernet header (type {}): packets begin with what the type says, mostly with the IP header; a program \
             that reads an Ethernet header takes other bytes for it",
            offloads.link_type_name()
        )
    })
}

fn tags(offloads: &Offloads, mode: Option<&str>, sees: Sees) -> Option<String> {
    let Offloads {
        name,
        features,
        peer,
        ..
    } = offloads;
    if !sees.tags && !sees.lengths {
        return None;
    }
    if offloads.is_veth() {
        // The other end alone decides whether the tag is in the packet or beside it.
        return match peer {
            Some((_, features)) if !features.puts_tags => None,
            Some((peer, _)) => Some(format!(
                "XDP does not see VLAN tags that {peer}, the other end of {name}, leaves beside the packet, nor the 4 bytes of each: \
                 `ethtool -K {peer} txvlan off tx-vlan-stag-hw-insert off`, or use the TC hook"
            )),
            None => Some(format!(
                "XDP does not see VLAN tags that the other end of the veth pair {name} leaves beside the packet, nor the 4 bytes of \
                 each: `ethtool -K IFACE txvlan off tx-vlan-stag-hw-insert off` at the other end, or use the TC hook"
            )),
        };
    }
    let takes = features.is_none_or(|features| features.takes_tags);
    // Generic XDP after another interface may have a tag beside the packet.
    let handed_on = mode != Some("native")
        && matches!(offloads.kind.as_deref(), Some("bond" | "bridge" | "team"));
    (takes && !offloads.is_loopback() && offloads.has_ethernet() || handed_on).then(|| {
        format!(
            "{name} takes VLAN tags out before XDP sees the packet (rx-vlan-offload), with 4 bytes of each tagged frame: `ethtool -K \
             {name} rxvlan off`, or use the TC hook"
        )
    })
}

fn uncut_at_xdp(offloads: &Offloads, mode: Option<&str>, sees: Sees) -> Option<String> {
    let Offloads {
        name,
        features,
        peer,
        ..
    } = offloads;
    if !sees.counts() || mode != Some("generic") {
        return None;
    }
    // The kernel cuts packets before it hands them to a sender that can't cut them itself. Then all
    // packets arrive as frames.
    let sender = if offloads.is_loopback() {
        features.as_ref()
    } else {
        peer.as_ref().map(|(_, features)| features)
    };
    let is_handed_on = offloads.is_loopback() || offloads.kind.is_some();
    let arrives_cut = sender.is_some_and(|features| !features.segments);
    (is_handed_on && !arrives_cut).then(|| {
        let change = match peer {
            Some((peer, _)) => format!("`ethtool -K {peer} tso off gso off tx-udp-segmentation off`, "),
            None if offloads.is_loopback() => format!("`ethtool -K {name} tso off gso off tx-udp-segmentation off`, "),
            None => String::new(),
        };
        format!(
            "generic XDP sees packets that {name} gets before they are cut into frames (GSO, up to 64 KiB) as one, with one header: \
             {change}\"mode\": \"native\" where the driver has it, or use the TC hook"
        )
    })
}

fn merged_by_card(offloads: &Offloads, counts: bool) -> Option<String> {
    let Offloads { name, features, .. } = offloads;
    (counts && features.is_some_and(|features| features.lro)).then(|| {
        format!(
            "{name} puts frames together and keeps neither their number nor their headers (LRO): `ethtool -K {name} lro off`"
        )
    })
}

fn put_together(offloads: &Offloads, sees: Sees) -> Option<String> {
    let Offloads {
        name,
        features,
        kind,
        ..
    } = offloads;
    let gro = features.is_none_or(|features| features.gro);
    (sees.packets && (gro || kind.is_some() || offloads.is_loopback())).then(|| {
        format!(
            "packets of {name} that were put together from frames (GRO), or come before they are cut into frames (GSO), are one each \
             here: `ethtool -K {name} gro off`, and `tso off gso off` where a local sender hands them over, or use XDP"
        )
    })
}

fn uncut(sees: Sees) -> Option<String> {
    sees.packets.then(|| {
        "TCP hands over packets of up to 64 KiB, which are cut into frames behind the TC hook (GSO), and are one each here; what \
         arrives at the other side is cut"
            .to_owned()
    })
}

fn behind_generic_xdp(offloads: &Offloads, sees: Sees) -> Option<String> {
    let Offloads { name, .. } = offloads;
    (offloads.generic_xdp && (sees.lengths || sees.ethernet)).then(|| {
        format!(
            "generic XDP runs on {name} before this program: the kernel may then count packets at TC without their Ethernet header, 14 bytes \
             less; take the XDP program away, or use XDP here, too"
        )
    })
}

fn no_headers(offloads: &Offloads, sees: Sees) -> Option<String> {
    let Offloads { name, .. } = offloads;
    (sees.lengths && !offloads.has_ethernet()).then(|| {
        format!(
            "{name} has no Ethernet header, so that the headers of frames that were put together (GRO) are counted once: `ethtool -K \
             {name} gro off`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::offloads::Features;

    const ALL: Sees = Sees {
        is_known: true,
        ethernet: true,
        tags: true,
        lengths: true,
        frames: true,
        packets: true,
    };

    fn card(features: Features) -> Offloads {
        Offloads {
            name: "eth0".into(),
            link_type: 1,
            features: Some(features),
            ..Offloads::default()
        }
    }

    fn at(offloads: &Offloads, hook: Hook, mode: &str, sees: Sees) -> String {
        reasons(offloads, hook, Some(mode), sees).join("; ")
    }

    #[test]
    fn a_card_without_offloads_is_exact_but_where_packets_are_sent() {
        let plain = card(Features::default());
        assert_eq!(at(&plain, Hook::Xdp, "native", ALL), "");
        assert_eq!(at(&plain, Hook::Xdp, "generic", ALL), "");
        assert_eq!(at(&plain, Hook::TcIngress, "tcx", ALL), "");
        assert!(at(&plain, Hook::TcEgress, "tcx", ALL).contains("64 KiB"));
        let counts = Sees {
            packets: false,
            ..ALL
        };
        assert_eq!(at(&plain, Hook::TcEgress, "tcx", counts), "");
    }

    #[test]
    fn each_offload_is_named_with_what_to_change() {
        let tags = card(Features {
            takes_tags: true,
            ..Features::default()
        });
        let said = at(&tags, Hook::Xdp, "native", ALL);
        assert!(
            said.contains("rx-vlan-offload") && said.contains("`ethtool -K eth0 rxvlan off`"),
            "{said}"
        );
        assert_eq!(at(&tags, Hook::TcIngress, "tcx", ALL), "");
        let lro = card(Features {
            lro: true,
            ..Features::default()
        });
        for hook in [Hook::Xdp, Hook::TcIngress] {
            assert!(at(&lro, hook, "native", ALL).contains("`ethtool -K eth0 lro off`"));
        }
        let gro = card(Features {
            gro: true,
            ..Features::default()
        });
        assert!(at(&gro, Hook::TcIngress, "tcx", ALL).contains("`ethtool -K eth0 gro off`"));
        assert_eq!(
            at(
                &gro,
                Hook::TcIngress,
                "tcx",
                Sees {
                    packets: false,
                    ..ALL
                }
            ),
            ""
        );
        let behind = Offloads {
            generic_xdp: true,
            ..card(Features::default())
        };
        assert!(at(&behind, Hook::TcIngress, "tcx", ALL).contains("14 bytes"));
    }

    #[test]
    fn the_other_end_of_a_veth_pair_decides() {
        let on = Features {
            takes_tags: true,
            puts_tags: true,
            segments: true,
            ..Features::default()
        };
        let veth = Offloads {
            kind: Some("veth".into()),
            ..card(on)
        };
        assert!(at(&veth, Hook::Xdp, "native", ALL).contains("at the other end"));
        assert!(at(&veth, Hook::Xdp, "generic", ALL).contains("GSO"));
        let off = Features {
            takes_tags: true,
            ..Features::default()
        };
        let known = |features| Offloads {
            peer: Some(("v1".into(), features)),
            ..veth.clone()
        };
        assert_eq!(at(&known(off), Hook::Xdp, "generic", ALL), "");
        let said = at(&known(on), Hook::Xdp, "generic", ALL);
        assert!(
            said.contains("`ethtool -K v1 txvlan off") && said.contains("`ethtool -K v1 tso off"),
            "{said}"
        );
    }

    #[test]
    fn what_a_program_does_not_see_makes_it_no_less_exact() {
        let on = Features {
            takes_tags: true,
            puts_tags: true,
            segments: true,
            gro: true,
            lro: true,
        };
        let none = Sees {
            is_known: true,
            ethernet: true,
            ..Sees::default()
        };
        for kind in [None, Some("veth".to_owned())] {
            let offloads = Offloads { kind, ..card(on) };
            for hook in [Hook::Xdp, Hook::TcIngress, Hook::TcEgress] {
                assert_eq!(at(&offloads, hook, "generic", none), "");
            }
        }
    }

    #[test]
    fn who_reads_an_ethernet_header_is_refused_where_there_is_none() {
        let tun = Offloads {
            name: "tun0".into(),
            link_type: 0xfffe,
            ..Offloads::default()
        };
        let said = refusal(&tun, ALL).unwrap();
        assert!(
            said.starts_with("tun0 has no Ethernet header (type none)"),
            "{said}"
        );
        assert_eq!(
            refusal(
                &tun,
                Sees {
                    ethernet: false,
                    ..ALL
                }
            ),
            None
        );
        assert_eq!(refusal(&card(Features::default()), ALL), None);
        assert!(warning(&tun, Sees::default()).is_some());
        assert_eq!(
            (
                warning(&tun, ALL),
                warning(&card(Features::default()), Sees::default())
            ),
            (None, None)
        );
    }
}
