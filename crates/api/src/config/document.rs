//! The configuration as a PUT or a file contains it. Validation checks the values, so that one answer can name every
//! mistake: therefore choices are strings here.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use twinprobe_ebpf_common::request::{Fills, MapEntry};

/// The body of `PUT /v1/probes/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigDocument {
    /// The name of the probe, so that the same file serves a PUT and `apply`; in a PUT it repeats the name in the path.
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    #[serde(deserialize_with = "present_texts", skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<String>>,
    #[serde(deserialize_with = "present_texts", skip_serializing_if = "Option::is_none")]
    pub exclude_interfaces: Option<Vec<String>>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub per_interface: Option<bool>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub wait_for_interface: Option<bool>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub on_replace: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(deserialize_with = "present_map", skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// What the names of families of OpenMetrics begin with.
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    #[serde(deserialize_with = "present_texts", skip_serializing_if = "Option::is_none")]
    pub shared_maps: Option<Vec<String>>,
    /// The entries that maps begin with, by the name of the map.
    #[serde(deserialize_with = "present_fill", skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fills>,
    #[serde(deserialize_with = "present_object", skip_serializing_if = "Option::is_none")]
    pub ingress: Option<DirectionDocument>,
    #[serde(deserialize_with = "present_object", skip_serializing_if = "Option::is_none")]
    pub egress: Option<DirectionDocument>,
    #[serde(deserialize_with = "present_object", skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowDocument>,
}

impl ConfigDocument {
    /// Names these interfaces and exceptions; what is empty leaves what the configuration says.
    pub fn go_to(&mut self, interfaces: &[String], exclude: &[String]) {
        if !interfaces.is_empty() {
            (self.interface, self.interfaces) = (None, Some(interfaces.to_vec()));
        }
        if !exclude.is_empty() {
            self.exclude_interfaces = Some(exclude.to_vec());
        }
    }

    /// Names the interfaces that another configuration names.
    pub fn go_where(&mut self, other: &Self) {
        self.interface.clone_from(&other.interface);
        self.interfaces.clone_from(&other.interfaces);
        self.exclude_interfaces.clone_from(&other.exclude_interfaces);
        self.netns.clone_from(&other.netns);
    }
}

/// The program for one direction of the interfaces, and its metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectionDocument {
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The path of the source; for files only. The command line sends the text as `source`; the daemon refuses the
    /// field.
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub source_file: Option<String>,
    /// The files that the source includes by `#include "NAME"`.
    #[serde(deserialize_with = "present_map", skip_serializing_if = "Option::is_none")]
    pub files: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// For each table of programs the function in each slot, whose number is a key.
    #[serde(deserialize_with = "present_maps", skip_serializing_if = "Option::is_none")]
    pub calls: Option<Maps>,
    /// An ELF object that was compiled elsewhere, in base64.
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    #[serde(deserialize_with = "present_map", skip_serializing_if = "Option::is_none")]
    pub defines: Option<BTreeMap<String, String>>,
    /// Initial values of global variables, as documents render them.
    #[serde(deserialize_with = "present_values", skip_serializing_if = "Option::is_none")]
    pub variables: Option<BTreeMap<String, Value>>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub max_ns_per_packet: Option<u64>,
    #[serde(deserialize_with = "present_objects", skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<MetricDocument>>,
}

/// One map, or one variable, that is read as a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricDocument {
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<bool>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub init: Option<bool>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub export: Option<bool>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub agg: Option<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeDocument>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub sum_entries: Option<u64>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub sum_expires: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub key_label: Option<String>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub max_series: Option<u64>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub series_by: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub on_replace: Option<String>,
    #[serde(rename = "type", deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
}

/// The rules by which windows add up: one rule for the whole value, or one per field of the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum MergeDocument {
    Whole(String),
    Fields(BTreeMap<String, String>),
}

/// The schedule on which windows are closed, and the limits of their retention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WindowDocument {
    #[serde(deserialize_with = "present_text", skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub align: Option<bool>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub retain: Option<u64>,
    #[serde(deserialize_with = "present_integer", skip_serializing_if = "Option::is_none")]
    pub retain_bytes: Option<u64>,
    #[serde(deserialize_with = "present_texts", skip_serializing_if = "Option::is_none")]
    pub collectors: Option<Vec<String>>,
}

