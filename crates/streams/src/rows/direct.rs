//! The cells of entries, read from a document without a tree of values between them, which would
//! take most of the time. This reader knows only entries that are one row and fit into their
//! columns. [`rows`](super::cell::rows) knows all.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::cell::{Cell, cell, nanoseconds};
use super::columns::{CellSource, ColumnKind, RowColumn};
use super::entries::EntryReader;

/// The place of a value in an entry: a column, or an object with such places.
#[derive(Debug, Default)]
pub struct CellPlace {
    column: Option<(usize, ColumnKind)>,
    members: Vec<(String, Self)>,
}

impl CellPlace {
    /// Returns the places of these columns in an entry; `None` if a column has more than one value.
    pub fn new(columns: &[RowColumn]) -> Option<Self> {
        let mut entry = Self::default();
        for (index, column) in columns.iter().enumerate() {
            let (first, path) = match &column.source {
                CellSource::Key(path) => ("key", path),
                CellSource::Value(path) => ("value", path),
                CellSource::Cpu | CellSource::Owner(..) => return None,
            };
            if column.kind == ColumnKind::Json {
                return None;
            }
            let place = path
                .iter()
                .fold(entry.member(first), |place, name| place.member(name));
            place.column = Some((index, column.kind));
        }
        Some(entry)
    }

    fn member(&mut self, name: &str) -> &mut Self {
        let known = self.members.iter().position(|(known, _)| known == name);
        let index = known.unwrap_or_else(|| {
            self.members.push((name.to_owned(), Self::default()));
            self.members.len() - 1
        });
        &mut self.members[index].1
    }
}

/// Reads entries until one does not fit.
pub struct DirectRows<'a, F> {
    place: &'a CellPlace,
    row: Vec<Cell>,
    /// The number of entries that were read.
    pub read: usize,
    each: F,
}

impl<'a, F: FnMut(&mut [Cell])> DirectRows<'a, F> {
    /// `each` gets the cells of each entry, and may take the cells out.
    pub fn new(place: &'a CellPlace, columns: usize, each: F) -> Self {
        Self {
            place,
            row: vec![Cell::Missing; columns],
            read: 0,
            each,
        }
    }
}

impl<F: FnMut(&mut [Cell])> EntryReader for DirectRows<'_, F> {
    fn next<'de, A: SeqAccess<'de>>(&mut self, entries: &mut A) -> Result<bool, A::Error> {
        let mut found = 0;
        let seed = PlaceSeed {
            place: self.place,
            row: &mut self.row,
            found: &mut found,
        };
        if entries.next_element_seed(seed)?.is_none() {
            return Ok(false);
        }
        if found != self.row.len() {
            return Err(A::Error::custom("a column has no value"));
        }
        (self.each)(&mut self.row);
        self.read += 1;
        Ok(true)
    }
}

/// Reads the value of a place into its cells.
struct PlaceSeed<'a> {
    place: &'a CellPlace,
    row: &'a mut [Cell],
    /// The number of cells so far.
    found: &'a mut usize,
}

