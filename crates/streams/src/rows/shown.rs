//! The rows of a window for people, without a database.

use jiff::Timestamp;

use super::cell::{Cell, CellRow, rows};
use super::columns::{REST, RowColumn, columns};
use crate::receiver::{SendError, StreamWindow};

/// Returns the first rows of each table: at most `most` of them, with the names of the columns that
/// have a value.
pub fn shown_rows(window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
    let document = window.parsed()?;
    let mut shown = Vec::new();
    for metric in &window.shape.metrics {
        let (direction, name) = (metric.direction.name(), &metric.name);
        let Some(entries) = document[direction][name]["entries"].as_array() else {
            continue;
        };
        let columns = columns(metric);
        let found = entries
            .iter()
            .flat_map(|entry| rows(entry, &columns, metric.per_cpu));
        let left = most.saturating_sub(shown.len());
        shown.extend(
            found
                .take(left)
                .map(|row| format!("{direction}.{name}: {}", line(&row, &columns))),
        );
    }
    Ok(shown)
}

fn line(row: &CellRow, columns: &[RowColumn]) -> String {
    let cells = columns.iter().zip(&row.cells).filter_map(|(column, cell)| {
        let text = match cell {
            Cell::Missing => return None,
            Cell::Unsigned(number) => number.to_string(),
            Cell::Signed(number) => number.to_string(),
            Cell::Float(number) => number.to_string(),
            Cell::Bool(value) => value.to_string(),
            Cell::Text(text) => text.to_string(),
            Cell::Time(nanoseconds) => Timestamp::from_nanosecond(i128::from(*nanoseconds))
                .ok()?
                .to_string(),
        };
        Some(format!("{}={text}", column.name))
    });
    let rest = row.rest.iter().map(|rest| format!("{REST}={rest}"));
    cells.chain(rest).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::receiver::{ItemName, SeriesName};

    #[test]
    fn rows_have_the_names_of_their_columns() {
        let shape = json!({ "digest": "d", "metrics": [{
            "direction": "ingress", "name": "flows", "map": "m", "type": "hash", "reading": "window",
            "key": { "type": "struct", "fields": [{ "name": "src", "type": "ipv4" }] },
            "value": { "type": "struct", "fields": [
                { "name": "bytes", "type": "unsigned", "bits": 64 }, { "name": "last", "type": "time" },
            ] },
        }] });
        let entry = |number: u64| json!({ "key": { "src": "10.0.0.1" }, "value": { "bytes": number, "last": 0 } });
        let document =
            json!({ "ingress": { "flows": { "entries": [entry(1), entry(2), entry(3)] } } });
        let series = SeriesName {
            node: "n".into(),
            instance: "i".into(),
            probe: "p".into(),
        };
        let window = StreamWindow {
            name: ItemName {
                series: Arc::new(series),
                seq: 1,
                start: "".into(),
                end: "".into(),
            },
            document: document.to_string().into(),
            shape: Arc::new(serde_json::from_value(shape).unwrap()),
        };
        let shown = shown_rows(&window, 2).unwrap();
        assert_eq!(
            shown,
            [
                "ingress.flows: src=10.0.0.1, bytes=1",
                "ingress.flows: src=10.0.0.1, bytes=2"
            ]
        );
    }
}