/// Reads the value of a field that is present: a `null` is a wrong type, not another way to leave a field out.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn present_integer<'de, D: Deserializer<'de>, T: TryFrom<i128>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Integer::deserialize(deserializer).map(|integer| Some(integer.0))
}

fn present_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Text::deserialize(deserializer).map(|text| Some(text.0))
}

fn present_texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let texts = Vec::<Text>::deserialize(deserializer)?;
    Ok(Some(texts.into_iter().map(|text| text.0).collect()))
}

fn present_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Object::deserialize(deserializer).map(|object| Some(object.0))
}

fn present_objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(Some(objects.into_iter().map(|object| object.0).collect()))
}

fn present_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Texts::deserialize(deserializer).map(|texts| Some(texts.0))
}

fn present_values<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, Value>>, D::Error> {
    deserializer.deserialize_map(Unique::of("values of variables")).map(Some)
}

fn present_fill<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Fills>, D::Error> {
    let maps = deserializer.deserialize_map(Unique::<Vec<Object<MapEntry>>>::of("lists of entries"))?;
    let entries = |list: Vec<Object<MapEntry>>| list.into_iter().map(|entry| entry.0).collect();
    Ok(Some(maps.into_iter().map(|(map, list)| (map, entries(list))).collect()))
}

/// The objects of strings by their names.
type Maps = BTreeMap<String, BTreeMap<String, String>>;

fn present_maps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Maps>, D::Error> {
    let maps = deserializer.deserialize_map(Unique::<Texts>::of("objects"))?;
    Ok(Some(maps.into_iter().map(|(key, texts)| (key, texts.0)).collect()))
}

/// A struct written as an object. Without this type serde would also accept an array of the values in order.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyMap<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(access)).map(Object)
            }
        }

        deserializer.deserialize_map(OnlyMap(PhantomData))
    }
}

/// A string that is written as a string: a YAML library would also accept a number.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyText;

        impl Visitor<'_> for OnlyText {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
        }

        deserializer.deserialize_any(OnlyText)
    }
}

/// An integer. As in JSON Schema, a number without a fraction is one however it is written: `2.0` is 2.
pub struct Integer<T>(pub T);

impl<'de, T: TryFrom<i128>> Deserialize<'de> for Integer<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyInteger;

        impl Visitor<'_> for OnlyInteger {
            type Value = i128;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }

            fn visit_u64<E>(self, number: u64) -> Result<i128, E> {
                Ok(number.into())
            }

            fn visit_i64<E>(self, number: i64) -> Result<i128, E> {
                Ok(number.into())
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<i128, E> {
                let refused = || E::invalid_type(Unexpected::Float(number), &self);
                // A number beyond 128 bits becomes the largest integer, which is out of every range, too.
                (number.fract() == 0.0).then_some(number as i128).ok_or_else(refused)
            }
        }

        let number = deserializer.deserialize_any(OnlyInteger)?;
        let refused = |_| D::Error::custom(format_args!("{number} is out of range"));
        T::try_from(number).map(Self).map_err(refused)
    }
}

/// An object in which no key comes twice (without this type serde would keep the last value).
struct Unique<T>(&'static str, PhantomData<T>);

impl<T> Unique<T> {
    const fn of(values: &'static str) -> Self {
        Self(values, PhantomData)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Unique<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object whose values are {}", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
            }
            map.insert(key, access.next_value()?);
        }
        Ok(map)
    }
}

/// An object of strings.
struct Texts(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Unique::of("strings")).map(texts)
    }
}

fn texts(map: BTreeMap<String, Text>) -> Texts {
    Texts(map.into_iter().map(|(key, text)| (key, text.0)).collect())
}

impl<'de> Deserialize<'de> for MergeDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RuleOrFields;

        impl<'de> Visitor<'de> for RuleOrFields {
            type Value = MergeDocument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule (string) or an object from field to rule")
            }

            fn visit_str<E>(self, rule: &str) -> Result<MergeDocument, E> {
                Ok(MergeDocument::Whole(rule.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<MergeDocument, A::Error> {
                Unique::of("strings").visit_map(access).map(|map| MergeDocument::Fields(texts(map).0))
            }
        }

        deserializer.deserialize_any(RuleOrFields)
    }
}
