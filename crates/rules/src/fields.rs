//! The numbers that the entries of a metric have.

use std::net::IpAddr;

use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::window::shape::{FieldContent, FieldShape, MetricShape, WindowShape};

use crate::expression::reading::Selector;

/// Returns a metric; an error names the existing ones.
pub fn metric<'a>(
    shape: &'a WindowShape,
    direction: Direction,
    name: &str,
) -> Result<&'a MetricShape, String> {
    shape.metric(direction, name).ok_or_else(|| {
        let names: Vec<_> = shape
            .metrics
            .iter()
            .filter(|metric| metric.direction == direction)
            .map(|metric| &*metric.name)
            .collect();
        let direction = direction.name();
        match names.as_slice() {
            [] => format!("the probe has no metric in {direction}"),
            names => format!("{direction} has no metric {name:?}; it has {}", names.join(", ")),
        }
    })
}

/// Returns the paths of the numbers in a value, in their order; the path of a value that is a number itself is empty.
pub fn numbers(metric: &MetricShape) -> Vec<String> {
    let mut paths = Vec::new();
    if !metric.per_cpu {
        append(&metric.value, "", &mut paths);
    }
    paths
}

fn append(field: &FieldShape, path: &str, paths: &mut Vec<String>) {
    match &field.content {
        FieldContent::Unsigned { .. }
        | FieldContent::Signed { .. }
        | FieldContent::Decimal { .. }
        | FieldContent::Float { .. } => paths.push(path.to_owned()),
        FieldContent::Struct { fields } => {
            for field in fields {
                let path =
                    if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
                append(field, &path, paths);
            }
        }
        _ => {}
    }
}

/// Returns the entries that a text chooses: `SYN`, the key itself, or `port=53`, a part of it. A text that no key can
/// match is a mistake, most often in the name of a field.
pub fn selector(metric: &MetricShape, text: &str) -> Result<Selector, String> {
    let fault = |what: String| {
        let fields: Vec<_> = numbers(metric).into_iter().filter(|path| !path.is_empty()).collect();
        let fields = fields.join(", ");
        let fields = if fields.is_empty() { "no fields".to_owned() } else { format!("the fields {fields}") };
        format!("{} has {fields}, and {what}", metric.name)
    };
    let key = metric.key.as_ref().ok_or_else(|| fault(format!("no keys: {text:?} is none of these")))?;
    if let FieldContent::Struct { fields } = &key.content {
        let names: Vec<_> = fields.iter().map(|field| &*field.name).collect();
        let parts = || fault(format!("keys of several parts: write {}=VALUE", names.join("=VALUE or ")));
        let (path, value) = text.split_once('=').ok_or_else(parts)?;
        let part = part(key, path).ok_or_else(parts)?;
        return match can_be(&part.content, value) {
            true => Ok(Selector::Part(path.to_owned(), value.to_owned())),
            false => Err(fault(format!("{value:?} can't be the {path} of a key"))),
        };
    }
    match can_be(&key.content, text) {
        true => Ok(Selector::Key(text.to_owned())),
        false => Err(fault(format!("{text:?} can't be a key"))),
    }
}

fn part<'a>(key: &'a FieldShape, path: &str) -> Option<&'a FieldShape> {
    path.split('.').try_fold(key, |field, name| match &field.content {
        FieldContent::Struct { fields } => fields.iter().find(|field| field.name == name),
        _ => None,
    })
}

/// Tells whether documents can show a field as this text.
fn can_be(content: &FieldContent, text: &str) -> bool {
    let is_number = || text.parse::<i128>().is_ok();
    match content {
        FieldContent::Unsigned { .. } | FieldContent::Signed { .. } | FieldContent::Decimal { .. } => {
            is_number()
        }
        FieldContent::Float { .. } => text.parse::<f64>().is_ok(),
        FieldContent::Bool => matches!(text, "true" | "false"),
        FieldContent::Prefix => text.contains('/'),
        FieldContent::Ipv4 | FieldContent::Ip => text.parse::<IpAddr>().is_ok(),
        FieldContent::Name { names } => is_number() || names.iter().any(|name| name.name == text),
        FieldContent::Hex { .. } => text.starts_with("0x"),
        FieldContent::Struct { .. } => false,
        _ => true,
    }
}
