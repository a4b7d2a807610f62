//! Forms of a probe file: one configuration, a list of them, or `probes: {NAME: ...}`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use twinprobe_api::{ConfigDocument, Object};

/// A configuration, and its key if it has one.
pub type NamedConfig = (Option<String>, ConfigDocument);

pub struct FileContents(pub Vec<NamedConfig>);

/// The value of `probes`.
struct NamedProbes(Vec<NamedConfig>);

struct ContentsVisitor;
struct ProbesVisitor;

impl<'de> Deserialize<'de> for FileContents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentsVisitor)
    }
}

impl<'de> Deserialize<'de> for NamedProbes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ProbesVisitor)
    }
}

impl<'de> Visitor<'de> for ContentsVisitor {
    type Value = FileContents;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a configuration, a list of configurations, or `probes`")
    }

    fn visit_unit<E>(self) -> Result<FileContents, E> {
        Ok(FileContents(Vec::new()))
    }

    /// Accepts an empty document of YAML.
    fn visit_none<E: Error>(self) -> Result<FileContents, E> {
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FileContents, A::Error> {
        let mut found = Vec::new();
        while let Some(Object(config)) = list.next_element()? {
            found.push((None, config));
        }
        Ok(FileContents(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FileContents, A::Error> {
        let mut probes = None;
        let rest = WithoutProbes {
            map,
            probes: &mut probes,
        };
        let config = ConfigDocument::deserialize(MapAccessDeserializer::new(rest))?;
        match probes {
            None => Ok(FileContents(vec![(None, config)])),
            Some(NamedProbes(probes)) if config == ConfigDocument::default() => {
                Ok(FileContents(probes))
            }
            Some(_) => Err(Error::custom("`probes` has no field beside it")),
        }
    }
}

impl<'de> Visitor<'de> for ProbesVisitor {
    type Value = NamedProbes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from name to configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedProbes, A::Error> {
        let mut found = Vec::new();
        while let Some((name, Object(config))) = map.next_entry()? {
            found.push((Some(name), config));
        }
        Ok(NamedProbes(found))
    }
}

/// A map whose field `probes` is kept apart: a configuration has no such field.
struct WithoutProbes<'a, A> {
    map: A,
    probes: &'a mut Option<NamedProbes>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutProbes<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            if key != "probes" {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            *self.probes = Some(self.map.next_value()?);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
