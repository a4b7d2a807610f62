//! Tables in Markdown.

use std::fmt::Write as _;

/// A table of a report.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, and prints it, so that long experiments show where they are.
    ///
    /// # Panics
    /// Panics if the row has not as many cells as the table has columns.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a cell for each column: {row:?}"
        );
        eprintln!("  {}", row.join(" | "));
        self.rows.push(row);
    }

    /// Returns the table in Markdown, followed by an empty line.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let rule = vec!["---".to_owned(); self.columns.len()];
        for row in [&self.columns, &rule].into_iter().chain(&self.rows) {
            // Writing to a String can't fail.
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text + "\n"
    }
}

/// Returns the cell that tells whether a goal is met.
pub fn met(met: bool) -> &'static str {
    if met { "yes" } else { "**no**" }
}
