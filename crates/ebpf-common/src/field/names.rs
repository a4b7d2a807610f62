//! Names of numbers that the world has agreed on.

/// The protocols above IP by their numbers (IANA, "Protocol Numbers"), in order. Others are shown as numbers.
pub const PROTOCOLS: [(u64, &str); 27] = [
    (1, "ICMP"),
    (2, "IGMP"),
    (4, "IPIP"),
    (6, "TCP"),
    (17, "UDP"),
    (33, "DCCP"),
    (41, "IPV6"),
    (43, "IPV6_ROUTE"),
    (44, "IPV6_FRAGMENT"),
    (46, "RSVP"),
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (58, "ICMPV6"),
    (59, "NO_NEXT_HEADER"),
    (60, "IPV6_OPTIONS"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (97, "ETHERIP"),
    (103, "PIM"),
    (108, "IPCOMP"),
    (112, "VRRP"),
    (115, "L2TP"),
    (132, "SCTP"),
    (136, "UDPLITE"),
    (137, "MPLS"),
    (143, "ETHERNET"),
];

/// Returns the number of a protocol.
pub fn protocol(name: &str) -> Option<u64> {
    PROTOCOLS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::plan::is_name;

    #[test]
    fn protocols_are_in_order_and_have_names_of_their_own() {
        assert!(PROTOCOLS.is_sorted_by(|a, b| a.0 < b.0));
        for (number, name) in PROTOCOLS {
            assert_eq!(protocol(name), Some(number));
            assert!(is_name(name));
        }
        assert_eq!(protocol("tcp"), None);
    }
}
