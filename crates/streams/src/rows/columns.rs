//! The columns of a table, by the shape of a metric.

use std::collections::BTreeSet;

use twinprobe_ebpf_common::window::owner::OWNER_FIELDS;
use twinprobe_ebpf_common::window::shape::{FieldContent, FieldShape, MetricShape};

/// The columns that each table begins with.
pub const IDENTITY: [&str; 6] = [
    "node",
    "probe",
    "instance",
    "seq",
    "window_start",
    "window_end",
];
/// The column for values that do not fit into any other column.
pub const REST: &str = "rest";

/// The content of a column. Each cell may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Unsigned {
        bits: u32,
    },
    Signed {
        bits: u32,
    },
    Float {
        bits: u32,
    },
    Bool,
    Text,
    /// Nanoseconds since 1970, UTC.
    Time,
    /// Arrays and inner maps, as JSON.
    Json,
}

/// The source of a column's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellSource {
    /// The names of the members that lead to the field in an entry's key.
    Key(Vec<String>),
    /// The names of the members that lead to the field in an entry's value.
    Value(Vec<String>),
    /// The number of the CPU.
    Cpu,
    /// A field of the owner of an address: the address's name in the key, and the field's name.
    Owner(String, &'static str),
}

/// A column after the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowColumn {
    pub name: String,
    pub kind: ColumnKind,
    pub source: CellSource,
    pub unit: Option<String>,
}

/// Returns the columns of a metric between the identity and the rest: first those of the key,
/// then the names of the owners of its addresses.
pub fn columns(metric: &MetricShape) -> Vec<RowColumn> {
    let mut found = Vec::new();
    if let Some(key) = &metric.key {
        leaves(key, &mut Vec::new(), &mut |field, path| {
            let kind = kind(&field.content);
            found.push(column(
                "key",
                path,
                kind,
                CellSource::Key(path.to_vec()),
                field,
            ));
        });
    }
    for address in metric
        .key
        .iter()
        .filter(|_| metric.names)
        .flat_map(FieldShape::addresses)
    {
        found.extend(OWNER_FIELDS.map(|field| RowColumn {
            name: format!("{address}_{field}"),
            kind: ColumnKind::Text,
            source: CellSource::Owner(address.to_owned(), field),
            unit: None,
        }));
    }
    let keys: BTreeSet<String> = found.iter().map(|column| column.name.clone()).collect();
    if metric.per_cpu {
        let (name, kind, source) = (
            "cpu".to_owned(),
            ColumnKind::Unsigned { bits: 32 },
            CellSource::Cpu,
        );
        found.push(RowColumn {
            name,
            kind,
            source,
            unit: None,
        });
    }
    leaves(&metric.value, &mut Vec::new(), &mut |field, path| {
        let mut value = column(
            "value",
            path,
            kind(&field.content),
            CellSource::Value(path.to_vec()),
            field,
        );
        if keys.contains(&value.name) {
            value.name = format!("value_{}", value.name);
        }
        found.push(value);
    });
    distinct(&mut found);
    found
}

fn column(
    whole: &str,
    path: &[String],
    kind: ColumnKind,
    source: CellSource,
    field: &FieldShape,
) -> RowColumn {
    let name = if path.is_empty() {
        whole.to_owned()
    } else {
        path.join("_")
    };
    RowColumn {
        name,
        kind,
        source,
        unit: field.unit.clone(),
    }
}

/// Calls `visit` with each field that is not a struct, and the names of the members on the way.
fn leaves(
    field: &FieldShape,
    path: &mut Vec<String>,
    visit: &mut impl FnMut(&FieldShape, &[String]),
) {
    let FieldContent::Struct { fields } = &field.content else {
        return visit(field, path);
    };
    for member in fields {
        path.push(member.name.clone());
        leaves(member, path, visit);
        path.pop();
    }
}

const fn kind(content: &FieldContent) -> ColumnKind {
    match content {
        FieldContent::Unsigned { bits } => ColumnKind::Unsigned { bits: *bits },
        FieldContent::Signed { bits } => ColumnKind::Signed { bits: *bits },
        // Nearly all sums fit into 64 bits; larger sums are in the column for the rest.
        FieldContent::Decimal { signed: false } => ColumnKind::Unsigned { bits: 64 },
        FieldContent::Decimal { signed: true } => ColumnKind::Signed { bits: 64 },
        FieldContent::Float { bits } => ColumnKind::Float { bits: *bits },
        FieldContent::Bool => ColumnKind::Bool,
        FieldContent::Text { .. }
        | FieldContent::Hex { .. }
        | FieldContent::Ipv4
        | FieldContent::Ip
        | FieldContent::Mac
        | FieldContent::Prefix
        | FieldContent::Interface
        | FieldContent::Name { .. }
        | FieldContent::Flags { .. } => ColumnKind::Text,
        FieldContent::Time => ColumnKind::Time,
        FieldContent::Struct { .. } | FieldContent::Array { .. } | FieldContent::Entries { .. } => {
            ColumnKind::Json
        }
    }
}

/// Adds numbers to columns of the same name, because the systems ignore the difference between
/// upper and lower case.
fn distinct(columns: &mut [RowColumn]) {
    let mut taken: BTreeSet<String> = IDENTITY
        .iter()
        .chain(&[REST])
        .map(|name| (*name).to_owned())
        .collect();
    for column in columns {
        let (plain, mut number) = (column.name.clone(), 2);
        while !taken.insert(column.name.to_ascii_lowercase()) {
            column.name = format!("{plain}_{number}");
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_have_columns_for_the_names_of_their_owners() {
        let shape = |names| {
            let shape: MetricShape = serde_json::from_value(json!({
                "direction": "ingress", "name": "talkers", "map": "talkers", "type": "hash", "reading": "window", "names": names,
                "key": { "type": "ip" }, "value": { "type": "unsigned", "bits": 64 },
            }))
            .unwrap();
            columns(&shape)
                .into_iter()
                .map(|column| column.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(shape(false), ["key", "value"]);
        let named = [
            "key",
            "key_namespace",
            "key_pod",
            "key_workload",
            "key_service",
            "value",
        ];
        assert_eq!(shape(true), named);
    }

    #[test]
    fn members_become_columns_with_names_of_their_own() {
        let shape: MetricShape = serde_json::from_value(json!({
            "direction": "ingress", "name": "flows", "map": "flows", "type": "percpu_hash", "reading": "window", "per_cpu": true,
            "key": { "type": "struct", "fields": [
                { "name": "src", "type": "ipv4" }, { "name": "seq", "type": "unsigned", "bits": 16 }] },
            "value": { "type": "struct", "fields": [
                { "name": "src", "type": "decimal", "signed": false },
                { "name": "tcp", "type": "struct", "fields": [{ "name": "Flags", "type": "hex", "size": 1 }] },
                { "name": "tcp_flags", "type": "array", "len": 2, "element": { "type": "bool" } }] },
        }))
        .unwrap();
        let shown: Vec<String> = columns(&shape)
            .iter()
            .map(|column| format!("{} {:?}", column.name, column.kind))
            .collect();
        assert_eq!(
            shown,
            [
                "src Text",
                "seq_2 Unsigned { bits: 16 }",
                "cpu Unsigned { bits: 32 }",
                "value_src Unsigned { bits: 64 }",
                "tcp_Flags Text",
                "tcp_flags_2 Json"
            ]
        );
    }
}
