//! Aligned text: numbers to the right, words to the left. If lines would be too long to read, cells
//! are folded, or records stand below each other.

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
/// The smallest width of folded cells while the table can still leave out columns.
const READABLE: usize = 24;

/// Rows under titled columns. The columns have the order in which their titles first appear.
#[derive(Default)]
pub struct TextTable {
    /// The title above keys without parts, instead of `key`.
    pub key_title: Option<String>,
    /// The titles of columns that a narrow screen leaves out, the last one first.
    spare: Vec<&'static str>,
    titles: Vec<String>,
    by_title: HashMap<String, usize>,
    /// True for each column that holds numbers only.
    numeric: Vec<bool>,
    rows: Vec<Vec<TableCell>>,
}

#[derive(Clone, Debug, Default)]
struct TableCell {
    text: String,
    /// The number in the text, for sorting rows.
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

    /// Makes a table that leaves out these columns on a screen where other cells would be folded to
    /// few characters: the last one first.
    pub fn with_spare(spare: &[&'static str]) -> Self {
        Self {
            spare: spare.to_vec(),
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the titles of the columns.
    pub fn titles(&self) -> &[String] {
        &self.titles
    }

    /// Returns the title of the first column of numbers outside the key.
    pub fn first_number(&self) -> Option<&String> {
        let columns = self.titles.iter().zip(&self.numeric);
        columns
            .into_iter()
            .find(|(title, numeric)| **numeric && !is_key(title))
            .map(|(title, _)| title)
    }

    /// Returns the texts of the cells of keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let cells = self.rows.iter().flat_map(|row| self.titles.iter().zip(row));
        cells
            .filter(|(title, _)| is_key(title))
            .map(|(_, cell)| &*cell.text)
    }

    /// Adds a name to each cell of a key with a name. The key itself stays whole.
    pub fn name_keys(&mut self, name: impl Fn(&str) -> Option<String>) {
        let cells = self
            .rows
            .iter_mut()
            .flat_map(|row| self.titles.iter().zip(row));
        for (_, cell) in cells.filter(|(title, _)| is_key(title)) {
            if let Some(name) = name(&cell.text) {
                cell.text = format!("{} {name}", cell.text);
            }
        }
    }

    /// Sorts the rows by the column with this title: the largest numbers first, words by the
    /// alphabet. Returns false if there is no such column. `bytes` also stands for `bytes/s`, and
    /// `key.port` may be called `port`.
    pub fn sort(&mut self, by: &str) -> bool {
        let is_it = |title: &&String| {
            let title = title.trim_end_matches("/s");
            title.eq_ignore_ascii_case(by)
                || title.rsplit('.').next() == Some(by)
                || title == "key" && self.key_title.as_deref() == Some(by)
        };
        let Some(column) = self
            .titles
            .iter()
            .find(is_it)
            .and_then(|title| self.by_title.get(title))
        else {
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

    /// Drops all rows but those with the largest numbers in a column, and keeps their order.
    /// Returns the numbers of the dropped rows.
    pub fn keep_largest(&mut self, title: &str, rows: usize) -> Vec<String> {
        let column = self.by_title.get(title).copied();
        let cell = |row: &[TableCell]| {
            column
                .and_then(|column| row.get(column))
                .cloned()
                .unwrap_or_default()
        };
        let mut places: Vec<usize> = (0..self.rows.len()).collect();
        let number = |place: &usize| cell(&self.rows[*place]).number.unwrap_or_default();
        places.sort_by(|a, b| number(b).total_cmp(&number(a)));
        let dropped: Vec<usize> = places.into_iter().skip(rows).collect();
        let texts = dropped
            .iter()
            .map(|place| cell(&self.rows[*place]).text)
            .collect();
        let mut place = 0..;
        self.rows
            .retain(|_| place.next().is_some_and(|place| !dropped.contains(&place)));
        texts
    }

    /// Renders one line per row. If a row is wider than the screen, long cells or titles are
    /// folded. If this is not enough, each cell has a line.
    pub fn render(mut self, screen: Screen) -> String {
        if self.titles.is_empty() {
            return String::new();
        }
        if let (Some(column), Some(title)) = (self.by_title.get("key"), self.key_title.take()) {
            self.titles[*column] = title;
        }
        while !self.fits(screen.width)
            && let Some(title) = self.spare.pop()
        {
            self.leave_out(title);
        }
        let texts = self
            .rows
            .into_iter()
            .map(|row| row.into_iter().map(|cell| cell.text).collect());
        let rows: Vec<Vec<String>> = std::iter::once(self.titles).chain(texts).collect();
        let mut table = aligned(rows.clone(), &self.numeric);
        let width = screen.width.saturating_add(GAP);
        let mut heading = 1;
        if table.total_width() > width {
            if can_fold(&rows, &self.numeric, screen.width, FOLDED) {
                table.with(
                    Width::wrap(width)
                        .priority(PriorityMax::right())
                        .keep_words(true),
                );
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

impl TextTable {
    /// Tells whether the rows fit if words are folded, but remain readable.
    fn fits(&self, width: usize) -> bool {
        let cells = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| &*cell.text).collect());
        let titles = self.titles.iter().map(|title| &**title).collect();
        let rows: Vec<Vec<&str>> = std::iter::once(titles).chain(cells).collect();
        can_fold(&rows, &self.numeric, width, READABLE)
    }

    fn leave_out(&mut self, title: &str) {
        let Some(column) = self.titles.iter().position(|known| known == title) else {
            return;
        };
        self.titles.remove(column);
        self.numeric.remove(column);
        for row in self.rows.iter_mut().filter(|row| row.len() > column) {
            row.remove(column);
        }
    }
}

/// Returns rows as a table, the first one with the titles.
fn aligned(rows: Vec<Vec<String>>, numeric: &[bool]) -> Table {
    let mut table = Builder::from(rows).build();
    table
        .with(Style::empty())
        .with(Padding::new(0, GAP, 0, 0))
        .with(AlignmentStrategy::PerLine);
    for (column, _) in numeric.iter().enumerate().filter(|(_, numeric)| **numeric) {
        table.modify(Columns::one(column), Alignment::right());
    }
    table
}

/// Returns the rows with titles that are as narrow as the cells below them, as far as their words
/// allow it; and the number of lines that titles have.
fn with_folded_titles(rows: &[Vec<String>]) -> (Vec<Vec<String>>, usize) {
    let Some((titles, cells)) = rows.split_first() else {
        return (Vec::new(), 0);
    };
    let widest = |column: usize| {
        cells
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let folded = titles
        .iter()
        .enumerate()
        .map(|(column, title)| fold_title(title, widest(column)));
    let folded: Vec<Vec<String>> = folded.collect();
    let lines = folded.iter().map(Vec::len).max().unwrap_or_default();
    // All titles end in the same line.
    let titles = folded
        .iter()
        .map(|title| format!("{}{}", "\n".repeat(lines - title.len()), title.join("\n")));
    (
        std::iter::once(titles.collect())
            .chain(cells.iter().cloned())
            .collect(),
        lines,
    )
}

/// Cuts a title into lines, after `_` and `.`, or between the parts of a key, of at most `width`
/// characters, or that of its longest word.
fn fold_title(title: &str, width: usize) -> Vec<String> {
    let between: &[char] = if title.contains(' ') {
        &[' ']
    } else {
        &['_', '.']
    };
    let words: Vec<&str> = title.split_inclusive(between).collect();
    let longest = words
        .iter()
        .map(|word| word.trim_end().chars().count())
        .max()
        .unwrap_or_default();
    let mut lines = vec![String::new()];
    for word in words {
        match lines.last_mut() {
            Some(line)
                if line.chars().count() + word.trim_end().chars().count() <= width.max(longest) =>
            {
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Tells whether the column with this title is the key or a part of it.
fn is_key(title: &str) -> bool {
    title == "key" || title.starts_with("key.") || title.starts_with("key[")
}

/// Tells whether the rows fit if only long words are folded, not numbers.
fn can_fold(rows: &[Vec<impl AsRef<str>>], numeric: &[bool], width: usize, folded: usize) -> bool {
    let widest = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|text| text.as_ref().chars().count())
            .max()
            .unwrap_or_default()
    };
    let least = |(column, numeric): (usize, &bool)| {
        let widest = widest(column);
        GAP + if *numeric { widest } else { widest.min(folded) }
    };
    numeric.iter().enumerate().map(least).sum::<usize>() <= width
}

/// Renders the cells of each row below each other, beside their titles.
fn records(rows: &[Vec<String>]) -> String {
    let Some((titles, rows)) = rows.split_first() else {
        return String::new();
    };
    let widest = titles
        .iter()
        .map(|title| title.chars().count())
        .max()
        .unwrap_or_default();
    let record = |row: &Vec<String>| -> String {
        let cells = titles.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        cells
            .map(|(title, cell)| format!("{title:<widest$}{:GAP$}{cell}\n", ""))
            .collect()
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n")
}

impl TextRow<'_> {
    pub fn text(&mut self, title: &str, text: &str) {
        // Keys tell rows apart, and are never cut.
        let text = if is_key(title) {
            escaped(text, usize::MAX)
        } else {
            printable(text)
        };
        let is_empty = text.is_empty();
        self.cell(title, TableCell { text, number: None }, is_empty);
    }

    /// A text that is never cut.
    pub fn whole(&mut self, title: &str, text: &str) {
        let text = escaped(text, usize::MAX);
        let is_empty = text.is_empty();
        self.cell(title, TableCell { text, number: None }, is_empty);
    }

    /// An unchanged number.
    pub fn number(&mut self, title: &str, number: &str) {
        self.cell(
            title,
            TableCell {
                text: number.to_owned(),
                number: number.parse().ok(),
            },
            true,
        );
    }

    /// A number with a unit.
    pub fn amount(&mut self, title: &str, number: f64, text: String) {
        self.cell(
            title,
            TableCell {
                text,
                number: Some(number),
            },
            true,
        );
    }

    fn cell(&mut self, title: &str, cell: TableCell, numeric: bool) {
        let table = &mut *self.table;
        let column = table.by_title.get(title).copied().unwrap_or_else(|| {
            table.titles.push(title.to_owned());
            table.numeric.push(true);
            table
                .by_title
                .insert(title.to_owned(), table.titles.len() - 1);
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

/// Cuts text to a cell's size, and escapes characters that a terminal would obey: some text comes
/// from packets.
pub fn printable(text: &str) -> String {
    escaped(text, CELL)
}

/// Escapes control characters, invisible spaces at the ends, and text that looks like such an
/// escape: different texts are different cells.
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
