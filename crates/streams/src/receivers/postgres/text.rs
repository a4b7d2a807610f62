//! Cells, encoded as the texts that PostgreSQL reads.

use bytes::{BufMut as _, BytesMut};
use jiff::Timestamp;
use serde_json::Value;

use super::columns::PgMetric;
use crate::receiver::{ItemName, SeriesName, StreamGap};
use crate::rows::cell::{Cell, nanoseconds, rows};
use crate::rows::columns::ColumnKind;
use crate::rows::head::DocumentHead;

/// A cell as text; `None` is NULL.
pub type PgCell = Option<String>;

/// Returns the cells of the table of windows.
pub fn window(name: &ItemName, document: &DocumentHead) -> Vec<PgCell> {
    let SeriesName {
        node,
        instance,
        probe,
    } = &*name.series;
    let window = &document.window;
    let number = |name: &str| window[name].as_u64().unwrap_or_default();
    let parts = [&document.interfaces, &document.labels];
    // The column `rest` gets both parts if `jsonb` refuses one of them.
    let fits = parts.iter().all(|part| json_fits(&part.to_string()));
    let [interfaces, labels] =
        parts.map(|part| (fits && !part.is_null()).then(|| part.to_string()));
    let rest = serde_json::json!({ "interfaces": parts[0], "labels": parts[1] });
    let nanoseconds = [nanoseconds(&name.start), nanoseconds(&name.end)];
    let [start, end] = nanoseconds.map(|time| time.and_then(instant));
    let mut cells = vec![
        Some(node.clone()),
        Some(probe.clone()),
        Some(instance.clone()),
    ];
    cells.extend([Some(name.seq.to_string()), start, end]);
    cells.extend(nanoseconds.map(|time| time.map(|time| time.to_string())));
    cells.extend([
        Some(number("duration_ns").to_string()),
        Some(number("lost_windows").to_string()),
    ]);
    cells.extend([interfaces, labels, document.approximate.clone()]);
    cells.push((!fits).then(|| rest.to_string()));
    cells
}

/// Returns the cells of the table of gaps.
pub fn gap(gap: &StreamGap) -> Vec<PgCell> {
    let SeriesName {
        node,
        instance,
        probe,
    } = &*gap.name.series;
    let texts = [node, probe, instance].map(|text| Some(text.clone()));
    let numbers = [gap.name.seq, gap.last, gap.windows].map(|number| Some(number.to_string()));
    texts.into_iter().chain(numbers).collect()
}

/// The rows of a window for the table of a metric, in the text format of COPY.
pub struct MetricRows<'a> {
    table: &'a PgMetric,
    /// The cells that each row begins with.
    head: BytesMut,
    /// The number of the next row.
    row: u32,
}

impl<'a> MetricRows<'a> {
    pub fn new(table: &'a PgMetric, name: &ItemName) -> Self {
        let SeriesName {
            node,
            instance,
            probe,
        } = &*name.series;
        let time = |text: &str| nanoseconds(text).and_then(instant);
        let mut head = BytesMut::new();
        for cell in [
            Some(node.clone()),
            Some(probe.clone()),
            Some(instance.clone()),
        ]
        .into_iter()
        .chain([
            Some(name.seq.to_string()),
            time(&name.start),
            time(&name.end),
        ]) {
            put(&mut head, cell.as_deref());
            head.put_u8(b'\t');
        }
        Self {
            table,
            head,
            row: 0,
        }
    }

    /// Adds the rows of an entry to `out`.
    pub fn add(&mut self, entry: &Value, out: &mut BytesMut) {
        for row in rows(entry, &self.table.parts, self.table.metric.per_cpu) {
            out.put_slice(&self.head);
            out.put_slice(self.row.to_string().as_bytes());
            self.row += 1;
            let mut fits = !self.table.is_cut;
            for (part, cell) in self.table.parts.iter().zip(&row.cells) {
                fits &= add_cell(part.kind, cell, out);
            }
            out.put_u8(b'\t');
            let rest = row.rest.or_else(|| (!fits).then(|| entry.to_string()));
            put(out, rest.as_deref());
            out.put_u8(b'\n');
        }
    }
}

