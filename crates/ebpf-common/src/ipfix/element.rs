//! The names of IPFIX information elements, which the tag `ie("name")` of a field may contain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::registry::{IpfixType, REGISTRY};

/// The most names that an error shows.
const SHOWN: usize = 3;

/// An element of IANA's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpfixElement {
    pub name: &'static str,
    pub number: u16,
    pub kind: IpfixType,
}

/// The IPFIX elements that tags name, by the path of the field: its members, with dots between
/// them. The path of a whole key or value is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldElements {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub key: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub value: BTreeMap<String, String>,
}

impl IpfixElement {
    /// Returns the element of this name.
    pub fn named(name: &str) -> Option<Self> {
        REGISTRY
            .iter()
            .map(Self::of)
            .find(|element| element.name == name)
    }

    /// Returns the element with this number.
    pub fn numbered(number: u16) -> Option<Self> {
        REGISTRY
            .iter()
            .map(Self::of)
            .find(|element| element.number == number)
    }

    /// Returns the most similar names, in the form of a message.
    pub fn nearest(name: &str) -> String {
        let lower = name.to_lowercase();
        let mut names: Vec<(f64, &str)> = REGISTRY
            .iter()
            .map(|(known, ..)| (strsim::jaro_winkler(&lower, &known.to_lowercase()), *known))
            .collect();
        names.sort_by(|one, other| other.0.total_cmp(&one.0));
        names
            .iter()
            .take(SHOWN)
            .map(|(_, name)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    }

    const fn of(&(name, number, kind): &(&'static str, u16, IpfixType)) -> Self {
        Self { name, number, kind }
    }
}

impl FieldElements {
    /// Adapts the paths to keys that have the name of an interface before them: a key without
    /// members becomes the member `key`.
    #[must_use]
    pub fn beside_interface(mut self, key: &str) -> Self {
        if let Some(element) = self.key.remove("") {
            self.key.insert(key.to_owned(), element);
        }
        self
    }
}

/// Returns the name in a tag `ie("name")`; `None` for other tags.
pub fn element_of_tag(tag: &str) -> Option<&str> {
    let inside = tag.strip_prefix("ie(")?.strip_suffix(')')?.trim();
    Some(
        inside
            .strip_prefix('"')
            .and_then(|inside| inside.strip_suffix('"'))
            .unwrap_or(inside),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        let names: HashSet<&str> = REGISTRY.iter().map(|(name, ..)| *name).collect();
        let numbers: HashSet<u16> = REGISTRY.iter().map(|(_, number, _)| *number).collect();
        assert_eq!(
            (names.len(), numbers.len()),
            (REGISTRY.len(), REGISTRY.len())
        );
        let octets = IpfixElement {
            name: "octetDeltaCount",
            number: 1,
            kind: IpfixType::U64,
        };
        assert_eq!(
            (
                IpfixElement::named("octetDeltaCount"),
                IpfixElement::numbered(1)
            ),
            (Some(octets), Some(octets))
        );
    }

    #[test]
    fn a_wrong_name_is_told_with_those_that_are_like_it() {
        assert_eq!(IpfixElement::named("sourceIPv4Adress"), None);
        let nearest = IpfixElement::nearest("sourceipv4adress");
        assert!(nearest.starts_with("sourceIPv4Address, "), "{nearest}");
    }

    #[test]
    fn a_tag_has_the_name_with_quotation_marks_or_without() {
        for tag in [
            "ie(\"tcpWindowSize\")",
            "ie(tcpWindowSize)",
            "ie( \"tcpWindowSize\" )",
        ] {
            assert_eq!(element_of_tag(tag), Some("tcpWindowSize"), "{tag}");
        }
        for tag in ["ie", "ipv4", "tie(\"x\")"] {
            assert_eq!(element_of_tag(tag), None);
        }
    }
}
