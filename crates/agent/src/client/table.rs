//! Aligned text: numbers to the right, words to the left, records below each other where lines would be too
//! long to read.

use std::collections::HashMap;

/// The longest a cell may be; what is longer is cut, with dots.
const CELL: usize = 64;
const GAP: &str = "  ";

/// Columns are found by their titles, in the order in which they first come up.
#[derive(Default)]
pub(super) struct Table {
    titles: Vec<String>,
    by_title: HashMap<String, usize>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Default)]
struct Cell {
    text: String,
    number: bool,
}

pub(super) struct Row<'a> {
    table: &'a mut Table,
}

impl Table {
    pub fn row(&mut self) -> Row<'_> {
        self.rows.push(Vec::with_capacity(self.titles.len()));
        Row { table: self }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One line per row, or, if that would take more than `width` columns, one line per cell.
    pub fn render(&self, width: usize) -> String {
        if self.titles.is_empty() {
            return String::new();
        }
        let widths: Vec<usize> = (0..self.titles.len())
            .map(|i| self.column(i).map(|cell| length(&cell.text)).chain([length(&self.titles[i])]).max())
            .map(Option::unwrap_or_default)
            .collect();
        let total = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        if total > width { self.records() } else { self.lines(&widths) }
    }

    fn lines(&self, widths: &[usize]) -> String {
        // A title stands where its column's content stands.
        let right: Vec<bool> = (0..widths.len())
            .map(|i| self.column(i).all(|cell| cell.number || cell.text.is_empty()))
            .collect();
        let mut out = String::new();
        let titles = self.titles.iter().enumerate().map(|(i, title)| (i, title.as_str(), right[i]));
        line(&mut out, titles, widths);
        for row in &self.rows {
            line(
                &mut out,
                row.iter().enumerate().map(|(i, cell)| (i, cell.text.as_str(), cell.number)),
                widths,
            );
        }
        out
    }

    fn records(&self) -> String {
        let widest = self.titles.iter().map(|title| length(title)).max().unwrap_or_default();
        let mut out = String::new();
        for (i, row) in self.rows.iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            for (title, cell) in self.titles.iter().zip(row).filter(|(_, cell)| !cell.text.is_empty()) {
                out.push_str(&format!("{title:<widest$}{GAP}{}\n", cell.text));
            }
        }
        out
    }

    fn column(&self, i: usize) -> impl Iterator<Item = &Cell> {
        self.rows.iter().filter_map(move |row| row.get(i))
    }
}

impl Row<'_> {
    pub fn text(&mut self, title: &str, text: &str) {
        self.cell(title, Cell { text: printable(text), number: false });
    }

    pub fn number(&mut self, title: &str, number: &str) {
        self.cell(title, Cell { text: number.to_owned(), number: true });
    }

    fn cell(&mut self, title: &str, cell: Cell) {
        let table = &mut *self.table;
        let column = table.by_title.get(title).copied().unwrap_or_else(|| {
            table.titles.push(title.to_owned());
            table.by_title.insert(title.to_owned(), table.titles.len() - 1);
            table.titles.len() - 1
        });
        if let Some(row) = table.rows.last_mut() {
            if row.len() <= column {
                row.resize(column + 1, Cell::default());
            }
            row[column] = cell;
        }
    }
}

fn line<'a>(out: &mut String, cells: impl Iterator<Item = (usize, &'a str, bool)>, widths: &[usize]) {
    let start = out.len();
    for (i, text, right) in cells {
        if i > 0 {
            out.push_str(GAP);
        }
        let pad = " ".repeat(widths[i].saturating_sub(length(text)));
        let (before, after) = if right { (pad.as_str(), "") } else { ("", pad.as_str()) };
        out.extend([before, text, after]);
    }
    out.truncate(start + out[start..].trim_end().len());
    out.push('\n');
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Cut to a cell's size, and without characters that a terminal would obey: some of it came from packets.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(CELL));
    for (i, c) in text.chars().enumerate() {
        if i == CELL {
            out.push_str("...");
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::default();
        let mut row = table.row();
        row.text("key", "tcp");
        row.number("bytes", "1500");
        let mut row = table.row();
        row.text("key", "a long one");
        row.number("bytes", "7");
        row.text("note", "é\u{1b}[2J");
        table
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "\
key         bytes  note
tcp          1500
a long one      7  é\\u{1b}[2J
";
        assert_eq!(sample().render(80), expected);
    }

    #[test]
    fn what_is_too_wide_becomes_records() {
        let expected = "\
key    tcp
bytes  1500

key    a long one
bytes  7
note   é\\u{1b}[2J
";
        assert_eq!(sample().render(20), expected);
    }

    #[test]
    fn cells_have_a_limit() {
        assert_eq!(printable(&"x".repeat(100)).len(), CELL + 3);
        assert_eq!(Table::default().render(0), "");
    }
}
