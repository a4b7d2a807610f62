//! The shape of a window's document: its metrics, and the types of the keys and values in their
//! entries. Receivers derive their tables, schemas and templates from it.

use serde::{Deserialize, Serialize};

use crate::hook::Direction;
use crate::metric::{Aggregation, MergeRule, Temporality};
use crate::window::is_default;
use crate::window::owner::WHOLE_KEY;

/// The answer to `GET /v1/probes/{name}/windows/{seq}/shape`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowShape {
    /// Hex digits that identify this shape. The texts of `help` do not count.
    pub digest: String,
    /// The metrics, in the order of the document.
    pub metrics: Vec<MetricShape>,
}

/// A metric, and the shape of its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricShape {
    pub direction: Direction,
    pub name: String,
    /// The name of the map, or of the variable, in the source.
    pub map: String,
    /// The name of the map's type.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub help: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agg: Option<Aggregation>,
    /// The beginning of the counts: the window, or the deployment of the probe.
    pub reading: Temporality,
    /// True if entry `i` counts values whose highest bit is `i`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub histogram: bool,
    /// The shape of the key; `None` if entries have no keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<FieldShape>,
    /// The shape of the value; if `per_cpu` is true, of the value of one CPU.
    pub value: FieldShape,
    /// True if the value of an entry is an array with one value for each CPU.
    #[serde(default, skip_serializing_if = "is_default")]
    pub per_cpu: bool,
    /// True if entries may name the owners of the addresses in their keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub names: bool,
    /// The families of OpenMetrics for the numbers in the values; a histogram has one family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyShape>,
}

/// A number in the values of a metric, in the terms of OpenMetrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyShape {
    /// The name, with its base unit. A counter may have the suffix `_total`.
    pub name: String,
    /// The names of the members that lead to the number in the value, with dots between them; empty
    /// for a value without members.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The base unit of a quantity: `bytes`, `seconds`, `packets` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The rule that joins the numbers in two windows or two entries.
    pub merge: MergeRule,
    /// True for a quantity that can't be negative.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counts: bool,
}

/// A field of a key or a value. A whole key or value is a field without a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldShape {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(flatten)]
    pub content: FieldContent,
    /// The meaning of a number. A sum is possible only for some meanings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<NumberMeaning>,
    /// The unit of a quantity, by the words of its name: `bytes`, `nanoseconds`, `packets` and so
    /// on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The element of IPFIX that a tag of the field names, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ie: Option<String>,
}

/// The way in which JSON documents show a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FieldContent {
    /// An integer of up to 64 bits.
    Unsigned {
        bits: u32,
    },
    /// A number with a sign.
    Signed {
        bits: u32,
    },
    /// An integer of up to 128 bits, shown as a number in JSON.
    Decimal {
        signed: bool,
    },
    Float {
        bits: u32,
    },
    Bool,
    /// Text of at most this many bytes.
    Text {
        size: usize,
    },
    /// A text of `0x` and hex digits for this many bytes.
    Hex {
        size: usize,
    },
    Ipv4,
    /// An IPv4 or IPv6 address.
    Ip,
    Mac,
    /// An address with the number of its significant bits: `10.0.0.0/8`.
    Prefix,
    /// A time in RFC 3339. A number instead of a text is not a time: `0` is "never".
    Time,
    /// The name of an interface, or its index if it has none.
    Interface,
    /// One of these names, or a number if it has no name.
    Name {
        names: Vec<ValueName>,
    },
    /// The names of the bits that are set, with `|` between them, or a number if a bit has no name.
    /// The first name in the list belongs to the lowest bit.
    Flags {
        flags: Vec<String>,
    },
    /// An object.
    Struct {
        fields: Vec<FieldShape>,
    },
    Array {
        len: usize,
        element: Box<FieldShape>,
    },
    /// The entries of an inner map: `{"type", "entries"}`.
    Entries {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<Box<FieldShape>>,
        value: Box<FieldShape>,
    },
}

/// A value of a number, with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueName {
    pub value: u64,
    pub name: String,
}

/// The meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberMeaning {
    /// A quantity, which can be added and compared.
    Quantity,
    /// The smallest of many quantities.
    Smallest,
    /// The largest of many quantities.
    Largest,
    /// A set of flags.
    Flags,
    /// A point in time.
    Time,
    /// A copy from a header, or a name. No sum is possible.
    Identity,
}

impl FieldShape {
    /// Notes the IPFIX element of the field at this path of members.
    pub fn note_element(&mut self, path: &str, element: &str) {
        if path.is_empty() {
            self.ie = Some(element.to_owned());
        } else if let FieldContent::Struct { fields } = &mut self.content {
            let (first, rest) = path.split_once('.').unwrap_or((path, ""));
            for field in fields.iter_mut().filter(|field| field.name == first) {
                field.note_element(rest, element);
            }
        }
    }

    /// Returns the names under which documents show the owners of the addresses in a key.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let members = match &self.content {
            FieldContent::Struct { fields } => &fields[..],
            _ => std::slice::from_ref(self),
        };
        let addresses = members
            .iter()
            .filter(|field| matches!(field.content, FieldContent::Ipv4 | FieldContent::Ip));
        addresses.map(|field| {
            if field.name.is_empty() {
                WHOLE_KEY
            } else {
                &field.name
            }
        })
    }
}

impl WindowShape {
    /// Returns the metric of this direction and name.
    pub fn metric(&self, direction: Direction, name: &str) -> Option<&MetricShape> {
        self.metrics
            .iter()
            .find(|metric| metric.direction == direction && metric.name == name)
    }
}