/// Adds a tab and the text of a cell. Returns false if PostgreSQL can't hold the cell.
fn add_cell(kind: ColumnKind, cell: &Cell, out: &mut BytesMut) -> bool {
    let text = match (kind, cell) {
        (_, Cell::Missing) => None,
        (ColumnKind::Time, Cell::Time(time)) => instant(*time),
        (ColumnKind::Unsigned { bits }, Cell::Unsigned(number)) => {
            let most = 1_u128
                .checked_shl(bits)
                .map_or(u128::MAX, |above| above - 1);
            (u128::from(*number) <= most).then(|| number.to_string())
        }
        (ColumnKind::Signed { bits: ..=32 }, Cell::Signed(number)) => {
            i32::try_from(*number).ok().map(|number| number.to_string())
        }
        (ColumnKind::Json, Cell::Text(text)) => json_fits(text).then(|| text.to_string()),
        (_, Cell::Text(text)) => (!text.contains('\0')).then(|| text.to_string()),
        (_, Cell::Signed(number)) => Some(number.to_string()),
        (_, Cell::Unsigned(number)) => Some(number.to_string()),
        (_, Cell::Float(number)) => Some(format!("{number:e}")),
        (_, Cell::Bool(value)) => Some(value.to_string()),
        (_, Cell::Time(_)) => None,
    };
    out.put_u8(b'\t');
    put(out, text.as_deref());
    if kind == ColumnKind::Time {
        out.put_u8(b'\t');
        let exact = if let Cell::Time(time) = cell {
            Some(time.to_string())
        } else {
            None
        };
        put(out, exact.as_deref());
    }
    text.is_some() || *cell == Cell::Missing
}

/// Returns a time in microseconds, the smallest unit of PostgreSQL.
fn instant(nanoseconds: i64) -> Option<String> {
    Some(
        Timestamp::from_microsecond(nanoseconds.div_euclid(1_000))
            .ok()?
            .to_string(),
    )
}

/// Returns false for JSON that `jsonb` refuses: texts with a zero character. It also returns false
/// for an escaped backslash before `u0000`, which does no harm.
fn json_fits(text: &str) -> bool {
    !text.contains("\\u0000")
}

/// Adds a cell in the text format of COPY.
fn put(out: &mut BytesMut, cell: Option<&str>) {
    let Some(text) = cell else {
        return out.put_slice(b"\\N");
    };
    for byte in text.bytes() {
        match byte {
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            byte => out.put_u8(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: ColumnKind, cell: &Cell) -> (String, bool) {
        let mut out = BytesMut::new();
        let fits = add_cell(kind, cell, &mut out);
        (String::from_utf8(out.to_vec()).unwrap(), fits)
    }

    #[test]
    fn cells_stay_what_they_are() {
        let text = |text: &str| Cell::Text(text.into());
        for (kind, cell, expected, fits) in [
            (ColumnKind::Text, text("a\tb\n\\N"), "\ta\\tb\\n\\\\N", true),
            (ColumnKind::Text, text("a\0b"), "\t\\N", false),
            (ColumnKind::Text, Cell::Missing, "\t\\N", true),
            (ColumnKind::Json, text(r#"["\u0000"]"#), "\t\\N", false),
            (ColumnKind::Json, text(r#"["\n"]"#), "\t[\"\\\\n\"]", true),
            (
                ColumnKind::Unsigned { bits: 64 },
                Cell::Unsigned(u64::MAX),
                "\t18446744073709551615",
                true,
            ),
            (
                ColumnKind::Unsigned { bits: 16 },
                Cell::Unsigned(1 << 16),
                "\t\\N",
                false,
            ),
            (
                ColumnKind::Signed { bits: 8 },
                Cell::Signed(-5),
                "\t-5",
                true,
            ),
            (
                ColumnKind::Float { bits: 64 },
                Cell::Float(0.1),
                "\t1e-1",
                true,
            ),
            (
                ColumnKind::Time,
                Cell::Time(-1),
                "\t1969-12-31T23:59:59.999999Z\t-1",
                true,
            ),
            (
                ColumnKind::Time,
                Cell::Time(1_999),
                "\t1970-01-01T00:00:00.000001Z\t1999",
                true,
            ),
            (ColumnKind::Time, Cell::Missing, "\t\\N\t\\N", true),
        ] {
            assert_eq!(
                shown(kind, &cell),
                (expected.to_owned(), fits),
                "{kind:?} {cell:?}"
            );
        }
    }
}
