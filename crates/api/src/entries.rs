//! The documents about the entries of a map that a configuration fills.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::request::MapEntry;

use crate::config::present::Object;

/// The answer of `GET` and `PUT /v1/probes/{name}/maps/{map}/entries`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapEntries {
    pub probe: String,
    pub map: String,
    /// The revision of the configuration that names the entries.
    pub revision: u64,
    /// In the answer to a PUT, the way in which packets have met the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<MapChange>,
    pub entries: Vec<MapEntry>,
}

/// The way in which packets meet new entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapChange {
    /// True if each packet meets all of the old entries or all of the new ones.
    pub atomic: bool,
    /// The meaning of `atomic` in words.
    pub detail: String,
}

/// The body of `PUT /v1/probes/{name}/maps/{map}/entries`: the entries, or an object with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntries(pub Vec<MapEntry>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyEntries {
    entries: Vec<Object<MapEntry>>,
}

impl<'de> Deserialize<'de> for NewEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrObject;

        impl<'de> Visitor<'de> for ListOrObject {
            type Value = NewEntries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a list of entries such as {\"key\": K, \"value\": V}, or {\"entries\": [...]}",
                )
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NewEntries, A::Error> {
                let mut entries = Vec::new();
                while let Some(Object(entry)) = list.next_element()? {
                    entries.push(entry);
                }
                Ok(NewEntries(entries))
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<NewEntries, A::Error> {
                let OnlyEntries { entries } =
                    Deserialize::deserialize(MapAccessDeserializer::new(access))?;
                Ok(NewEntries(
                    entries.into_iter().map(|entry| entry.0).collect(),
                ))
            }
        }

        deserializer.deserialize_any(ListOrObject)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ParseError, parse_entries, parse_entries_yaml};

    #[test]
    fn a_list_and_an_object_mean_the_same() {
        let wanted = vec![MapEntry {
            key: json!("192.0.2.1"),
            value: json!(1),
        }];
        for text in [
            r#"[{"key": "192.0.2.1", "value": 1}]"#,
            r#"{"entries": [{"key": "192.0.2.1", "value": 1}]}"#,
        ] {
            assert_eq!(parse_entries(text.as_bytes()).unwrap(), wanted);
            assert_eq!(parse_entries_yaml(text.as_bytes()).unwrap(), wanted);
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        let refused = |text: &str| match parse_entries(text.as_bytes()).unwrap_err() {
            ParseError::Invalid(rejection) => rejection.findings[0].clone(),
            error => panic!("{error:?}"),
        };
        let finding = refused(r#"[{"key": 1, "value": 1}, {"key": 1}]"#);
        assert_eq!(
            (finding.field.as_deref(), &*finding.message),
            (Some("[1]"), "missing field `value`")
        );
        assert!(
            refused(r#"{"entries": [], "more": 1}"#)
                .message
                .contains("unknown field `more`")
        );
        assert!(refused("7").message.contains("expected a list of entries"));
    }
}
