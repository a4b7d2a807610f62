//! The reading of a configuration's fields. It accepts one spelling where JSON and YAML have
//! several.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Unexpected, Visitor};
use serde_json::Value;
use twinprobe_ebpf_common::request::{Fills, MapEntry};

/// Reads the value of a field that is present: a `null` is a wrong type, not another way to leave a
/// field out.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

pub fn present_integer<'de, D: Deserializer<'de>, T: TryFrom<i128>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Integer::deserialize(deserializer).map(|integer| Some(integer.0))
}

pub fn present_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Text::deserialize(deserializer).map(|text| Some(text.0))
}

pub fn present_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    let texts = Vec::<Text>::deserialize(deserializer)?;
    Ok(Some(texts.into_iter().map(|text| text.0).collect()))
}

pub fn present_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Object::deserialize(deserializer).map(|object| Some(object.0))
}

pub fn present_objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(Some(objects.into_iter().map(|object| object.0).collect()))
}

pub fn present_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Texts::deserialize(deserializer).map(|texts| Some(texts.0))
}

pub fn present_values<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, Value>>, D::Error> {
    deserializer
        .deserialize_map(Unique::of("values of variables"))
        .map(Some)
}

pub fn present_counts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, u32>>, D::Error> {
    let counts = deserializer.deserialize_map(Unique::<Integer<u32>>::of("numbers of entries"))?;
    Ok(Some(
        counts
            .into_iter()
            .map(|(map, count)| (map, count.0))
            .collect(),
    ))
}

pub fn present_fill<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Fills>, D::Error> {
    let maps =
        deserializer.deserialize_map(Unique::<Vec<Object<MapEntry>>>::of("lists of entries"))?;
    let entries = |list: Vec<Object<MapEntry>>| list.into_iter().map(|entry| entry.0).collect();
    Ok(Some(
        maps.into_iter()
            .map(|(map, list)| (map, entries(list)))
            .collect(),
    ))
}

/// The objects of strings by their names.
pub type Maps = BTreeMap<String, BTreeMap<String, String>>;

pub fn present_maps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Maps>, D::Error> {
    let maps = deserializer.deserialize_map(Unique::<Texts>::of("objects"))?;
    Ok(Some(
        maps.into_iter()
            .map(|(key, texts)| (key, texts.0))
            .collect(),
    ))
}

/// A struct written as an object. Without this type serde would also accept an array of the values
/// in order.
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
pub struct Text(String);

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

/// An integer. As in JSON Schema, each number without a fraction is an integer: `2.0` is 2.
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
                // A number beyond 128 bits becomes the largest integer, which is also outside of
                // every range.
                (number.fract() == 0.0)
                    .then_some(number as i128)
                    .ok_or_else(refused)
            }
        }

        let number = deserializer.deserialize_any(OnlyInteger)?;
        let refused = |_| D::Error::custom(format_args!("{number} is out of range"));
        T::try_from(number).map(Self).map_err(refused)
    }
}

/// An object in which no key comes twice (without this type serde would keep the last value).
pub struct Unique<T>(&'static str, PhantomData<T>);

impl<T> Unique<T> {
    pub const fn of(values: &'static str) -> Self {
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
pub struct Texts(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(Unique::of("strings"))
            .map(texts)
    }
}

pub fn texts(map: BTreeMap<String, Text>) -> Texts {
    Texts(map.into_iter().map(|(key, text)| (key, text.0)).collect())
}
