//! Aligned text: numbers to the right, words to the left; where lines would be too long to read, cells are folded, or
//! records stand below each other.

use std::cmp::Ordering;
use std::collections::HashMap;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::peaker::PriorityMax;
use tabled::settings::{Alignment, Padding, Style, Width};

use crate::output::screen::{HEADING, Screen};

/// The largest number of characters in a cell. Longer text is cut and ends in dots.
const CELL: usize = 64;
/// The space between two columns.
const GAP: usize = 2;
/// The smallest width of folded cells, in characters.
const FOLDED: usize = 16;

/// Rows under titled columns. The order of the columns is that in which their titles first come up.
#[derive(Default)]
pub struct TextTable {
    titles: Vec<String>,
    by_title: HashMap<String, usize>,
    /// True for each column that holds numbers only.
    numeric: Vec<bool>,
    rows: Vec<Vec<TableCell>>,
}

#[derive(Clone, Debug, Default)]
struct TableCell {
    text: String,
    /// The number that the text shows, by which rows are sorted.
    number: Option<f64>,
}

pub struct TextRow<'a> {
    table: &'a mut TextTable,
}

impl TextTable {
    pub fn row(&mut self) -> TextRow<'_> {
        self.rows.push(Vec::with_capacity(self.titles.len()));
        TextRow { table: self }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the titles of the columns.
    pub fn titles(&self) -> &[String] {
        &self.titles
    }

    /// Returns the title of the first column of numbers that is not a part of the key.
    pub fn first_number(&self) -> Option<&String> {
        let columns = self.titles.iter().zip(&self.numeric);
        columns.into_iter().find(|(title, numeric)| **numeric && !is_key(title)).map(|(title, _)| title)
    }

    /// Returns the texts of the cells of keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let cells = self.rows.iter().flat_map(|row| self.titles.iter().zip(row));
        cells.filter(|(title, _)| is_key(title)).map(|(_, cell)| &*cell.text)
    }

    /// Adds a name to each cell of a key that has one. The key itself stays whole.
    pub fn name_keys(&mut self, name: impl Fn(&str) -> Option<String>) {
        let cells = self.rows.iter_mut().flat_map(|row| self.titles.iter().zip(row));
        for (_, cell) in cells.filter(|(title, _)| is_key(title)) {
            if let Some(name) = name(&cell.text) {
                cell.text = format!("{} {name}", cell.text);
            }
        }
    }

    /// Sorts the rows by the column with this title: the largest numbers first, words by the alphabet. Returns false if
    /// there is no such column. `bytes` also stands for `bytes/s`, and `key.port` may be called `port`.
    pub fn sort(&mut self, by: &str) -> bool {
        let is_it = |title: &&String| {
            let title = title.trim_end_matches("/s");
            title.eq_ignore_ascii_case(by) || title.rsplit('.').next() == Some(by)
        };
        let Some(column) = self.titles.iter().find(is_it).and_then(|title| self.by_title.get(title)) else {
            return false;
        };
        let cell = |row: &[TableCell]| row.get(*column).cloned().unwrap_or_default();
        self.rows.sort_by(|a, b| {
            let (a, b) = (cell(a), cell(b));
            match (a.number, b.number) {
                (Some(a), Some(b)) => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => a.text.cmp(&b.text),
            }
        });
        true
    }

    /// Drops all rows but the first ones. Returns how many were dropped.
    pub fn truncate(&mut self, rows: usize) -> usize {
        let dropped = self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
        dropped
    }

    /// Renders one line per row. Where a row is wider than the screen, long cells are folded. If this is not enough,
    /// each cell has a line.
    pub fn render(self, screen: Screen) -> String {
        if self.titles.is_empty() {
            return String::new();
        }
        let texts = self.rows.into_iter().map(|row| row.into_iter().map(|cell| cell.text).collect());
        let rows: Vec<Vec<String>> = std::iter::once(self.titles).chain(texts).collect();
        let mut table = Builder::from(rows.clone()).build();
        table.with(Style::empty()).with(Padding::new(0, GAP, 0, 0));
        for (column, _) in self.numeric.iter().enumerate().filter(|(_, numeric)| **numeric) {
            table.modify(Columns::one(column), Alignment::right());
        }
        let width = screen.width.saturating_add(GAP);
        if table.total_width() > width {
            if !can_fold(&rows, &self.numeric, screen.width) {
                return records(&rows);
            }
            table.with(Width::wrap(width).priority(PriorityMax::right()).keep_words(true));
        }
        let text: String = table.to_string().lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
        match text.split_once('\n') {
            Some((heading, rest)) => format!("{}\n{rest}", screen.paint(HEADING, heading)),
            None => text,
        }
    }
}

