//! The fields that IANA's registry has an information element for, by their names in the library of
//! probes.

use twinprobe_ebpf_common::Temporality;
use twinprobe_ebpf_common::ipfix::element::IpfixElement;
use twinprobe_ebpf_common::ipfix::registry::IpfixType;
use twinprobe_ebpf_common::window::shape::FieldContent;

use super::element::{Element, ElementType, REVERSE};

/// An element of IANA's registry, and the names of fields that have its meaning.
#[derive(Debug)]
pub struct StandardElement {
    pub name: &'static str,
    pub number: u16,
    pub kind: ElementType,
    /// The content that a field must have in addition to its name.
    content: StandardContent,
    fields: &'static [&'static str],
    /// The number of the element for counts since the deployment of the probe, instead of counts
    /// within a window.
    total: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandardContent {
    /// A number, or the name of a number.
    Number,
    /// An address of version 4 only.
    Ipv4,
    /// An address of either version: addresses of version 6 have the element with this number.
    Address(u16),
    Mac,
    Time,
    Interface,
}

/// The elements by which a field is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandardChoice {
    pub element: Element,
    /// The element for an address of version 6.
    pub version_6: Option<Element>,
}

const fn number(
    name: &'static str,
    number: u16,
    kind: ElementType,
    fields: &'static [&'static str],
) -> StandardElement {
    StandardElement {
        name,
        number,
        kind,
        content: StandardContent::Number,
        fields,
        total: None,
    }
}

const fn counter(
    name: &'static str,
    delta: u16,
    total: u16,
    fields: &'static [&'static str],
) -> StandardElement {
    let mut counter = number(name, delta, ElementType::Unsigned64, fields);
    counter.total = Some(total);
    counter
}

const fn other(
    name: &'static str,
    number: u16,
    kind: ElementType,
    content: StandardContent,
    fields: &'static [&'static str],
) -> StandardElement {
    StandardElement {
        name,
        number,
        kind,
        content,
        fields,
        total: None,
    }
}

/// The table: name, number, type, and the fields. <https://www.iana.org/assignments/ipfix>
///
/// `IN_BYTES` and `bytes` of the library count frames with Ethernet headers, which IANA calls
/// `layer2OctetDeltaCount`.
/// `octetDeltaCount` counts the octets of IP alone: `IN_OCTETS`.
pub const STANDARD: &[StandardElement] = &[
    counter(
        "octetDeltaCount",
        1,
        85,
        &[
            "IN_OCTETS",
            "octets",
            "octets_total",
            "ip_bytes",
            "ip_bytes_total",
        ],
    ),
    counter(
        "packetDeltaCount",
        2,
        86,
        &["IN_PKTS", "packets", "packets_total"],
    ),
    counter(
        "layer2OctetDeltaCount",
        352,
        353,
        &["IN_BYTES", "bytes", "bytes_total"],
    ),
    number(
        "protocolIdentifier",
        4,
        ElementType::Unsigned8,
        &["PROTOCOL", "protocol"],
    ),
    number(
        "ipClassOfService",
        5,
        ElementType::Unsigned8,
        &["SRC_TOS", "tos"],
    ),
    number(
        "tcpControlBits",
        6,
        ElementType::Unsigned16,
        &["TCP_FLAGS", "tcp_flags"],
    ),
    number(
        "sourceTransportPort",
        7,
        ElementType::Unsigned16,
        &["L4_SRC_PORT", "source_port", "src_port"],
    ),
    number(
        "destinationTransportPort",
        11,
        ElementType::Unsigned16,
        &["L4_DST_PORT", "destination_port", "dst_port"],
    ),
    // The index of an interface, as SNMP has it.
    number(
        "ingressInterface",
        10,
        ElementType::Unsigned32,
        &["INPUT_SNMP"],
    ),
    number(
        "egressInterface",
        14,
        ElementType::Unsigned32,
        &["OUTPUT_SNMP"],
    ),
    number(
        "bgpSourceAsNumber",
        16,
        ElementType::Unsigned32,
        &["SRC_AS"],
    ),
    number(
        "bgpDestinationAsNumber",
        17,
        ElementType::Unsigned32,
        &["DST_AS"],
    ),
    number(
        "flowEndReason",
        136,
        ElementType::Unsigned8,
        &["END_REASON"],
    ),
    number("ipTTL", 192, ElementType::Unsigned8, &["ttl"]),
    number(
        "ipDiffServCodePoint",
        195,
        ElementType::Unsigned8,
        &["dscp"],
    ),
    number("dot1qVlanId", 243, ElementType::Unsigned16, &["vlan"]),
    number(
        "dot1qCustomerVlanId",
        245,
        ElementType::Unsigned16,
        &["inner_vlan"],
    ),
    other(
        "sourceIPv4Address",
        8,
        ElementType::Ipv4,
        StandardContent::Ipv4,
        &["IPV4_SRC_ADDR"],
    ),
    other(
        "destinationIPv4Address",
        12,
        ElementType::Ipv4,
        StandardContent::Ipv4,
        &["IPV4_DST_ADDR"],
    ),
    other(
        "sourceIPv4Address",
        8,
        ElementType::Ipv4,
        StandardContent::Address(27),
        &["source", "src", "IPV6_SRC_ADDR"],
    ),
    other(
        "destinationIPv4Address",
        12,
        ElementType::Ipv4,
        StandardContent::Address(28),
        &["destination", "dst", "IPV6_DST_ADDR"],
    ),
    other(
        "sourceMacAddress",
        56,
        ElementType::Mac,
        StandardContent::Mac,
        &["source_mac", "src_mac"],
    ),
    other(
        "destinationMacAddress",
        80,
        ElementType::Mac,
        StandardContent::Mac,
        &["destination_mac", "dst_mac"],
    ),
    other(
        "interfaceName",
        82,
        ElementType::Text,
        StandardContent::Interface,
        &["interface"],
    ),
    other(
        "flowStartMilliseconds",
        FLOW_START,
        ElementType::Milliseconds,
        StandardContent::Time,
        &["FIRST_SWITCHED", "first"],
    ),
    other(
        "flowEndMilliseconds",
        FLOW_END,
        ElementType::Milliseconds,
        StandardContent::Time,
        &["LAST_SWITCHED", "last"],
    ),
];