impl PlaceSeed<'_> {
    fn put<E: Error>(self, read: impl FnOnce(ColumnKind) -> Option<Cell>) -> Result<(), E> {
        let cell = self
            .place
            .column
            .and_then(|(index, kind)| Some((index, read(kind)?)));
        let (index, cell) = cell.ok_or_else(|| E::custom("no column holds it"))?;
        self.row[index] = cell;
        *self.found += 1;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for PlaceSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PlaceSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the value of a column")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { place, row, found } = self;
        let mut next = 0;
        while let Some(index) = map.next_key_seed(NameSeed {
            members: &place.members,
            next,
        })? {
            map.next_value_seed(PlaceSeed {
                place: &place.members[index].1,
                row,
                found,
            })?;
            next = index + 1;
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.put(|kind| cell(kind, &Value::from(number)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.put(|kind| cell(kind, &Value::from(number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.put(|kind| cell(kind, &Value::from(number)))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.put(|kind| cell(kind, &Value::from(value)))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.put(|kind| cell(kind, &Value::Null))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.put(|kind| match kind {
            ColumnKind::Text => Some(Cell::Text(text.into())),
            ColumnKind::Time => nanoseconds(text).map(Cell::Time),
            _ => None,
        })
    }
}

/// Finds the member of a name, most often the next one.
struct NameSeed<'a> {
    members: &'a [(String, CellPlace)],
    next: usize,
}

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a column")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let is_it = |index: &usize| {
            self.members
                .get(*index)
                .is_some_and(|(known, _)| known == name)
        };
        let found = Some(self.next)
            .filter(is_it)
            .or_else(|| (0..self.members.len()).find(is_it));
        found.ok_or_else(|| E::custom("no column has it"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cell::{CellRow, rows};
    use super::super::entries::each_entry;
    use super::*;

    fn column(kind: ColumnKind, source: CellSource) -> RowColumn {
        RowColumn {
            name: String::new(),
            kind,
            source,
            unit: None,
        }
    }

    /// Returns columns of several kinds, one of them in a struct.
    fn columns() -> [RowColumn; 7] {
        let path = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        [
            column(ColumnKind::Text, CellSource::Key(path(&["src"]))),
            column(
                ColumnKind::Unsigned { bits: 16 },
                CellSource::Key(path(&["port"])),
            ),
            column(
                ColumnKind::Unsigned { bits: 64 },
                CellSource::Value(path(&["count", "bytes"])),
            ),
            column(
                ColumnKind::Signed { bits: 64 },
                CellSource::Value(path(&["least"])),
            ),
            column(
                ColumnKind::Float { bits: 64 },
                CellSource::Value(path(&["share"])),
            ),
            column(ColumnKind::Bool, CellSource::Value(path(&["is"]))),
            column(ColumnKind::Time, CellSource::Value(path(&["last"]))),
        ]
    }

    /// An entry that is read directly has the same cells as the entry that is read as a value.
    /// Other entries end the reading.
    #[test]
    fn cells_are_those_of_the_value() {
        let columns = columns();
        let place = CellPlace::new(&columns).unwrap();
        let good = json!({ "key": { "src": "a\"\u{e4}", "port": 65_535 }, "value": { "last": "1970-01-01T00:00:01Z",
            "count": { "bytes": u64::MAX }, "least": i64::MIN, "share": 0.5, "is": true } });
        let with = |pointer: &str, value: Value| {
            let mut entry = good.clone();
            *entry.pointer_mut(pointer).unwrap() = value;
            entry
        };
        let entries = [
            (good.clone(), true),
            (with("/value/last", json!(0)), true),
            (with("/value/share", Value::Null), true),
            (with("/value/share", json!(7)), true),
            (with("/key/src", json!(7)), true),
            (with("/key/src", json!([7])), false),
            (
                with("/key", json!({ "src": "a", "port": 1, "padding": "0x01" })),
                false,
            ),
            (with("/key", json!({ "src": "a" })), false),
            (with("/key", json!(1)), false),
            (with("/value/count", json!(1)), false),
            (with("/value/count/bytes", json!(1e30)), false),
            (with("/value/count/bytes", json!(-1)), false),
            (with("/value/least", json!(u64::MAX)), false),
            (with("/value/is", json!("true")), false),
            (with("/value/last", json!("now")), false),
        ];
        for (entry, is_read) in entries {
            let document = json!({ "ingress": { "m": { "entries": [entry] } } }).to_string();
            let mut found = Vec::new();
            let mut direct =
                DirectRows::new(&place, columns.len(), |cells| found.push(cells.to_vec()));
            let read = each_entry(document.as_bytes(), ["ingress", "m"], &mut direct);
            assert_eq!(read.is_ok(), is_read, "{entry}");
            if is_read {
                let expected = rows(&entry, &columns, false);
                assert_eq!(
                    [CellRow {
                        cells: found.remove(0),
                        rest: None
                    }],
                    expected[..],
                    "{entry}"
                );
            }
        }
        let cpu = column(ColumnKind::Unsigned { bits: 32 }, CellSource::Cpu);
        let json = column(ColumnKind::Json, CellSource::Value(Vec::new()));
        assert!(CellPlace::new(&[cpu]).is_none() && CellPlace::new(&[json]).is_none());
    }
}