/// Tells whether the column with this title is the key or a part of it.
fn is_key(title: &str) -> bool {
    title == "key" || title.starts_with("key.") || title.starts_with("key[")
}

/// Tells whether the rows fit if long words are folded and numbers are not.
fn can_fold(rows: &[Vec<String>], numeric: &[bool], width: usize) -> bool {
    let widest = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|text| text.chars().count())
            .max()
            .unwrap_or_default()
    };
    let least = |(column, numeric): (usize, &bool)| {
        let widest = widest(column);
        GAP + if *numeric { widest } else { widest.min(FOLDED) }
    };
    numeric.iter().enumerate().map(least).sum::<usize>() <= width
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

impl TextRow<'_> {
    pub fn text(&mut self, title: &str, text: &str) {
        // Keys tell rows apart, and are never cut.
        let text = if is_key(title) { escaped(text, usize::MAX) } else { printable(text) };
        let is_empty = text.is_empty();
        self.cell(title, TableCell { text, number: None }, is_empty);
    }

    /// A text that is never cut.
    pub fn whole(&mut self, title: &str, text: &str) {
        let text = escaped(text, usize::MAX);
        let is_empty = text.is_empty();
        self.cell(title, TableCell { text, number: None }, is_empty);
    }

    /// A number as it is.
    pub fn number(&mut self, title: &str, number: &str) {
        self.cell(title, TableCell { text: number.to_owned(), number: number.parse().ok() }, true);
    }

    /// A number with a unit.
    pub fn amount(&mut self, title: &str, number: f64, text: String) {
        self.cell(title, TableCell { text, number: Some(number) }, true);
    }

    fn cell(&mut self, title: &str, cell: TableCell, numeric: bool) {
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
                row.resize(column + 1, TableCell::default());
            }
            row[column] = cell;
        }
    }
}

/// Cuts text to a cell's size, and escapes characters that a terminal would obey: some text comes from packets.
pub fn printable(text: &str) -> String {
    escaped(text, CELL)
}

/// Escapes control characters, spaces at the ends, which are not seen, and what looks like such an escape: different texts
/// are different cells.
pub fn escaped(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len().min(most));
    for (i, (at, c)) in text.char_indices().enumerate() {
        if i == most {
            out.push_str("...");
            break;
        }
        let is_end = at == 0 || at + c.len_utf8() == text.len();
        let looks_escaped = c == '\\' && text[at..].starts_with("\\u{");
        if c.is_control() || is_end && c.is_whitespace() || looks_escaped {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn screen(width: usize) -> Screen {
        Screen { width, colour: false, wide: false }
    }

    fn sample() -> TextTable {
        let mut table = TextTable::default();
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
        assert_eq!(sample().render(screen(80)), expected);
        let coloured = sample().render(Screen { colour: true, ..screen(80) });
        assert_eq!(coloured.lines().next(), Some("\u{1b}[1mkey         bytes  note\u{1b}[0m"));
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
        assert_eq!(sample().render(screen(20)), expected);
    }

    #[test]
    fn long_words_are_folded_and_numbers_are_not() {
        let mut table = TextTable::default();
        let mut row = table.row();
        row.text("NAME", "dns");
        row.number("BYTES", "18446744073709551615");
        row.text("REASON", "there is no interface of this name on the machine");
        let text = table.render(screen(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("18446744073709551615") && text.lines().count() > 2, "{text}");
    }

    #[test]
    fn rows_are_sorted_and_cut() {
        let mut table = sample();
        assert!(table.sort("key"));
        assert!(table.sort("bytes") && !table.sort("packets"));
        assert_eq!(table.truncate(1), 1);
        assert_eq!(table.render(screen(80)), "key  bytes  note\ntcp   1500\n");
    }

    #[test]
    fn cells_have_a_limit() {
        assert_eq!(printable(&"x".repeat(100)).len(), CELL + 3);
        for (text, cell) in [
            ("a\nb", r"a\u{a}b"),
            (r"a\nb", r"a\nb"),
            (r"\u{a}", r"\u{5c}u{a}"),
            ("a ", r"a\u{20}"),
            (" ", r"\u{20}"),
            ("a b", "a b"),
        ] {
            assert_eq!(printable(text), cell);
        }
        let mut table = TextTable::default();
        for end in ["a", "b"] {
            table.row().text("key.name", &("x".repeat(100) + end));
        }
        assert!(table.rows[0][0].text != table.rows[1][0].text, "keys are not cut");
        assert_eq!(TextTable::default().render(screen(0)), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = TextTable::default();
        for (name, bytes) in [("漢字", "1"), ("four", "23")] {
            let mut row = table.row();
            row.text("NAME", name);
            row.number("BYTES", bytes);
        }
        assert_eq!(table.render(screen(80)), "NAME  BYTES\n漢字      1\nfour     23\n");
    }
}
