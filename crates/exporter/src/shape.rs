//! The shape of JSON documents, derived from the plans by which documents are written.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use twinprobe_ebpf_common::field::meaning::Meaning;
use twinprobe_ebpf_common::field::plan::{FieldPlan, Plan, Scalar};
use twinprobe_ebpf_common::window::shape::{
    FamilyShape, FieldContent, FieldShape, MetricShape, NumberMeaning, ValueName, WindowShape,
};
use twinprobe_ebpf_common::{Layout, MergeRule, TableLayout};

use crate::aggregate::Folded;
use crate::encode::openmetrics::rows::flat::flat;
use crate::encode::openmetrics::samples::{FamilySamples, Samples};
use crate::metric::Metric;

/// The units that the last word of a name may be. `bytes_seen_nanoseconds` has the unit of its last
/// word, not of its first.
const UNITS: [&str; 14] = [
    "bytes",
    "octets",
    "packets",
    "pkts",
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "seconds",
    "kilobytes",
    "megabytes",
    "kibibytes",
    "mebibytes",
    "ns",
    "millibits",
];

/// Returns the shape of a document with these metrics. `has_owners` tells whether it names the
/// owners of addresses in keys.
pub fn window_shape<'a>(
    metrics: impl IntoIterator<Item = &'a Arc<Metric>>,
    has_owners: bool,
) -> WindowShape {
    let mut shape = WindowShape {
        digest: String::new(),
        metrics: metrics.into_iter().map(metric).collect(),
    };
    shape
        .metrics
        .iter_mut()
        .for_each(|metric| metric.names = has_owners && has_addresses(metric.key.as_ref()));
    // The digest leaves out the explanations, which change no table and no schema.
    let mut bare = shape.clone();
    bare.metrics
        .iter_mut()
        .for_each(|metric| metric.help.clear());
    let bytes = serde_json::to_vec(&bare).unwrap_or_default();
    // 128 bits are enough to distinguish all shapes that will ever exist.
    shape.digest = Sha256::digest(&bytes)[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    shape
}

/// Tells whether a key is an address or contains one.
fn has_addresses(key: Option<&FieldShape>) -> bool {
    key.is_some_and(|key| key.addresses().next().is_some())
}

fn metric(metric: &Arc<Metric>) -> MetricShape {
    let layout = &*metric.layout;
    let folded = Folded::of(metric, layout.inner.as_ref().unwrap_or(&metric.layout));
    let folded = folded.as_ref().map(|folded| &folded.value);
    let (mut key, mut value) = table(layout, folded, &metric.name);
    for (path, element) in &metric.elements.key {
        key.iter_mut()
            .for_each(|key| key.note_element(path, element));
    }
    metric
        .elements
        .value
        .iter()
        .for_each(|(path, element)| value.note_element(path, element));
    MetricShape {
        direction: metric.direction,
        name: metric.name.clone(),
        map: metric.map.clone(),
        kind: metric.type_name().to_owned(),
        help: metric.help.clone(),
        agg: metric.agg,
        reading: metric.temporality,
        histogram: metric.has_slots(),
        key,
        value,
        per_cpu: layout.kind.is_percpu() && folded.is_none(),
        names: false,
        families: families(metric),
    }
}

/// The families of a metric's numbers, which [`families`] computes once per metric.
struct Families(Vec<FamilyShape>);

/// Returns the OpenMetrics families of a metric's numbers.
fn families(metric: &Arc<Metric>) -> Vec<FamilyShape> {
    let flat = flat(metric);
    let folded = Folded::of(&flat, &flat.layout);
    let made = metric.cache().get(|| {
        let value = folded
            .as_ref()
            .map_or(&flat.layout.value, |folded| &folded.value);
        // Labels of the configuration change no name of a family.
        let samples = Samples::new(&flat, value, std::iter::empty());
        let family = |value: &FamilySamples| FamilyShape {
            name: value.family.clone(),
            field: value.field.clone(),
            unit: unit(&value.family),
            merge: value.join.rule,
            counts: value.counts,
        };
        Families(samples.values.iter().map(family).collect())
    });
    made.0.clone()
}

/// Returns the shapes of the key and the value of a map. The value of a map of maps has entries.
fn table(
    layout: &TableLayout,
    folded: Option<&Layout>,
    name: &str,
) -> (Option<FieldShape>, FieldShape) {
    let key = layout.kind.has_keys().then(|| whole(&layout.key, ""));
    if let Some(inner) = &layout.inner {
        let (key_inside, value) = table(inner, folded, name);
        let content = FieldContent::Entries {
            key: key_inside.map(Box::new),
            value: Box::new(value),
        };
        return (
            key,
            FieldShape {
                name: String::new(),
                content,
                meaning: None,
                unit: None,
                ie: None,
            },
        );
    }
    let value = folded
        .filter(|_| layout.kind.is_percpu())
        .unwrap_or(&layout.value);
    (key, whole(value, name))
}

/// Returns the shape of a whole key or value. `name` is the name for a number without a name.
fn whole(layout: &Layout, name: &str) -> FieldShape {
    let plan = Plan::new(layout, str::to_owned);
    shaped(
        &plan,
        &mut FieldPlace {
            path: String::new(),
            is_item: false,
            fallback: name,
        },
        None,
    )
}

/// The place of a field in its value.
struct FieldPlace<'a> {
    path: String,
    is_item: bool,
    fallback: &'a str,
}

