//! Numbers that documents show by name.

use serde_json::Value;

const FLAGS: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
const OTHERS: [(&str, u64); 29] = [
    ("ICMP", 1),
    ("IGMP", 2),
    ("IPIP", 4),
    ("TCP", 6),
    ("UDP", 17),
    ("DCCP", 33),
    ("IPV6", 41),
    ("IPV6_ROUTE", 43),
    ("IPV6_FRAGMENT", 44),
    ("RSVP", 46),
    ("GRE", 47),
    ("ESP", 50),
    ("AH", 51),
    ("ICMPV6", 58),
    ("NO_NEXT_HEADER", 59),
    ("IPV6_OPTIONS", 60),
    ("EIGRP", 88),
    ("OSPF", 89),
    ("ETHERIP", 97),
    ("PIM", 103),
    ("IPCOMP", 108),
    ("VRRP", 112),
    ("L2TP", 115),
    ("SCTP", 132),
    ("UDPLITE", 136),
    ("MPLS", 137),
    ("ETHERNET", 143),
    ("ACTIVE_TIMEOUT", 2),
    ("END_OF_FLOW", 3),
];

/// Returns the number that a document shows as a number, as the name of a protocol or of the end of
/// a flow, or as flags of TCP.
pub fn number(value: &Value) -> Option<u64> {
    let Some(text) = value.as_str() else {
        return value.as_u64();
    };
    let bit = |name: &str| {
        FLAGS
            .iter()
            .position(|flag| *flag == name)
            .map(|bit| 1 << bit)
    };
    let known = OTHERS
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, number)| *number);
    known.or_else(|| text.split('|').map(bit).sum())
}
