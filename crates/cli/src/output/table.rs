//! Aligned text: numbers to the right, words to the left, records below each other where lines would be too
//! long to read.

use std::collections::HashMap;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style};

/// The largest number of characters in a cell. Longer text is cut and ends in dots.
const CELL: usize = 64;
/// The space between two columns.
const GAP: usize = 2;

/// Rows under titled columns. The order of the columns is that in which their titles first come up.
#[derive(Default)]
pub struct Table {
    titles: Vec<String>,
    by_title: HashMap<String, usize>,
    /// True for each column that holds numbers only.
    numeric: Vec<bool>,
    rows: Vec<Vec<String>>,
}

pub struct Row<'a> {
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

    /// Renders one line per row or, if a row would be wider than `width` columns of the terminal, one line per cell.
    pub fn render(mut self, width: usize) -> String {
        if self.titles.is_empty() {
            return String::new();
        }
        self.rows.insert(0, self.titles);
        let mut table = Builder::from(self.rows).build();
        table.with(Style::empty()).with(Padding::new(0, GAP, 0, 0));
        if table.total_width() > width.saturating_add(GAP) {
            return records(&Vec::<Vec<String>>::from(Builder::from(table)));
        }
        for (column, _) in self.numeric.iter().enumerate().filter(|(_, numeric)| **numeric) {
            table.modify(Columns::one(column), Alignment::right());
        }
        table.to_string().lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }
}

/// Renders the cells of each row below each other, beside their titles.
fn records(rows: &[Vec<String>]) -> String {
    let Some((titles, rows)) = rows.split_first() else { return String::new() };
    let widest = titles.iter().map(|title| title.chars().count()).max().unwrap_or_default();
    let record = |row: &Vec<String>| -> String {
        let cells = titles.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        cells.map(|(title, cell)| format!("{title:<widest$}{:GAP$}{cell}\n", "")).collect()
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n")
}

impl Row<'_> {
    pub fn text(&mut self, title: &str, text: &str) {
        self.cell(title, printable(text), text.is_empty());
    }

    pub fn number(&mut self, title: &str, number: &str) {
        self.cell(title, number.to_owned(), true);
    }

    fn cell(&mut self, title: &str, text: String, numeric: bool) {
        let table = &mut *self.table;
        let column = table.by_title.get(title).copied().unwrap_or_else(|| {
            table.titles.push(title.to_owned());
            table.numeric.push(true);
            table.by_title.insert(title.to_owned(), table.titles.len() - 1);
            table.titles.len() - 1
        });
        table.numeric[column] &= numeric;
        if let Some(row) = table.rows.last_mut() {
            if row.len() <= column {
                row.resize(column + 1, String::new());
            }
            row[column] = text;
        }
    }
}

/// Cuts text to a cell's size, and escapes characters that a terminal would obey: some text comes from packets.
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

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::default();
        for (name, bytes) in [("漢字", "1"), ("four", "23")] {
            let mut row = table.row();
            row.text("NAME", name);
            row.number("BYTES", bytes);
        }
        assert_eq!(table.render(80), "NAME  BYTES\n漢字      1\nfour     23\n");
    }
}