fn shaped(plan: &Plan<String>, place: &mut FieldPlace<'_>, bits: Option<u32>) -> FieldShape {
    let content = content(plan, place, bits);
    let scalar = match plan {
        Plan::Scalar { kind, size } => Some((Some(kind), 8 * *size as u32)),
        Plan::Float { size } => Some((None, 8 * *size as u32)),
        _ => None,
    };
    let meaning = scalar.map(|(kind, width)| {
        meaning(Meaning::of(
            kind,
            &place.path,
            bits.unwrap_or(width),
            place.is_item,
        ))
    });
    let own = place
        .path
        .rsplit_once('.')
        .map_or(&*place.path, |(_, name)| name);
    let name = if own.is_empty() { place.fallback } else { own };
    let is_amount = matches!(
        meaning,
        Some(NumberMeaning::Quantity | NumberMeaning::Smallest | NumberMeaning::Largest)
    );
    FieldShape {
        name: own.to_owned(),
        content,
        meaning,
        unit: unit(name).filter(|_| is_amount),
        ie: None,
    }
}

fn content(plan: &Plan<String>, place: &mut FieldPlace<'_>, bits: Option<u32>) -> FieldContent {
    match plan {
        Plan::Scalar { kind, size } => scalar(kind, bits.unwrap_or(8 * *size as u32)),
        Plan::Float { size } => FieldContent::Float {
            bits: 8 * *size as u32,
        },
        Plan::Text { size } => FieldContent::Text { size: *size },
        Plan::Blob { size } => FieldContent::Hex { size: *size },
        Plan::Ipv4 => FieldContent::Ipv4,
        Plan::Ip => FieldContent::Ip,
        Plan::Mac => FieldContent::Mac,
        Plan::Prefix(_) => FieldContent::Prefix,
        Plan::Struct(fields) => {
            let outer = std::mem::replace(&mut place.is_item, false);
            let fields = fields.iter().map(|field| member(field, place)).collect();
            place.is_item = outer;
            FieldContent::Struct { fields }
        }
        Plan::Array { element, len, .. } => {
            let outer = std::mem::replace(&mut place.is_item, true);
            let mut element = shaped(element, place, None);
            place.is_item = outer;
            element.name.clear();
            FieldContent::Array {
                len: *len,
                element: Box::new(element),
            }
        }
    }
}

fn member(field: &FieldPlan<String>, place: &mut FieldPlace<'_>) -> FieldShape {
    let parent = place.path.len();
    if parent > 0 {
        place.path.push('.');
    }
    place.path.push_str(&field.label);
    let mut shape = shaped(&field.plan, place, field.bits.map(|bits| bits.width));
    place.path.truncate(parent);
    shape.name.clone_from(&field.label);
    shape
}

fn scalar(kind: &Scalar, bits: u32) -> FieldContent {
    match kind {
        Scalar::Unsigned | Scalar::Swapped if bits <= 64 => FieldContent::Unsigned { bits },
        Scalar::Signed if bits <= 64 => FieldContent::Signed { bits },
        Scalar::Unsigned | Scalar::Swapped | Scalar::Signed | Scalar::Hex => FieldContent::Hex {
            size: bits.div_ceil(8) as usize,
        },
        Scalar::Decimal { signed } => FieldContent::Decimal { signed: *signed },
        Scalar::Bool => FieldContent::Bool,
        Scalar::Enum { variants, .. } => FieldContent::Name {
            names: variants
                .iter()
                .map(|(value, name)| ValueName {
                    value: *value,
                    name: name.clone(),
                })
                .collect(),
        },
        Scalar::Flags(names) => FieldContent::Flags {
            flags: names.iter().map(|name| (*name).to_owned()).collect(),
        },
        Scalar::Ktime | Scalar::Time => FieldContent::Time,
        Scalar::Ifindex => FieldContent::Interface,
    }
}

