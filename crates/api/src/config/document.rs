//! The configuration as a PUT or a file contains it. Validation checks the values, so that one
//! answer can name every mistake: therefore choices are strings here.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use twinprobe_ebpf_common::request::Fills;

use super::pods::PodsDocument;
use super::present::{
    Maps, Unique, present, present_counts, present_fill, present_integer, present_map,
    present_maps, present_object, present_objects, present_text, present_texts, present_values,
    texts,
};

/// The body of `PUT /v1/probes/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigDocument {
    /// The name of the probe, so that the same file serves a PUT and `apply`; in a PUT it repeats
    /// the name in the path.
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub interface: Option<String>,
    #[serde(
        deserialize_with = "present_texts",
        skip_serializing_if = "Option::is_none"
    )]
    pub interfaces: Option<Vec<String>>,
    #[serde(
        deserialize_with = "present_texts",
        skip_serializing_if = "Option::is_none"
    )]
    pub exclude_interfaces: Option<Vec<String>>,
    #[serde(
        deserialize_with = "present_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub pods: Option<PodsDocument>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub per_interface: Option<bool>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub wait_for_interface: Option<bool>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub netns: Option<String>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<i64>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub position: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub on_replace: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub format: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires: Option<String>,
    #[serde(
        deserialize_with = "present_map",
        skip_serializing_if = "Option::is_none"
    )]
    pub labels: Option<BTreeMap<String, String>>,
    /// The prefix of the names of families in OpenMetrics.
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub subsystem: Option<String>,
    #[serde(
        deserialize_with = "present_texts",
        skip_serializing_if = "Option::is_none"
    )]
    pub shared_maps: Option<Vec<String>>,
    /// The entries that maps begin with, by the name of the map.
    #[serde(
        deserialize_with = "present_fill",
        skip_serializing_if = "Option::is_none"
    )]
    pub fill: Option<Fills>,
    #[serde(
        deserialize_with = "present_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub ingress: Option<DirectionDocument>,
    #[serde(
        deserialize_with = "present_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub egress: Option<DirectionDocument>,
    #[serde(
        deserialize_with = "present_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub window: Option<WindowDocument>,
}

impl ConfigDocument {
    /// Sets the interfaces and the exceptions. An empty list leaves the list of the configuration.
    pub fn go_to(&mut self, interfaces: &[String], exclude: &[String]) {
        if !interfaces.is_empty() {
            (self.interface, self.pods, self.interfaces) = (None, None, Some(interfaces.to_vec()));
        }
        if !exclude.is_empty() {
            self.exclude_interfaces = Some(exclude.to_vec());
        }
    }

    /// Sets the interfaces, without exceptions: a named interface stands for itself. An empty list
    /// changes nothing.
    pub fn go_only_to(&mut self, interfaces: &[String]) {
        (self.interface, self.interfaces, self.pods) = match interfaces {
            [] => return,
            [one] => (Some(one.clone()), None, None),
            many => (None, Some(many.to_owned()), None),
        };
        self.exclude_interfaces = None;
    }

    /// Tells whether the configuration names no interfaces and no pods.
    pub const fn goes_nowhere(&self) -> bool {
        self.interface.is_none() && self.interfaces.is_none() && self.pods.is_none()
    }

    /// Sets the labels of the pods in place of names of interfaces, and the exceptions. An empty
    /// list of exceptions leaves the exceptions of the configuration.
    pub fn go_to_pods(&mut self, pods: PodsDocument, exclude: &[String]) {
        (self.interface, self.interfaces, self.pods) = (None, None, Some(pods));
        self.go_to(&[], exclude);
    }

    /// Adds maps that both directions use.
    pub fn share(&mut self, maps: &[String]) {
        for map in maps {
            let shared = self.shared_maps.get_or_insert_default();
            if !shared.contains(map) {
                shared.push(map.clone());
            }
        }
    }

    /// Removes the programs, which may be large: sources, objects and the files beside sources.
    pub fn forget_sources(&mut self) {
        for direction in [&mut self.ingress, &mut self.egress].into_iter().flatten() {
            (direction.source, direction.object, direction.files) = (None, None, None);
        }
    }

    /// Takes over the interfaces, the pods and the network namespace of another configuration.
    pub fn go_where(&mut self, other: &Self) {
        self.interface.clone_from(&other.interface);
        self.interfaces.clone_from(&other.interfaces);
        self.exclude_interfaces
            .clone_from(&other.exclude_interfaces);
        self.pods.clone_from(&other.pods);
        self.netns.clone_from(&other.netns);
    }
}

/// The program for one direction of the interfaces, and its metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectionDocument {
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub hook: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub mode: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub verdict: Option<String>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<i64>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub position: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub source: Option<String>,
    /// The path of the source; for files only. The command line sends the text as `source`; the
    /// daemon refuses the field.
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub source_file: Option<String>,
    /// The files that the source includes by `#include "NAME"`.
    #[serde(
        deserialize_with = "present_map",
        skip_serializing_if = "Option::is_none"
    )]
    pub files: Option<BTreeMap<String, String>>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub dialect: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub entry: Option<String>,
    /// For each table of programs the function in each slot, whose number is a key.
    #[serde(
        deserialize_with = "present_maps",
        skip_serializing_if = "Option::is_none"
    )]
    pub calls: Option<Maps>,
    /// An ELF object that was compiled elsewhere, in base64.
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub object: Option<String>,
    #[serde(
        deserialize_with = "present_map",
        skip_serializing_if = "Option::is_none"
    )]
    pub defines: Option<BTreeMap<String, String>>,
    /// Initial values of global variables, in the form of documents.
    #[serde(
        deserialize_with = "present_values",
        skip_serializing_if = "Option::is_none"
    )]
    pub variables: Option<BTreeMap<String, Value>>,
    /// The numbers of entries of maps, in place of those that their definitions have.
    #[serde(
        deserialize_with = "present_counts",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_entries: Option<BTreeMap<String, u32>>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub sample: Option<u64>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_ns_per_packet: Option<u64>,
    #[serde(
        deserialize_with = "present_objects",
        skip_serializing_if = "Option::is_none"
    )]
    pub metrics: Option<Vec<MetricDocument>>,
}

impl DirectionDocument {
    /// Takes an object, in base64, in place of the source that it was compiled from.
    pub fn take_object(&mut self, object: String) {
        self.object = Some(object);
        (self.source, self.files, self.defines) = (None, None, None);
        (self.dialect, self.calls) = (None, None);
    }
}

/// One map, or one variable, that a metric reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricDocument {
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub map: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub help: Option<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<bool>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub init: Option<bool>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub export: Option<bool>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub agg: Option<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeDocument>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub sum_entries: Option<u64>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub sum_expires: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub key_label: Option<String>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_series: Option<u64>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub series_by: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub strategy: Option<String>,
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub on_replace: Option<String>,
    #[serde(
        rename = "type",
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub event_type: Option<String>,
}

/// The rules for adding windows: one rule for the whole value, or one per field of the value.
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
    #[serde(
        deserialize_with = "present_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub interval: Option<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub align: Option<bool>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub retain: Option<u64>,
    #[serde(
        deserialize_with = "present_integer",
        skip_serializing_if = "Option::is_none"
    )]
    pub retain_bytes: Option<u64>,
    #[serde(
        deserialize_with = "present_texts",
        skip_serializing_if = "Option::is_none"
    )]
    pub collectors: Option<Vec<String>>,
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
                Unique::of("strings")
                    .visit_map(access)
                    .map(|map| MergeDocument::Fields(texts(map).0))
            }
        }

        deserializer.deserialize_any(RuleOrFields)
    }
}
