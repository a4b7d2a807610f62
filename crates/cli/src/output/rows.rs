//! A metrics document as tables: each leaf of an entry's key and of its value is a column.

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::output::table::{Row, Table};

/// The largest number of CPUs shown side by side. More CPUs, or values that are structs, take a row each.
const CPU_COLUMNS: usize = 8;

/// Renders one table per metric, each under a line that describes the metric.
pub fn render(document: &Value, width: usize) -> String {
    let mut blocks = Vec::new();
    if let Some(window) = document["window"].as_object() {
        let part = |name| window.get(name).map(plain).unwrap_or_default();
        blocks.push(format!("window {}: {} to {}\n", part("seq"), part("start"), part("end")));
    }
    for direction in ["ingress", "egress"] {
        for (name, metric) in document[direction].as_object().into_iter().flatten() {
            blocks.push(title(direction, name, metric) + &table(metric).render(width));
        }
    }
    if blocks.is_empty() { "no metrics\n".to_owned() } else { blocks.join("\n") }
}

fn title(direction: &str, name: &str, metric: &Value) -> String {
    let mut title = format!("{direction} {name} ({}", plain(&metric["type"]));
    if let Some(agg) = metric["agg"].as_str() {
        title.push_str(&format!(", {agg} over the CPUs"));
    }
    if metric["full"] == true {
        title.push_str(", full");
    }
    for (name, what) in [("failed_inserts", "insertions"), ("failed_reserves", "events")] {
        if let Some(lost @ 1..) = metric["completeness"][name].as_u64() {
            title.push_str(&format!(", {lost} {what} found no room"));
        }
    }
    title.push(')');
    if let Some(help) = metric["help"].as_str().filter(|help| !help.is_empty()) {
        title.push_str(&format!(": {help}"));
    }
    if metric["entries"].as_array().is_none_or(Vec::is_empty) {
        title.push_str("\nno entries");
    }
    title + "\n"
}

/// Returns a value without JSON's quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn table(metric: &Value) -> Table {
    let per_cpu =
        metric["agg"].is_null() && metric["type"].as_str().is_some_and(|kind| kind.contains("percpu_"));
    let mut table = Table::default();
    for entry in metric["entries"].as_array().into_iter().flatten() {
        let (key, value) = (&entry["key"], &entry["value"]);
        match value {
            Value::Array(cpus) if per_cpu && !fits_columns(cpus) => {
                for (cpu, value) in cpus.iter().enumerate() {
                    let mut row = table.row();
                    leaves(&mut row, "key", key);
                    row.number("cpu", &cpu.to_string());
                    members(&mut row, value);
                }
            }
            Value::Array(cpus) if per_cpu => {
                let mut row = table.row();
                leaves(&mut row, "key", key);
                for (cpu, value) in cpus.iter().enumerate() {
                    leaves(&mut row, &format!("cpu{cpu}"), value);
                }
            }
            value => {
                let mut row = table.row();
                leaves(&mut row, "key", key);
                members(&mut row, value);
            }
        }
    }
    table
}

fn fits_columns(cpus: &[Value]) -> bool {
    cpus.len() <= CPU_COLUMNS && !cpus.iter().any(|value| value.is_object() || value.is_array())
}

/// Adds the fields of a struct under their own names, and any other value as `value`.
fn members(row: &mut Row<'_>, value: &Value) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| leaves(row, name, field)),
        other => leaves(row, "value", other),
    }
}

fn leaves(row: &mut Row<'_>, title: &str, value: &Value) {
    match value {
        // Queues have no keys.
        Value::Null => {}
        Value::Object(fields) => {
            for (name, field) in fields {
                leaves(row, &format!("{title}.{name}"), field);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, item) in items.iter().enumerate() {
                leaves(row, &format!("{title}[{i}]"), item);
            }
        }
        Value::Number(number) => row.number(title, &number.to_string()),
        Value::String(text) => row.text(title, text),
        other => row.text(title, &other.to_string()),
    }
}
