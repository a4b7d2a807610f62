//! The tables of ClickHouse: their names, columns and types.

use twinprobe_ebpf_common::window::shape::MetricShape;

use crate::rows::columns::{ColumnKind, IDENTITY, REST, RowColumn, columns};
use crate::rows::identifier::FreeNames;
use crate::rows::shapes::{self, GAPS, ROW, WINDOWS};

const NAME: &str = "LowCardinality(String)";
const NUMBER: &str = "UInt64";
const TIME: &str = "DateTime64(9, 'UTC')";
/// The type of columns with text. Columns with JSON also have this type, because functions of
/// ClickHouse read JSON from text.
const TEXT: &str = "Nullable(String)";
/// The settings of an insert. The answer to it means that the rows are on the disk. The server
/// remembers the last inserts by their tokens.
const SETTINGS: &str =
    "non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1";

/// A column. `kind` is the type as the server writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChColumn {
    pub name: String,
    pub kind: &'static str,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChTable {
    pub name: String,
    pub columns: Vec<ChColumn>,
    /// The columns by which rows are sorted. A merge keeps one of several rows that are equal in
    /// them.
    pub order: &'static [&'static str],
    /// True if the rows of each month have files of their own.
    pub by_month: bool,
    /// True if a table that has columns of other types stays as it is, and the stream makes another
    /// table.
    pub has_variants: bool,
}

/// The table of a metric, and where its cells come from.
#[derive(Clone, Debug)]
pub struct ChMetric {
    pub table: ChTable,
    pub metric: MetricShape,
    pub parts: Vec<RowColumn>,
}

fn column(name: &str, kind: &'static str) -> ChColumn {
    ChColumn {
        name: name.to_owned(),
        kind,
    }
}

fn identity() -> Vec<ChColumn> {
    let kind = |name: &str| match name {
        "seq" => NUMBER,
        "window_start" | "window_end" => TIME,
        _ => NAME,
    };
    IDENTITY
        .iter()
        .map(|name| column(name, kind(name)))
        .collect()
}

/// Returns the table of windows.
pub fn windows() -> ChTable {
    let mut columns = identity();
    columns.extend([
        column("duration_ns", NUMBER),
        column("lost_windows", NUMBER),
    ]);
    columns.extend(["interfaces", "labels", "approximate"].map(|name| column(name, TEXT)));
    let order = &["node", "probe", "instance", "seq"];
    ChTable {
        name: WINDOWS.to_owned(),
        columns,
        order,
        by_month: true,
        has_variants: false,
    }
}

/// Returns the table of gaps.
pub fn gaps() -> ChTable {
    let names = ["node", "probe", "instance"].map(|name| column(name, NAME));
    let numbers = ["first_seq", "last_seq", "windows"].map(|name| column(name, NUMBER));
    let order = &["node", "probe", "instance", "first_seq", "last_seq"];
    let columns = names.into_iter().chain(numbers).collect();
    ChTable {
        name: GAPS.to_owned(),
        columns,
        order,
        by_month: false,
        has_variants: false,
    }
}

/// Returns the table of a metric of a probe.
pub fn metric(probe: &str, metric: &MetricShape) -> ChMetric {
    let (mut found, parts) = (identity(), columns(metric));
    found.push(column(ROW, "UInt32"));
    let mut names = FreeNames::new(IDENTITY.into_iter().chain([ROW, REST]));
    found.extend(parts.iter().map(|part| ChColumn {
        name: names.take(&part.name),
        kind: kind(part.kind),
    }));
    found.push(column(REST, TEXT));
    let table = ChTable {
        name: shapes::table(probe, metric),
        columns: found,
        order: &["node", "probe", "instance", "seq", ROW],
        by_month: true,
        has_variants: true,
    };
    ChMetric {
        table,
        metric: metric.clone(),
        parts,
    }
}

/// Returns the type of a column. There are few types, so that few changes of a layout need another
/// table.
pub const fn kind(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Unsigned { bits: ..=32 } => "Nullable(UInt32)",
        ColumnKind::Unsigned { .. } => "Nullable(UInt64)",
        ColumnKind::Signed { bits: ..=32 } => "Nullable(Int32)",
        ColumnKind::Signed { .. } => "Nullable(Int64)",
        ColumnKind::Float { bits: 32 } => "Nullable(Float32)",
        ColumnKind::Float { .. } => "Nullable(Float64)",
        ColumnKind::Bool => "Nullable(Bool)",
        ColumnKind::Time => "Nullable(DateTime64(9, 'UTC'))",
        ColumnKind::Text | ColumnKind::Json => TEXT,
    }
}

impl ChTable {
    /// Returns the name with its database, as SQL.
    pub fn address(&self, database: &str) -> String {
        format!("{}.{}", quoted(database), quoted(&self.name))
    }

    /// Returns the names of the columns, as SQL.
    pub fn names(&self) -> String {
        listed(self.columns.iter().map(|column| &*column.name))
    }

    /// Returns the SQL that creates the table.
    pub fn creation(&self, database: &str) -> String {
        let columns: Vec<String> = self.columns.iter().map(ChColumn::definition).collect();
        let (address, order) = (self.address(database), listed(self.order.iter().copied()));
        let months = if self.by_month {
            "PARTITION BY toYYYYMM(window_end) "
        } else {
            ""
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {address} ({}) ENGINE = ReplacingMergeTree {months}ORDER BY ({order}) SETTINGS {SETTINGS}",
            columns.join(", ")
        )
    }
}

impl ChColumn {
    /// Returns the column's name and type, as SQL.
    pub fn definition(&self) -> String {
        format!("{} {}", quoted(&self.name), self.kind)
    }
}

/// Returns a name in backquotes, which make any text a valid name.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(quoted).collect::<Vec<_>>().join(", ")
}

/// Returns a text as SQL.
pub fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_become_columns_with_types() {
        let shape: MetricShape = serde_json::from_value(json!({
            "direction": "ingress", "name": "flows", "map": "flows", "type": "hash", "reading": "window",
            "key": { "type": "struct", "fields": [
                { "name": "row", "type": "ipv4" }, { "name": "port", "type": "unsigned", "bits": 16 }] },
            "value": { "type": "struct", "fields": [
                { "name": "bytes", "type": "decimal", "signed": false }, { "name": "last", "type": "time" },
                { "name": "tcp", "type": "bool" },
                { "name": "counts", "type": "array", "len": 2, "element": { "type": "bool" } }] },
        }))
        .unwrap();
        let made = metric("p", &shape).table;
        let shown: Vec<String> = made.columns[6..].iter().map(ChColumn::definition).collect();
        assert_eq!(
            shown,
            [
                "`row` UInt32",
                "`row_2` Nullable(String)",
                "`port` Nullable(UInt32)",
                "`bytes` Nullable(UInt64)",
                "`last` Nullable(DateTime64(9, 'UTC'))",
                "`tcp` Nullable(Bool)",
                "`counts` Nullable(String)",
                "`rest` Nullable(String)"
            ]
        );
        let sql = made.creation("a`b\\");
        assert!(
            sql.starts_with("CREATE TABLE IF NOT EXISTS `a\\`b\\\\`.`p.ingress.flows` (`node` Low"),
            "{sql}"
        );
        assert!(
            sql.contains("ORDER BY (`node`, `probe`, `instance`, `seq`, `row`) SETTINGS"),
            "{sql}"
        );
    }

    #[test]
    fn any_text_can_be_quoted() {
        assert_eq!(text("a'; DROP\\"), "'a\\'; DROP\\\\'");
    }
}
