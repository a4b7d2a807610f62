use super::*;

#[test]
fn a_field_has_one_number_and_one_type() {
    let mut registry = ElementRegistry::new(EXAMPLE_ENTERPRISE);
    let mut field = |name, kind| registry.field(name, kind, ElementSemantics::Quantity, 3, "");
    let first = field("dns.queries", ElementType::Unsigned64);
    assert_eq!(first, field("dns.queries", ElementType::Unsigned64));
    let narrow = field("dns.queries", ElementType::Unsigned32);
    assert_ne!(first.number, narrow.number);
    assert_eq!(registry.all().len(), 2);
    let mut other = ElementRegistry::new(EXAMPLE_ENTERPRISE);
    other.field(
        "before",
        ElementType::Text,
        ElementSemantics::Default,
        0,
        "",
    );
    assert_eq!(
        first,
        other.field(
            "dns.queries",
            ElementType::Unsigned64,
            ElementSemantics::Quantity,
            3,
            ""
        )
    );
    assert!((FIRST_OF_FIELDS..NUMBERS).contains(&first.number));
}

#[test]
fn names_with_one_number_get_two() {
    let mut registry = ElementRegistry::new(EXAMPLE_ENTERPRISE);
    let names: Vec<String> = (0..5_000)
        .map(|number| format!("metric.field{number}"))
        .collect();
    let mut numbers: Vec<u16> = names
        .iter()
        .map(|name| {
            registry
                .field(name, ElementType::Text, ElementSemantics::Default, 0, "")
                .number
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), names.len());
}
