//! A metric's entries as rows: each leaf of the key and of the value is a column.

use serde_json::Value;

use crate::client::table::{Row, Table};

/// Up to this many CPUs stand side by side; more of them, or structs, take a row each.
const CPU_COLUMNS: usize = 8;

pub(super) fn table(metric: &Value) -> Table {
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

/// The fields of a struct under their own names, anything else as `value`.
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
