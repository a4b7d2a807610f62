//! The cells of a row, from an entry of a document.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::columns::{CellSource, ColumnKind, RowColumn};

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Missing,
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    /// Rows of one window share their identity.
    Text(Arc<str>),
    /// Nanoseconds since 1970.
    Time(i64),
}

/// One row of a metric: its cells in the order of the columns, and the entry itself if a column
/// can't hold a part of the entry.
#[derive(Clone, Debug, PartialEq)]
pub struct CellRow {
    pub cells: Vec<Cell>,
    pub rest: Option<String>,
}

/// Returns the rows of an entry: one, or one for each CPU.
pub fn rows(entry: &Value, columns: &[RowColumn], per_cpu: bool) -> Vec<CellRow> {
    let (key, value) = (&entry["key"], &entry["value"]);
    match value.as_array().filter(|_| per_cpu) {
        Some(values) => {
            let numbered = values.iter().enumerate();
            numbered
                .map(|(cpu, value)| row(entry, key, value, cpu as u64, columns))
                .collect()
        }
        None => vec![row(entry, key, value, 0, columns)],
    }
}

fn row(entry: &Value, key: &Value, value: &Value, cpu: u64, columns: &[RowColumn]) -> CellRow {
    let mut fits = true;
    let cells = columns.iter().map(|column| {
        let found = match &column.source {
            CellSource::Cpu => return Cell::Unsigned(cpu),
            // Most addresses have no owner that the node knows.
            CellSource::Owner(address, field) => {
                let name = entry["names"][address][field].as_str();
                return name.map_or(Cell::Missing, |name| Cell::Text(name.into()));
            }
            CellSource::Key(path) => at(key, path),
            CellSource::Value(path) => at(value, path),
        };
        let cell = found.and_then(|value| cell(column.kind, value));
        fits &= cell.is_some();
        cell.unwrap_or(Cell::Missing)
    });
    let cells: Vec<Cell> = cells.collect();
    // A key may show bits of its padding besides its members.
    let members = columns
        .iter()
        .filter(|column| matches!(&column.source, CellSource::Key(path) if path.len() == 1));
    let more = key.as_object().is_some_and(|key| {
        let first = |column: &&RowColumn| matches!(&column.source, CellSource::Key(path) if !path.is_empty());
        key.len() > members.count()
            && key.keys().any(|name| {
                !columns
                    .iter()
                    .filter(first)
                    .any(|column| matches!(&column.source, CellSource::Key(path) if path[0] == *name))
            })
    });
    CellRow {
        cells,
        rest: (!fits || more).then(|| entry.to_string()),
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

/// Returns the cell for a value; `None` if the column can't hold it.
pub fn cell(kind: ColumnKind, value: &Value) -> Option<Cell> {
    Some(match (kind, value) {
        (ColumnKind::Json, Value::Null) => Cell::Missing,
        (ColumnKind::Json, value) => Cell::Text(value.to_string().into()),
        (ColumnKind::Text, Value::String(text)) => Cell::Text(text.as_str().into()),
        (ColumnKind::Text, Value::Number(number)) => Cell::Text(number.to_string().into()),
        (ColumnKind::Unsigned { .. }, value) => Cell::Unsigned(value.as_u64()?),
        (ColumnKind::Signed { .. }, value) => Cell::Signed(value.as_i64()?),
        // JSON has no NaN and no infinity: documents have null instead.
        (ColumnKind::Float { .. }, Value::Null) => Cell::Missing,
        (ColumnKind::Float { .. }, value) => Cell::Float(value.as_f64()?),
        (ColumnKind::Bool, Value::Bool(value)) => Cell::Bool(*value),
        (ColumnKind::Time, Value::String(text)) => Cell::Time(nanoseconds(text)?),
        // Zero is "never".
        (ColumnKind::Time, Value::Number(number)) if number.as_u64() == Some(0) => Cell::Missing,
        _ => return None,
    })
}

/// Returns the nanoseconds since 1970 of a time in RFC 3339.
pub fn nanoseconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>()
        .ok()?
        .as_nanosecond()
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn column(name: &str, kind: ColumnKind, source: CellSource) -> RowColumn {
        RowColumn {
            name: name.into(),
            kind,
            source,
            unit: None,
        }
    }

    #[test]
    fn what_no_column_holds_is_in_the_rest() {
        let columns = [
            column("src", ColumnKind::Text, CellSource::Key(vec!["src".into()])),
            column(
                "bytes",
                ColumnKind::Unsigned { bits: 64 },
                CellSource::Value(vec!["bytes".into()]),
            ),
            column(
                "last",
                ColumnKind::Time,
                CellSource::Value(vec!["last".into()]),
            ),
        ];
        let entry = |key, bytes| json!({ "key": key, "value": { "bytes": bytes, "last": "1970-01-01T00:00:01Z" } });
        let fits = &rows(
            &entry(json!({ "src": "10.0.0.1" }), json!(u64::MAX)),
            &columns,
            false,
        )[0];
        let cells = [
            Cell::Text("10.0.0.1".into()),
            Cell::Unsigned(u64::MAX),
            Cell::Time(1_000_000_000),
        ];
        assert_eq!(
            *fits,
            CellRow {
                cells: cells.into(),
                rest: None
            }
        );
        let large = entry(json!({ "src": "10.0.0.1" }), json!(1e30));
        assert_eq!(
            rows(&large, &columns, false)[0].rest,
            Some(large.to_string())
        );
        let padded = entry(json!({ "src": "10.0.0.1", "padding": "0x01" }), json!(1));
        assert_eq!(
            rows(&padded, &columns, false)[0].rest,
            Some(padded.to_string())
        );
    }

    #[test]
    fn names_beside_a_key_are_cells() {
        let columns = ["pod", "service"].map(|field| {
            column(
                field,
                ColumnKind::Text,
                CellSource::Owner("src".into(), field),
            )
        });
        let entry = json!({ "key": { "src": "10.1.0.7" }, "names": { "src": { "pod": "web-1" } }, "value": 1 });
        let row = &rows(&entry, &columns, false)[0];
        assert_eq!(row.cells, [Cell::Text("web-1".into()), Cell::Missing]);
    }

    #[test]
    fn values_of_each_cpu_are_rows() {
        let columns = [
            column("cpu", ColumnKind::Unsigned { bits: 32 }, CellSource::Cpu),
            column(
                "value",
                ColumnKind::Unsigned { bits: 64 },
                CellSource::Value(Vec::new()),
            ),
        ];
        let cells: Vec<_> = rows(&json!({ "key": 0, "value": [5, 7] }), &columns, true)
            .into_iter()
            .map(|row| row.cells)
            .collect();
        let row = |cpu, value| vec![Cell::Unsigned(cpu), Cell::Unsigned(value)];
        assert_eq!(cells, [row(0, 5), row(1, 7)]);
    }
}