/// The element for the time of a flow's first packet, or for the start of the interval in which it
/// was counted (RFC 7015, section 5.1).
pub const FLOW_START: u16 = 152;
/// The element for the time of a flow's last packet, or for the end of the interval in which it was
/// counted.
pub const FLOW_END: u16 = 153;
/// The element for the direction of a flow: 0 is ingress, 1 is egress.
pub const FLOW_DIRECTION: Element = Element::iana(61, ElementType::Unsigned8);

/// Returns the element for a field of this name, if the content agrees with the name. `chosen` is
/// the name of an element from a configuration or a tag.
pub fn standard(
    field: &str,
    content: &FieldContent,
    reading: Temporality,
    chosen: Option<&str>,
) -> Option<StandardChoice> {
    let (plain, enterprise) = match field.strip_prefix("REVERSE_") {
        Some(plain) => (plain, Some(REVERSE)),
        None => (field, None),
    };
    let mut rows = STANDARD.iter().filter(|row| match chosen {
        Some(element) => row.name == element,
        None => row.fields.contains(&plain),
    });
    let found = rows.find_map(|row| row.choice(content, reading, enterprise));
    found.or_else(|| registered(IpfixElement::named(chosen?)?, content, enterprise))
}

/// Returns an element that only a configuration or a tag can select, but not the name of a field.
fn registered(
    named: IpfixElement,
    content: &FieldContent,
    enterprise: Option<u32>,
) -> Option<StandardChoice> {
    let element = |named: IpfixElement| {
        let kind = match named.kind {
            IpfixType::U8 => ElementType::Unsigned8,
            IpfixType::U16 => ElementType::Unsigned16,
            IpfixType::U32 => ElementType::Unsigned32,
            IpfixType::U64 => ElementType::Unsigned64,
            IpfixType::Ipv4 => ElementType::Ipv4,
            IpfixType::Ipv6 => ElementType::Ipv6,
            IpfixType::Mac => ElementType::Mac,
            IpfixType::Text => ElementType::Text,
            IpfixType::Milliseconds => ElementType::Milliseconds,
            IpfixType::Nanoseconds => ElementType::Nanoseconds,
        };
        Element {
            enterprise,
            number: named.number,
            kind,
        }
    };
    let of_version = |version: &str| {
        IpfixElement::named(&named.name.replace("IPv4", version).replace("IPv6", version))
            .map(element)
    };
    match (named.kind, content) {
        // A field with addresses of both versions has two elements.
        (IpfixType::Ipv4 | IpfixType::Ipv6, FieldContent::Ip) => Some(StandardChoice {
            element: of_version("IPv4")?,
            version_6: Some(of_version("IPv6")?),
        }),
        (
            IpfixType::U8 | IpfixType::U16 | IpfixType::U32 | IpfixType::U64,
            FieldContent::Unsigned { .. }
            | FieldContent::Name { .. }
            | FieldContent::Flags { .. }
            | FieldContent::Decimal { signed: false },
        )
        | (IpfixType::Ipv4, FieldContent::Ipv4)
        | (IpfixType::Mac, FieldContent::Mac)
        | (IpfixType::Text, FieldContent::Text { .. } | FieldContent::Interface)
        | (IpfixType::Milliseconds | IpfixType::Nanoseconds, FieldContent::Time) => {
            Some(StandardChoice {
                element: element(named),
                version_6: None,
            })
        }
        _ => None,
    }
}

/// Returns the name of an element of IANA's registry; `None` for another element.
pub fn name_of(element: Element) -> Option<String> {
    let name = IpfixElement::numbered(element.number)?.name;
    match element.enterprise {
        None => Some(name.to_owned()),
        Some(REVERSE) => Some(format!("reverse:{name}")),
        Some(_) => None,
    }
}

impl StandardElement {
    fn choice(
        &self,
        content: &FieldContent,
        reading: Temporality,
        enterprise: Option<u32>,
    ) -> Option<StandardChoice> {
        let mut version_6 = None;
        let mut kind = self.kind;
        let fits = match (self.content, content) {
            // The field of a program may be wider than the element, because there is no atomic OR
            // on a byte. The stream reports a number that is too large.
            (
                StandardContent::Number,
                FieldContent::Unsigned { .. }
                | FieldContent::Name { .. }
                | FieldContent::Flags { .. },
            ) => true,
            (StandardContent::Number, FieldContent::Decimal { signed }) => !signed,
            (StandardContent::Ipv4 | StandardContent::Address(_), FieldContent::Ipv4)
            | (StandardContent::Mac, FieldContent::Mac)
            | (StandardContent::Time, FieldContent::Time) => true,
            (StandardContent::Interface, FieldContent::Interface) => {
                kind = ElementType::Text;
                true
            }
            (StandardContent::Address(number), FieldContent::Ip) => {
                version_6 = Some(Element {
                    enterprise,
                    number,
                    kind: ElementType::Ipv6,
                });
                true
            }
            _ => false,
        };
        let number = match self.total {
            Some(total) if reading != Temporality::Window => total,
            _ => self.number,
        };
        fits.then_some(StandardChoice {
            element: Element {
                enterprise,
                number,
                kind,
            },
            version_6,
        })
    }
}

#[cfg(test)]
mod tests;
