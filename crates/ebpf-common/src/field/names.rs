//! Standard names of numbers.

/// The protocols above IP by their numbers (IANA, "Protocol Numbers"), in order. Other protocols
/// appear as numbers.
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

/// The flags of a TCP header, from the lowest bit on.
pub const TCP_FLAGS: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

/// Returns the names of the bits that are set, `SYN|ACK`; `None` if there are none, or if one has
/// no name. `names` begins with that of the lowest bit.
pub fn flags(names: &[impl AsRef<str>], number: u64) -> Option<String> {
    if number == 0
        || number
            .checked_shr(names.len() as u32)
            .is_some_and(|rest| rest > 0)
    {
        return None;
    }
    let set = names
        .iter()
        .enumerate()
        .filter(|(bit, _)| number >> bit & 1 == 1);
    Some(
        set.map(|(_, name)| name.as_ref())
            .collect::<Vec<_>>()
            .join("|"),
    )
}

/// Returns the number whose bits have these names, in any order.
pub fn flags_of(names: &[impl AsRef<str>], text: &str) -> Option<u64> {
    let bit = |name: &str| {
        names
            .iter()
            .position(|known| known.as_ref() == name)
            .map(|bit| 1_u64 << bit)
    };
    text.split('|')
        .try_fold(0, |number, name| Some(number | bit(name)?))
}

/// Returns the number of a protocol.
pub fn protocol(name: &str) -> Option<u64> {
    PROTOCOLS
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::plan::is_name;

    #[test]
    fn flags_are_named_and_read_again() {
        for (number, text) in [
            (2, "SYN"),
            (18, "SYN|ACK"),
            (255, "FIN|SYN|RST|PSH|ACK|URG|ECE|CWR"),
        ] {
            assert_eq!(flags(&TCP_FLAGS, number).as_deref(), Some(text));
            assert_eq!(flags_of(&TCP_FLAGS, text), Some(number));
        }
        assert_eq!(
            [0, 256, 1 << 63].map(|number| flags(&TCP_FLAGS, number)),
            [None, None, None]
        );
        assert_eq!(
            ["", "SYN|", "syn"].map(|text| flags_of(&TCP_FLAGS, text)),
            [None, None, None]
        );
    }

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