const fn meaning(meaning: Meaning) -> NumberMeaning {
    match meaning {
        Meaning::Quantity => NumberMeaning::Quantity,
        Meaning::Extreme(MergeRule::Min) => NumberMeaning::Smallest,
        Meaning::Extreme(_) => NumberMeaning::Largest,
        Meaning::Flags => NumberMeaning::Flags,
        Meaning::Time { .. } => NumberMeaning::Time,
        Meaning::Copied | Meaning::Identity => NumberMeaning::Identity,
    }
}

/// Returns the unit in a name, in the words of the name.
fn unit(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let mut words = lower
        .rsplit('_')
        .filter(|word| !matches!(*word, "total" | "sum" | "max" | "min" | ""));
    let last = words.next()?;
    let unit = UNITS.iter().find(|unit| **unit == last)?;
    Some(
        match *unit {
            "octets" => "bytes",
            "pkts" => "packets",
            "ns" => "nanoseconds",
            unit => unit,
        }
        .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{MapKind, Member, Render, Shape};

    use super::*;

    fn flows(bytes: usize) -> Arc<Metric> {
        let member = |name: &str, offset: usize, layout| Member {
            name: name.into(),
            bit_offset: 8 * offset,
            bitfield: None,
            layout,
        };
        let address = Layout {
            render: Some(Render::Ipv4),
            ..Layout::unsigned(4)
        };
        let key = vec![
            member("src", 0, address),
            member("port", 4, Layout::unsigned(2)),
        ];
        let value = vec![member("bytes", 0, Layout::unsigned(bytes))];
        let shaped = |size, members| Layout {
            size,
            shape: Shape::Struct(members),
            render: None,
        };
        Arc::new(Metric::example(
            "flows",
            TableLayout {
                kind: MapKind::Hash,
                key: shaped(6, key),
                value: shaped(bytes, value),
                slots: 1,
                inner: None,
            },
        ))
    }

    #[test]
    fn keys_and_values_are_described_by_their_rendering() {
        let shape = window_shape([&flows(8)], false);
        let json = serde_json::to_value(&shape.metrics[0]).unwrap();
        assert_eq!(
            json["key"],
            serde_json::json!({ "type": "struct", "fields": [
                { "name": "src", "type": "ipv4" },
                { "name": "port", "type": "unsigned", "bits": 16, "meaning": "identity" },
            ]})
        );
        assert_eq!(
            json["value"]["fields"],
            serde_json::json!([
                { "name": "bytes", "type": "unsigned", "bits": 64, "meaning": "quantity", "unit": "bytes" }
            ])
        );
        assert_eq!(
            json["families"],
            serde_json::json!([
                { "name": "flows_bytes", "field": "bytes", "unit": "bytes", "merge": "sum", "counts": true }
            ])
        );
        let read: WindowShape =
            serde_json::from_slice(&serde_json::to_vec(&shape).unwrap()).unwrap();
        assert_eq!(read, shape);
    }

    #[test]
    fn elements_of_tags_are_those_of_their_fields() {
        let tagged = Arc::new(Metric::clone(&flows(8)).with(|head| {
            head.elements
                .key
                .insert("src".into(), "sourceIPv4Address".into());
            head.elements
                .value
                .insert("bytes".into(), "octetDeltaCount".into());
        }));
        let json = serde_json::to_value(&window_shape([&tagged], false).metrics[0]).unwrap();
        assert_eq!(json["key"]["fields"][0]["ie"], "sourceIPv4Address");
        assert_eq!(json["key"]["fields"][1].get("ie"), None);
        assert_eq!(json["value"]["fields"][0]["ie"], "octetDeltaCount");
    }

    #[test]
    fn another_layout_has_another_digest_and_another_help_has_not() {
        let digest = |metric: &Arc<Metric>| window_shape([metric], false).digest;
        let explained = Arc::new(Metric::clone(&flows(8)).with(|head| head.help = "Flows".into()));
        assert_eq!(digest(&flows(8)), digest(&explained));
        assert_ne!(digest(&flows(8)), digest(&flows(4)));
    }
}
