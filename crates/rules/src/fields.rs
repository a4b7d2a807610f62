//! The numbers that the entries of a metric have.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::field::names;
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
            names => format!(
                "{direction} has no metric {name:?}; it has {}",
                names.join(", ")
            ),
        }
    })
}

/// Returns the paths of the numbers in a value, in their order; the path of a value that is a
/// number itself is empty.
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
                let path = if path.is_empty() {
                    field.name.clone()
                } else {
                    format!("{path}.{}", field.name)
                };
                append(field, &path, paths);
            }
        }
        _ => {}
    }
}

/// Returns the entries that a text chooses: `SYN`, the key itself, or `port=53`, a part of it. A
/// text that no key can match is a mistake, most often in the name of a field.
pub fn selector(metric: &MetricShape, text: &str) -> Result<Selector, String> {
    let fault = |what: String| {
        let fields: Vec<_> = numbers(metric)
            .into_iter()
            .filter(|path| !path.is_empty())
            .collect();
        let fields = fields.join(", ");
        let fields = if fields.is_empty() {
            "no fields".to_owned()
        } else {
            format!("the fields {fields}")
        };
        format!("{} has {fields}, and {what}", metric.name)
    };
    let key = metric
        .key
        .as_ref()
        .ok_or_else(|| fault(format!("no keys: {text:?} is none of these")))?;
    if let FieldContent::Struct { fields } = &key.content {
        let names: Vec<_> = fields.iter().map(|field| &*field.name).collect();
        let parts = || {
            fault(format!(
                "keys of several parts: write {}=VALUE",
                names.join("=VALUE or ")
            ))
        };
        let (path, value) = text.split_once('=').ok_or_else(parts)?;
        let part = part(key, path).ok_or_else(parts)?;
        let shown = shown(&part.content, value);
        let shown =
            shown.ok_or_else(|| fault(format!("{value:?} can't be the {path} of a key")))?;
        return Ok(Selector::Part(path.to_owned(), shown));
    }
    let shown =
        shown(&key.content, text).ok_or_else(|| fault(format!("{text:?} can't be a key")))?;
    Ok(Selector::Key(shown))
}

/// Refuses a part that keys do not have. The empty path is the whole key.
pub fn check_part(metric: &MetricShape, path: &str) -> Result<(), String> {
    if path.is_empty()
        || metric
            .key
            .as_ref()
            .is_some_and(|key| part(key, path).is_some())
    {
        return Ok(());
    }
    let parts: Vec<_> = match metric.key.as_ref().map(|key| &key.content) {
        Some(FieldContent::Struct { fields }) => fields.iter().map(|field| &*field.name).collect(),
        _ => {
            return Err(format!(
                "the keys of {} have no parts; leave .{path} out",
                metric.name
            ));
        }
    };
    Err(format!(
        "the keys of {} have no part {path:?}; they have {}",
        metric.name,
        parts.join(", ")
    ))
}

fn part<'a>(key: &'a FieldShape, path: &str) -> Option<&'a FieldShape> {
    path.split('.')
        .try_fold(key, |field, name| match &field.content {
            FieldContent::Struct { fields } => fields.iter().find(|field| field.name == name),
            _ => None,
        })
}

/// Returns a text in the form in which documents show a field; `None` if they never do.
fn shown(content: &FieldContent, text: &str) -> Option<String> {
    let number = || text.parse::<i128>().ok();
    Some(match content {
        FieldContent::Unsigned { bits } => {
            number().filter(|number| number >> bits == 0)?.to_string()
        }
        FieldContent::Signed { bits } => number()
            .filter(|number| matches!(number >> (bits - 1), 0 | -1))?
            .to_string(),
        // The largest numbers are floating-point numbers once a document is read.
        FieldContent::Decimal { signed: true } => read(&number()?.to_string())?,
        FieldContent::Decimal { signed: false } => read(&text.parse::<u128>().ok()?.to_string())?,
        FieldContent::Float { .. } => {
            let number = text.parse::<f64>().ok()?;
            if number.is_finite() {
                Value::from(number).to_string()
            } else {
                text.to_owned()
            }
        }
        FieldContent::Bool => Some(text)
            .filter(|text| matches!(*text, "true" | "false"))?
            .to_owned(),
        FieldContent::Prefix => {
            let (address, bits) = text.split_once('/')?;
            let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            format!("{address}/{}", Some(bits).filter(|bits| *bits <= most)?)
        }
        FieldContent::Ipv4 => text.parse::<Ipv4Addr>().ok()?.to_string(),
        FieldContent::Ip => text.parse::<IpAddr>().ok()?.to_canonical().to_string(),
        FieldContent::Mac => mac(text)?,
        FieldContent::Name { names } => match number() {
            _ if names.iter().any(|name| name.name == text) => text.to_owned(),
            Some(number) => {
                let known = names.iter().find(|name| i128::from(name.value) == number);
                known.map_or_else(|| number.to_string(), |name| name.name.clone())
            }
            None => return None,
        },
        FieldContent::Flags { flags } => {
            let number = names::flags_of(flags, text).or_else(|| text.parse().ok())?;
            names::flags(flags, number).unwrap_or_else(|| number.to_string())
        }
        FieldContent::Hex { size } => {
            let digits = text
                .strip_prefix("0x")
                .filter(|digits| digits.len() == 2 * size)?;
            let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            are_digits.then(|| text.to_ascii_lowercase())?
        }
        FieldContent::Struct { .. } => return None,
        _ => text.to_owned(),
    })
}

/// Returns a MAC address in the form of documents.
fn mac(text: &str) -> Option<String> {
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok());
    let bytes = bytes
        .collect::<Option<Vec<_>>>()
        .filter(|bytes| bytes.len() == 6)?;
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    Some(digits.collect::<Vec<_>>().join(":"))
}

/// Returns a number of a document as a reader of the document shows it.
fn read(number: &str) -> Option<String> {
    Some(serde_json::from_str::<Value>(number).ok()?.to_string())
}

#[cfg(test)]
mod tests;
