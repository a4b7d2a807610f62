//! The expectations in a probe's folder about the document that its capture must give:
//! `expected.json` and `check.json`.

use std::env;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};
use twinprobe_tests::probes;

/// The directions of a document.
pub const DIRECTIONS: [&str; 2] = ["ingress", "egress"];

/// The number of parts for [`for_part`].
pub const PARTS: usize = 4;

/// Calls `check` for every ready-made probe, or for those that the variable `PROBES` names,
/// separated by commas. Reports all failures together.
pub fn for_every_probe(check: impl FnMut(&str) -> Result<()>) -> Result<()> {
    for_each_of(chosen()?, check)
}

/// Calls `check` for every [`PARTS`]th probe, from the probe with this number.
pub fn for_part(part: usize, check: impl FnMut(&str) -> Result<()>) -> Result<()> {
    for_each_of(chosen()?.into_iter().skip(part).step_by(PARTS), check)
}

fn chosen() -> Result<Vec<String>> {
    let mut names = probes::names()?;
    if let Ok(chosen) = env::var("PROBES") {
        names.retain(|name| chosen.split(',').any(|chosen| chosen == name));
        ensure!(!names.is_empty(), "no probe {chosen:?}");
    }
    Ok(names)
}

fn for_each_of(
    names: impl IntoIterator<Item = String>,
    mut check: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut failures = String::new();
    for name in names {
        if let Err(error) = check(&name) {
            failures += &format!("{name}: {error:#}\n\n");
        }
    }
    ensure!(failures.is_empty(), "\n{failures}");
    Ok(())
}

/// Returns the configuration for the capture: with the definitions in `check.json`, and this hook.
pub fn configuration(name: &str, hook: &str) -> Result<Value> {
    let mut config = probes::configuration(name, "mon0")?;
    let check = probes::json(name, "check.json")?;
    for (direction, hook) in [("ingress", hook), ("egress", "tc")] {
        let Some(direction) = config.get_mut(direction).and_then(Value::as_object_mut) else {
            continue;
        };
        let defines = direction.entry("defines").or_insert_with(|| json!({}));
        for (name, value) in check["defines"].as_object().into_iter().flatten() {
            defines[name] = value.clone();
        }
        direction.insert("hook".to_owned(), json!(hook));
        if hook == "tc" {
            direction.remove("mode");
        }
    }
    Ok(config)
}

/// Returns the entries of a metric.
pub fn entries<'a>(document: &'a Value, direction: &str, metric: &str) -> Result<&'a [Value]> {
    let entries = document[direction][metric]["entries"].as_array();
    entries
        .map(Vec::as_slice)
        .with_context(|| format!("no {direction}.{metric}"))
}

/// Removes the parts of a document that depend on the clock and the interfaces, and sorts the
/// entries.
pub fn comparable(document: &Value) -> Value {
    let mut comparable = Map::new();
    for direction in DIRECTIONS {
        comparable.insert(direction.to_owned(), without_times(&document[direction]));
    }
    if let Some(Value::Array(events)) = document.get("events") {
        // The two directions have rings of their own, which are read in any order.
        let mut events: Vec<Value> = events.iter().map(without_times).collect();
        events.sort_by_cached_key(Value::to_string);
        comparable.insert("events".to_owned(), Value::Array(events));
    }
    Value::Object(comparable)
}

fn without_times(value: &Value) -> Value {
    match value {
        Value::String(text) if is_time(text) => json!("TIME"),
        Value::Array(items) => items.iter().map(without_times).collect(),
        Value::Object(fields) => {
            let mut fields: Map<String, Value> = fields
                .iter()
                .map(|(name, value)| (name.clone(), without_times(value)))
                .collect();
            if let Some(Value::Array(entries)) = fields.get_mut("entries") {
                entries.sort_by_cached_key(Value::to_string);
            }
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

/// Returns whether the text is a time as documents show it: `2026-11-22T06:29:13.424902723Z`.
fn is_time(text: &str) -> bool {
    text.len() == 30
        && text.ends_with('Z')
        && text.as_bytes()[10] == b'T'
        && text.as_bytes()[19] == b'.'
}

/// Removes the dependence on the arrival times of packets: a metric in the list `timed` becomes the
/// sum of its values; a field of a metric (`metric.field`) or all of its values (`metric.value`)
/// become nothing.
pub fn without_timed(mut document: Value, check: &Value) -> Value {
    for timed in check["timed"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        let (metric, field) = timed
            .split_once('.')
            .map_or((timed, None), |(metric, field)| (metric, Some(field)));
        for direction in DIRECTIONS {
            let Some(Value::Array(entries)) = document[direction]
                .get_mut(metric)
                .map(|m| m["entries"].take())
            else {
                continue;
            };
            let kept = match field {
                None => {
                    json!([entries
                        .iter()
                        .filter_map(|entry| entry["value"].as_u64())
                        .sum::<u64>()])
                }
                Some(field) => entries
                    .into_iter()
                    .map(|mut entry| {
                        let whole = field == "value";
                        let of = if whole {
                            &mut entry
                        } else {
                            &mut entry["value"]
                        };
                        of.as_object_mut().map(|of| of.remove(field));
                        entry
                    })
                    .collect(),
            };
            document[direction][metric]["entries"] = kept;
        }
    }
    document
}

/// Fails unless `document` has the metrics of `expected`, and each metric every field that is
/// expected of it. Metrics may have further fields.
pub fn agree(expected: &Value, document: &Value) -> Result<()> {
    for direction in DIRECTIONS {
        let of = |document: &Value| document[direction].as_object().cloned().unwrap_or_default();
        let (expected, found) = (of(expected), of(document));
        if let Some(name) = found.keys().find(|name| !expected.contains_key(*name)) {
            bail!("{direction}.{name} is not expected");
        }
        for (name, metric) in &expected {
            let found = found
                .get(name)
                .with_context(|| format!("{direction}.{name} is not there"))?;
            for (field, wanted) in metric
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(field, _)| *field != "entries")
            {
                ensure!(
                    found[field] == *wanted,
                    "{direction}.{name}.{field}: {} instead of {wanted}",
                    found[field]
                );
            }
            same_entries(&metric["entries"], &found["entries"])
                .with_context(|| format!("{direction}.{name}"))?;
        }
    }
    let none = json!({});
    let [wanted, found] = [expected, document].map(|of| of.get("events").unwrap_or(&none));
    ensure!(wanted == found, "events: {found} instead of {wanted}");
    Ok(())
}

fn same_entries(expected: &Value, found: &Value) -> Result<()> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (expected, found) = (list(expected), list(found));
    let only = |of: &[Value], other: &[Value]| {
        let lines = of
            .iter()
            .filter(|entry| !other.contains(entry))
            .map(|entry| format!("    {entry}\n"));
        lines.collect::<String>()
    };
    let (missing, further) = (only(&expected, &found), only(&found, &expected));
    ensure!(
        expected.len() == found.len() && missing.is_empty(),
        "missing:\n{missing}instead:\n{further}"
    );
    Ok(())
}
