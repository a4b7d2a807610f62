use super::*;

fn chosen(field: &str, content: &FieldContent) -> Option<(Option<u32>, u16)> {
    standard(field, content, Temporality::Window, None)
        .map(|choice| (choice.element.enterprise, choice.element.number))
}

#[test]
fn names_and_contents_decide() {
    let wide = FieldContent::Unsigned { bits: 64 };
    assert_eq!(chosen("IN_PKTS", &wide), Some((None, 2)));
    assert_eq!(chosen("IN_OCTETS", &wide), Some((None, 1)));
    assert_eq!(chosen("IN_BYTES", &wide), Some((None, 352)));
    assert_eq!(chosen("REVERSE_IN_PKTS", &wide), Some((Some(REVERSE), 2)));
    assert_eq!(
        chosen("TCP_FLAGS", &FieldContent::Unsigned { bits: 32 }),
        Some((None, 6))
    );
    assert_eq!(
        chosen("TCP_FLAGS", &FieldContent::Signed { bits: 32 }),
        None
    );
    assert_eq!(chosen("source", &FieldContent::Ipv4), Some((None, 8)));
    assert_eq!(chosen("source", &wide), None);
    let ip = standard("source", &FieldContent::Ip, Temporality::Window, None).unwrap();
    assert_eq!(ip.version_6.unwrap().number, 27);
    let total = standard("packets", &wide, Temporality::Cumulative, None).unwrap();
    assert_eq!(total.element.number, 86);
    assert_eq!(name_of(total.element).as_deref(), Some("packetTotalCount"));
    assert_eq!(
        name_of(ip.version_6.unwrap()).as_deref(),
        Some("sourceIPv6Address")
    );
    assert_eq!(name_of(Element::iana(9999, ElementType::Text)), None);
    let chosen = |element| standard("bytes", &wide, Temporality::Window, Some(element));
    assert_eq!(chosen("octetDeltaCount").unwrap().element.number, 1);
    assert_eq!(
        chosen("tcpWindowSize").unwrap().element,
        Element::iana(186, ElementType::Unsigned16)
    );
    assert_eq!(chosen("sourceMacAddress"), None);
    let next = standard(
        "via",
        &FieldContent::Ip,
        Temporality::Window,
        Some("ipNextHopIPv6Address"),
    )
    .unwrap();
    assert_eq!(
        (next.element.number, next.version_6.unwrap().number),
        (15, 62)
    );
}

#[test]
fn the_table_is_a_part_of_the_registry() {
    for row in STANDARD {
        assert_eq!(
            IpfixElement::named(row.name).unwrap().number,
            row.number,
            "{}",
            row.name
        );
        let total = row
            .total
            .map(|total| IpfixElement::numbered(total).unwrap().name.to_owned());
        assert_eq!(total, row.total.map(|_| row.name.replace("Delta", "Total")));
    }
}
