//! The tables of PostgreSQL: their names, columns and types.

use twinprobe_ebpf_common::window::shape::MetricShape;

use crate::rows::columns::{ColumnKind, IDENTITY, REST, RowColumn, columns};
use crate::rows::identifier::{FreeNames, listed, quoted};
use crate::rows::shapes::{self, GAPS, ROW, WINDOWS};

/// The most columns for the members of a metric. A row must fit into a page of the server.
const MOST: usize = 400;
/// The columns that the server itself adds to each table.
const SYSTEM: [&str; 6] = ["tableoid", "ctid", "xmin", "cmin", "xmax", "cmax"];

const TEXT: &str = "text";
const BIGINT: &str = "bigint";
const TIME: &str = "timestamp with time zone";
const JSON: &str = "jsonb";
/// The type of JSON texts. Such a text may contain an escaped zero character, which `jsonb`
/// refuses.
const JSON_TEXT: &str = "json";

/// A column. `kind` is the type as `format_type` of the server writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgColumn {
    pub name: String,
    pub kind: &'static str,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgTable {
    pub name: String,
    pub columns: Vec<PgColumn>,
    /// The columns of the primary key.
    pub key: &'static [&'static str],
    /// The column of the index by time, if the table has one.
    pub by_time: Option<&'static str>,
    /// True if a table that has columns of other types stays as it is, and the stream makes another
    /// table.
    pub has_variants: bool,
}

/// The table of a metric, and where its cells come from.
#[derive(Clone, Debug)]
pub struct PgMetric {
    pub table: PgTable,
    pub metric: MetricShape,
    pub parts: Vec<RowColumn>,
    /// True if some members have no column, so that each row contains the whole entry as well.
    pub is_cut: bool,
}

fn column(name: &str, kind: &'static str) -> PgColumn {
    PgColumn {
        name: name.to_owned(),
        kind,
    }
}

/// Returns the table of windows. An insert into it shows which windows are new.
pub fn windows() -> PgTable {
    let mut columns: Vec<PgColumn> = IDENTITY
        .iter()
        .map(|name| column(name, identity(name)))
        .collect();
    for name in [
        "window_start_ns",
        "window_end_ns",
        "duration_ns",
        "lost_windows",
    ] {
        columns.push(column(name, BIGINT));
    }
    columns.extend([
        column("interfaces", JSON),
        column("labels", JSON),
        column("approximate", TEXT),
    ]);
    columns.push(column(REST, JSON_TEXT));
    PgTable {
        name: WINDOWS.to_owned(),
        columns,
        key: &["node", "probe", "instance", "seq"],
        by_time: Some("window_end"),
        has_variants: false,
    }
}

/// Returns the table of gaps.
pub fn gaps() -> PgTable {
    let texts = ["node", "probe", "instance"].map(|name| column(name, TEXT));
    let numbers = ["first_seq", "last_seq", "windows"].map(|name| column(name, BIGINT));
    PgTable {
        name: GAPS.to_owned(),
        columns: texts.into_iter().chain(numbers).collect(),
        key: &["node", "probe", "instance", "first_seq", "last_seq"],
        by_time: None,
        has_variants: false,
    }
}

/// Returns the table of a metric of a probe.
pub fn metric(probe: &str, metric: &MetricShape) -> PgMetric {
    let mut parts = columns(metric);
    let is_cut = parts.len() > MOST;
    parts.truncate(MOST);
    let mut found: Vec<PgColumn> = IDENTITY
        .iter()
        .map(|name| column(name, identity(name)))
        .collect();
    found.push(column(ROW, "integer"));
    let mut names = FreeNames::new(IDENTITY.into_iter().chain(SYSTEM).chain([ROW, REST]));
    let mut add = |name: &str, kind| {
        found.push(PgColumn {
            name: names.take(name),
            kind,
        });
    };
    for part in &parts {
        add(&part.name, kind(part.kind));
        if part.kind == ColumnKind::Time {
            add(&format!("{}_ns", part.name), BIGINT);
        }
    }
    found.push(column(REST, JSON_TEXT));
    let table = PgTable {
        name: shapes::table(probe, metric),
        columns: found,
        key: &["node", "probe", "instance", "seq", ROW],
        by_time: Some("window_end"),
        has_variants: true,
    };
    PgMetric {
        table,
        metric: metric.clone(),
        parts,
        is_cut,
    }
}

fn identity(name: &str) -> &'static str {
    match name {
        "seq" => BIGINT,
        "window_start" | "window_end" => TIME,
        _ => TEXT,
    }
}

