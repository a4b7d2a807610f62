//! The entries of a metric, read from a document one by one. A large document as a tree of values
//! would take many times its size.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A reader of entries.
pub trait EntryReader {
    /// Reads an entry. Returns false after the last one.
    fn next<'de, A: SeqAccess<'de>>(&mut self, entries: &mut A) -> Result<bool, A::Error>;
}

/// Calls a function with each entry as a value.
pub struct EntryValues<F>(pub F);

impl<F: FnMut(&Value)> EntryReader for EntryValues<F> {
    fn next<'de, A: SeqAccess<'de>>(&mut self, entries: &mut A) -> Result<bool, A::Error> {
        let entry = entries.next_element::<Value>()?;
        Ok(entry.map(|entry| (self.0)(&entry)).is_some())
    }
}

/// Gives `reader` the entries of a metric. A document without the metric has none.
pub fn each_entry(
    document: &[u8],
    [direction, metric]: [&str; 2],
    reader: &mut impl EntryReader,
) -> serde_json::Result<()> {
    let entries = MemberSeed {
        name: "entries",
        then: EntriesSeed(reader),
    };
    let metric = MemberSeed {
        name: metric,
        then: entries,
    };
    let mut document = serde_json::Deserializer::from_slice(document);
    MemberSeed {
        name: direction,
        then: metric,
    }
    .deserialize(&mut document)?;
    document.end()
}

/// The member of this name in an object. The reader skips all other members.
struct MemberSeed<'a, T> {
    name: &'a str,
    then: T,
}

impl<'de, T: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for MemberSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: DeserializeSeed<'de, Value = ()>> Visitor<'de> for MemberSeed<'_, T> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an object with {}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { name, then } = self;
        let mut then = Some(then);
        while let Some(found) = map.next_key::<String>()? {
            match then.take_if(|_| found == name) {
                Some(then) => map.next_value_seed(then)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// An array of entries.
struct EntriesSeed<'a, R>(&'a mut R);

impl<'de, R: EntryReader> DeserializeSeed<'de> for EntriesSeed<'_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: EntryReader> Visitor<'de> for EntriesSeed<'_, R> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while self.0.next(&mut entries)? {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(document: &Value, path: [&str; 2]) -> serde_json::Result<Vec<Value>> {
        let mut found = Vec::new();
        let mut reader = EntryValues(|entry: &Value| found.push(entry.clone()));
        each_entry(document.to_string().as_bytes(), path, &mut reader)?;
        Ok(found)
    }

    #[test]
    fn entries_are_those_of_the_metric() {
        let document = json!({
            "probe": "p", "entries": [0], "egress": { "flows": { "entries": [9] } },
            "ingress": {
                "entries": [1], "sizes": { "entries": null },
                "flows": { "map": "flows", "entries": [{ "key": u64::MAX, "value": [1, { "entries": [2] }] }, 3], "left": {} },
            },
        });
        let flows = &document["ingress"]["flows"]["entries"];
        assert_eq!(
            json!(entries(&document, ["ingress", "flows"]).unwrap()),
            *flows
        );
        for path in [
            ["ingress", "sizes"],
            ["ingress", "none"],
            ["none", "flows"],
            ["probe", "flows"],
        ] {
            let found = entries(&document, path);
            assert!(
                found.is_ok_and(|found| found.is_empty()) == (path[0] != "probe"),
                "{path:?}"
            );
        }
        for broken in [&b"{\"ingress\":{\"flows\":{\"entries\":[1,"[..], b"{} {}"] {
            let mut reader = EntryValues(|_: &Value| ());
            assert!(each_entry(broken, ["ingress", "flows"], &mut reader).is_err());
        }
    }
}
