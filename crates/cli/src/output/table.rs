//! Aligned text: numbers to the right, words to the left; where lines would be too long to read, cells are folded, or
//! records stand below each other.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashMap;

use tabled::Table;
use tabled::builder::Builder;
use tabled::settings::formatting::AlignmentStrategy;
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

    /// Renders one line per row. Where a row is wider than the screen, long cells are folded, or titles are. If this is not
    /// enough, each cell has a line.
    pub fn render(self, screen: Screen) -> String {
        if self.titles.is_empty() {
            return String::new();
        }
        let texts = self.rows.into_iter().map(|row| row.into_iter().map(|cell| cell.text).collect());
        let rows: Vec<Vec<String>> = std::iter::once(self.titles).chain(texts).collect();
        let mut table = aligned(rows.clone(), &self.numeric);
        let width = screen.width.saturating_add(GAP);
        let mut heading = 1;
        if table.total_width() > width {
            if can_fold(&rows, &self.numeric, screen.width) {
                table.with(Width::wrap(width).priority(PriorityMax::right()).keep_words(true));
            } else {
                let (folded, lines) = with_folded_titles(&rows);
                table = aligned(folded, &self.numeric);
                heading = lines;
                if table.total_width() > width {
                    return records(&rows);
                }
            }
        }
        let text = table.to_string();
        let line = |(number, line): (usize, &str)| match number < heading {
            true => format!("{}\n", screen.paint(HEADING, line.trim_end())),
            false => format!("{}\n", line.trim_end()),
        };
        text.lines().enumerate().map(line).collect()
    }
}

/// Returns rows as a table, the first one with the titles.
fn aligned(rows: Vec<Vec<String>>, numeric: &[bool]) -> Table {
    let mut table = Builder::from(rows).build();
    table.with(Style::empty()).with(Padding::new(0, GAP, 0, 0)).with(AlignmentStrategy::PerLine);
    for (column, _) in numeric.iter().enumerate().filter(|(_, numeric)| **numeric) {
        table.modify(Columns::one(column), Alignment::right());
    }
    table
}

/// Returns the rows with titles that are as narrow as the cells below them, as far as the words between `_` and `.` allow
/// it; and the number of lines that titles have.
fn with_folded_titles(rows: &[Vec<String>]) -> (Vec<Vec<String>>, usize) {
    let Some((titles, cells)) = rows.split_first() else { return (Vec::new(), 0) };
    let widest = |column: usize| {
        cells
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let folded = titles.iter().enumerate().map(|(column, title)| fold_title(title, widest(column)));
    let folded: Vec<Vec<String>> = folded.collect();
    let lines = folded.iter().map(Vec::len).max().unwrap_or_default();
    // All titles end in the last line.
    let titles =
        folded.iter().map(|title| format!("{}{}", "\n".repeat(lines - title.len()), title.join("\n")));
    (std::iter::once(titles.collect()).chain(cells.iter().cloned()).collect(), lines)
}

/// Cuts a title behind `_` and `.` into lines of at most `width` characters, or that of its longest word.
fn fold_title(title: &str, width: usize) -> Vec<String> {
    let words: Vec<&str> = title.split_inclusive(['_', '.']).collect();
    let longest = words.iter().map(|word| word.chars().count()).max().unwrap_or_default();
    let mut lines = vec![String::new()];
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() <= width.max(longest) => {
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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
