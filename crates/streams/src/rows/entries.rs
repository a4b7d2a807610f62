//! The entries of a metric, read from a document one by one. A large document as a tree of values would take many times its size.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Calls `each` with the entries of a metric. A document without the metric has none.
pub fn each_entry(
    document: &[u8],
    [direction, metric]: [&str; 2],
    mut each: impl FnMut(&Value),
) -> serde_json::Result<()> {
    let entries = MemberSeed { name: "entries", then: EntriesSeed(&mut each) };
    let metric = MemberSeed { name: metric, then: entries };
    let mut document = serde_json::Deserializer::from_slice(document);
    MemberSeed { name: direction, then: metric }.deserialize(&mut document)?;
    document.end()
}

/// The member of this name in an object; others are skipped.
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
struct EntriesSeed<'a, F>(&'a mut F);

impl<'de, F: FnMut(&Value)> DeserializeSeed<'de> for EntriesSeed<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&Value)> Visitor<'de> for EntriesSeed<'_, F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<Value>()? {
            (self.0)(&entry);
        }
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
        each_entry(document.to_string().as_bytes(), path, |entry| found.push(entry.clone()))?;
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
        assert_eq!(json!(entries(&document, ["ingress", "flows"]).unwrap()), *flows);
        for path in [["ingress", "sizes"], ["ingress", "none"], ["none", "flows"], ["probe", "flows"]] {
            let found = entries(&document, path);
            assert!(found.is_ok_and(|found| found.is_empty()) == (path[0] != "probe"), "{path:?}");
        }
        assert!(
            each_entry(b"{\"ingress\":{\"flows\":{\"entries\":[1,", ["ingress", "flows"], |_| ()).is_err()
        );
        assert!(each_entry(b"{} {}", ["ingress", "flows"], |_| ()).is_err());
    }
}
