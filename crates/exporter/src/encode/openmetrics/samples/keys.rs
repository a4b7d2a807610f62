//! The labels of a key: the parts of the key, and their names.

use crate::encode::openmetrics::text::label_name;
use crate::metric::Metric;
use twinprobe_ebpf_common::field::bits::Bits;
use twinprobe_ebpf_common::field::plan::{FieldPlan, Plan, Scalar};

/// The label of an interface that is a key, or a part of a key.
pub const INTERFACE: &str = "interface";
/// The most labels that a key may have. A key of more parts is written in hex, as one label.
pub const MAX_LABELS: usize = 64;
/// The longest name of a family or a label, in bytes. Numbers with a longer name (in nested structs
/// with long names) are left out. A key that has a part with a longer name is one label.
pub const MAX_NAME_LEN: usize = 512;

/// Returns the parts of a metric's keys, each with its name. A key with too many parts, or with a
/// part whose name is too long, is one part.
pub fn key_parts(metric: &Metric) -> Vec<FieldPlan<String>> {
    let key = &metric.layout.key;
    let (plan, size, mut parts) = (Plan::new(key, str::to_owned), key.size, Vec::new());
    let whole = metric.series.key_label.as_deref().unwrap_or("key");
    let split = split_key(&plan, whole, "", 0, size, None, &mut parts);
    if split.is_none() || parts.is_empty() {
        let (label, plan) = (whole.to_owned(), Plan::Blob { size });
        parts = vec![FieldPlan {
            label,
            offset: 0,
            size,
            bits: None,
            plan,
        }];
    }
    if metric.series.key_label.is_none() {
        name_interface(&mut parts);
    }
    parts
}

/// Adds the parts of a key, each with its name; `None` if there are too many parts, or if a part's
/// name is too long. A key without parts gets the name `whole`.
fn split_key(
    plan: &Plan<String>,
    whole: &str,
    path: &str,
    offset: usize,
    size: usize,
    bits: Option<Bits>,
    parts: &mut Vec<FieldPlan<String>>,
) -> Option<()> {
    let name = if path.is_empty() { whole } else { path };
    match plan {
        Plan::Struct(fields) => fields.iter().try_for_each(|field| {
            let below = if path.is_empty() {
                field.label.clone()
            } else {
                format!("{path}_{}", field.label)
            };
            split_key(
                &field.plan,
                whole,
                &below,
                offset + field.offset,
                field.size,
                field.bits,
                parts,
            )
        }),
        Plan::Array {
            element,
            stride,
            len,
        } => (0..*len).try_for_each(|index| {
            let name = format!("{name}_{index}");
            split_key(
                element,
                whole,
                &name,
                offset + index * stride,
                *stride,
                None,
                parts,
            )
        }),
        plan => {
            parts.push(FieldPlan {
                label: name.to_owned(),
                offset,
                size,
                bits,
                plan: plan.clone(),
            });
            (parts.len() <= MAX_LABELS && name.len() <= MAX_NAME_LEN).then_some(())
        }
    }
}

/// Gives a part of a key the name `interface` if it is the only interface among the parts: the map
/// then has an entry for each interface.
fn name_interface(keys: &mut [FieldPlan<String>]) {
    let is_interface = |key: &&mut FieldPlan<String>| {
        matches!(
            key.plan,
            Plan::Scalar {
                kind: Scalar::Ifindex,
                ..
            }
        )
    };
    if keys.iter().all(|key| key.label != INTERFACE)
        && let [one] = &mut keys.iter_mut().filter(is_interface).collect::<Vec<_>>()[..]
    {
        INTERFACE.clone_into(&mut one.label);
    }
}

/// Returns a valid label name that no other label has.
pub fn unique(name: &str, taken: &mut Vec<String>) -> String {
    let mut name = label_name(name);
    if name.starts_with("__") || taken.contains(&name) {
        name.insert_str(0, "key_");
    }
    let mut candidate = name.clone();
    let mut number = 2;
    while taken.contains(&candidate) {
        candidate = format!("{name}_{number}");
        number += 1;
    }
    taken.push(candidate.clone());
    candidate
}