/// Returns the type of a column. There are few types, so that few changes of a layout need another
/// table.
pub const fn kind(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Unsigned { bits: ..=31 } | ColumnKind::Signed { bits: ..=32 } => "integer",
        ColumnKind::Unsigned { bits: ..=63 } | ColumnKind::Signed { .. } => BIGINT,
        ColumnKind::Unsigned { .. } => "numeric(20,0)",
        ColumnKind::Float { bits: 32 } => "real",
        ColumnKind::Float { .. } => "double precision",
        ColumnKind::Bool => "boolean",
        ColumnKind::Text => TEXT,
        // The column has the time in microseconds, and the column beside it has the nanoseconds.
        ColumnKind::Time => TIME,
        ColumnKind::Json => JSON,
    }
}

impl PgTable {
    /// Returns the name with its schema, as SQL.
    pub fn address(&self, schema: &str) -> String {
        format!("{}.{}", quoted(schema), quoted(&self.name))
    }

    /// Returns the names of the columns, as SQL.
    pub fn names(&self) -> String {
        listed(self.columns.iter().map(|column| &*column.name))
    }

    /// Returns the SQL that creates the table.
    pub fn creation(&self, schema: &str) -> String {
        let columns: Vec<String> = self.columns.iter().map(PgColumn::definition).collect();
        let (address, key) = (self.address(schema), listed(self.key.iter().copied()));
        let mut sql = format!(
            "CREATE TABLE {address} ({}, PRIMARY KEY ({key}));",
            columns.join(", ")
        );
        if let Some(time) = self.by_time {
            // Rows come in the order of time, so the smallest kind of index is enough.
            sql.push_str(&format!(
                " CREATE INDEX ON {address} USING brin ({});",
                quoted(time)
            ));
        }
        sql
    }

    /// Returns the SQL that inserts the missing rows. Its parameters are an array of texts for each
    /// column.
    pub fn insertion(&self, schema: &str) -> String {
        let numbered = |text: fn(usize, &PgColumn) -> String| {
            let parts = self
                .columns
                .iter()
                .enumerate()
                .map(|(at, column)| text(at, column));
            parts.collect::<Vec<_>>().join(", ")
        };
        let (values, names) = (
            numbered(|at, column| format!("c{at}::{}", column.kind)),
            numbered(|at, _| format!("c{at}")),
        );
        let arrays = numbered(|at, _| format!("${}::text[]", at + 1));
        let (address, columns, key) = (
            self.address(schema),
            self.names(),
            listed(self.key.iter().copied()),
        );
        let returned = listed(self.key[..4].iter().copied());
        format!(
            "INSERT INTO {address} ({columns}) SELECT {values} FROM unnest({arrays}) AS given ({names}) \
             ON CONFLICT ({key}) DO NOTHING RETURNING {returned}"
        )
    }
}

impl PgColumn {
    /// Returns its name and type, as SQL.
    pub fn definition(&self) -> String {
        format!("{} {}", quoted(&self.name), self.kind)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rows::identifier::identifier;

    #[test]
    fn members_become_columns_with_types() {
        let long = "l".repeat(70);
        let shape: MetricShape = serde_json::from_value(json!({
            "direction": "ingress", "name": "flows", "map": "flows", "type": "hash", "reading": "window",
            "key": { "type": "struct", "fields": [
                { "name": "row", "type": "ipv4" }, { "name": "xmin", "type": "unsigned", "bits": 16 },
                { "name": "index", "type": "unsigned", "bits": 32 }] },
            "value": { "type": "struct", "fields": [
                { "name": "bytes", "type": "decimal", "signed": false }, { "name": "last_ns", "type": "signed", "bits": 64 },
                { "name": "last", "type": "time" }, { "name": long, "type": "bool" },
                { "name": "counts", "type": "array", "len": 2, "element": { "type": "bool" } }] },
        }))
        .unwrap();
        let made = metric("p", &shape);
        assert_eq!((&*made.table.name, made.is_cut), ("p.ingress.flows", false));
        let shown: Vec<String> = made.table.columns[7..]
            .iter()
            .map(|column| format!("{} {}", column.name, column.kind))
            .collect();
        let cut = identifier(&long);
        assert_eq!(
            shown,
            [
                "row_2 text",
                "xmin_2 integer",
                "index bigint",
                "bytes numeric(20,0)",
                "last_ns bigint",
                "last timestamp with time zone",
                "last_ns_2 bigint",
                &format!("{cut} boolean"),
                "counts jsonb",
                "rest json"
            ]
        );
    }

    #[test]
    fn the_key_decides_what_is_new() {
        let sql = gaps().insertion("a b");
        assert!(
            sql.starts_with("INSERT INTO \"a b\".\"gaps\" (\"node\", "),
            "{sql}"
        );
        assert!(
            sql.contains("c3::bigint") && sql.contains("$6::text[]) AS given (c0, "),
            "{sql}"
        );
        assert!(sql.contains(
            "ON CONFLICT (\"node\", \"probe\", \"instance\", \"first_seq\", \"last_seq\") DO"
        ));
        let sql = windows().creation("s");
        assert!(
            sql.contains("PRIMARY KEY (\"node\", \"probe\", \"instance\", \"seq\"))"),
            "{sql}"
        );
    }
}
