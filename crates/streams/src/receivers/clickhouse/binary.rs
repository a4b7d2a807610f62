//! Rows in the format RowBinary.

use serde_json::Value;

use super::columns::ChMetric;
use crate::receiver::{ItemName, SeriesName, StreamGap};
use crate::rows::cell::{Cell, nanoseconds, rows};
use crate::rows::columns::ColumnKind;
use crate::rows::head::DocumentHead;

/// The earliest time that a column can hold: the beginning of 1900, in nanoseconds since 1970.
const FIRST: i64 = -2_208_988_800_000_000_000;

/// Adds the row of a window to `out`.
pub fn window(name: &ItemName, document: &DocumentHead, out: &mut Vec<u8>) {
    identity(name, out);
    let window = &document.window;
    number(window["duration_ns"].as_u64().unwrap_or_default(), out);
    number(window["lost_windows"].as_u64().unwrap_or_default(), out);
    for part in [&document.interfaces, &document.labels] {
        optional((!part.is_null()).then(|| part.to_string()).as_deref(), out);
    }
    optional(document.approximate.as_deref(), out);
}

/// Adds the row of a gap to `out`.
pub fn gap(gap: &StreamGap, out: &mut Vec<u8>) {
    let SeriesName {
        node,
        instance,
        probe,
    } = &*gap.name.series;
    [node, probe, instance]
        .into_iter()
        .for_each(|name| text(name, out));
    [gap.name.seq, gap.last, gap.windows]
        .into_iter()
        .for_each(|value| number(value, out));
}

/// The rows of a window in the table of a metric.
pub struct EntryRows<'a> {
    table: &'a ChMetric,
    /// The cells that each row begins with.
    head: Vec<u8>,
    /// The number of the next row.
    row: u32,
}

impl<'a> EntryRows<'a> {
    pub fn new(table: &'a ChMetric, name: &ItemName) -> Self {
        let mut head = Vec::new();
        identity(name, &mut head);
        Self {
            table,
            head,
            row: 0,
        }
    }

    /// Adds the rows of an entry to `out`.
    pub fn add(&mut self, entry: &Value, out: &mut Vec<u8>) {
        for row in rows(entry, &self.table.parts, self.table.metric.per_cpu) {
            out.extend_from_slice(&self.head);
            out.extend(self.row.to_le_bytes());
            self.row += 1;
            let mut fits = true;
            for (part, cell) in self.table.parts.iter().zip(&row.cells) {
                fits &= add_cell(part.kind, cell, out);
            }
            let rest = row.rest.or_else(|| (!fits).then(|| entry.to_string()));
            optional(rest.as_deref(), out);
        }
    }
}

fn identity(name: &ItemName, out: &mut Vec<u8>) {
    let SeriesName {
        node,
        instance,
        probe,
    } = &*name.series;
    [node, probe, instance]
        .into_iter()
        .for_each(|name| text(name, out));
    number(name.seq, out);
    for time in [&name.start, &name.end] {
        out.extend(
            nanoseconds(time)
                .unwrap_or_default()
                .max(FIRST)
                .to_le_bytes(),
        );
    }
}

/// Adds a cell. Returns false and writes NULL if the column can't hold the value.
fn add_cell(kind: ColumnKind, cell: &Cell, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.push(0);
    let fits = match (kind, cell) {
        (_, Cell::Missing) => false,
        (ColumnKind::Unsigned { bits }, Cell::Unsigned(value)) if bits <= 32 => {
            u32::try_from(*value)
                .map(|value| out.extend(value.to_le_bytes()))
                .is_ok()
        }
        (ColumnKind::Signed { bits }, Cell::Signed(value)) if bits <= 32 => i32::try_from(*value)
            .map(|value| out.extend(value.to_le_bytes()))
            .is_ok(),
        (ColumnKind::Unsigned { .. }, Cell::Unsigned(value)) => added(&value.to_le_bytes(), out),
        (ColumnKind::Signed { .. }, Cell::Signed(value)) => added(&value.to_le_bytes(), out),
        (ColumnKind::Float { bits: 32 }, Cell::Float(value)) => {
            added(&(*value as f32).to_le_bytes(), out)
        }
        (ColumnKind::Float { .. }, Cell::Float(value)) => added(&value.to_le_bytes(), out),
        (ColumnKind::Bool, Cell::Bool(value)) => added(&[u8::from(*value)], out),
        (ColumnKind::Time, Cell::Time(value)) => {
            *value >= FIRST && added(&value.to_le_bytes(), out)
        }
        (ColumnKind::Text | ColumnKind::Json, Cell::Text(value)) => {
            text(value, out);
            true
        }
        _ => false,
    };
    if !fits {
        out.truncate(start);
        out.push(1);
    }
    fits || *cell == Cell::Missing
}

fn added(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(bytes);
    true
}

fn number(value: u64, out: &mut Vec<u8>) {
    out.extend(value.to_le_bytes());
}

/// Adds a text: its length in groups of seven bits, the lowest first, and its bytes.
fn text(text: &str, out: &mut Vec<u8>) {
    let mut left = text.len();
    while left >= 0x80 {
        out.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
    out.extend_from_slice(text.as_bytes());
}

fn optional(cell: Option<&str>, out: &mut Vec<u8>) {
    out.push(u8::from(cell.is_none()));
    if let Some(cell) = cell {
        text(cell, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: ColumnKind, cell: &Cell) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let fits = add_cell(kind, cell, &mut out);
        (out, fits)
    }

    #[test]
    fn cells_stay_what_they_are() {
        for (kind, cell, expected, fits) in [
            (
                ColumnKind::Text,
                Cell::Text("a\0é".into()),
                &[0, 4, b'a', 0, 0xc3, 0xa9][..],
                true,
            ),
            (ColumnKind::Text, Cell::Missing, &[1], true),
            (
                ColumnKind::Unsigned { bits: 64 },
                Cell::Unsigned(u64::MAX),
                &[0, 255, 255, 255, 255, 255, 255, 255, 255],
                true,
            ),
            (
                ColumnKind::Unsigned { bits: 16 },
                Cell::Unsigned(258),
                &[0, 2, 1, 0, 0],
                true,
            ),
            (
                ColumnKind::Unsigned { bits: 16 },
                Cell::Unsigned(1 << 32),
                &[1],
                false,
            ),
            (
                ColumnKind::Signed { bits: 8 },
                Cell::Signed(-2),
                &[0, 254, 255, 255, 255],
                true,
            ),
            (
                ColumnKind::Float { bits: 32 },
                Cell::Float(1.0),
                &[0, 0, 0, 128, 63],
                true,
            ),
            (ColumnKind::Bool, Cell::Bool(true), &[0, 1], true),
            (
                ColumnKind::Time,
                Cell::Time(-1),
                &[0, 255, 255, 255, 255, 255, 255, 255, 255],
                true,
            ),
            (ColumnKind::Time, Cell::Time(FIRST - 1), &[1], false),
        ] {
            assert_eq!(
                shown(kind, &cell),
                (expected.to_vec(), fits),
                "{kind:?} {cell:?}"
            );
        }
    }

    #[test]
    fn long_texts_have_long_lengths() {
        let mut out = Vec::new();
        text(&"x".repeat(300), &mut out);
        assert_eq!((&out[..2], out.len()), (&[0xac, 0x02][..], 302));
    }
}
