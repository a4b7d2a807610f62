//! The choice of columns and rows of a table of metrics.

use clap::Args;
use serde_json::Value;
use twinprobe_client::LargestEntries;

use crate::error::CommandError;
use crate::output::rows::{self, Choice};
use crate::output::screen::Screen;

#[derive(Clone, Debug, Default, Args)]
pub struct Picture {
    /// Sort each table by this column: numbers with the largest first, words by the alphabet
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,
    /// Show at most this number of rows of each table
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
}

impl Picture {
    /// The entries that a table needs. The daemon chooses the largest by `by`, unless the table is sorted by a column.
    pub fn largest<'a>(&self, by: Option<&'a str>) -> LargestEntries<'a> {
        LargestEntries { top: self.top.filter(|top| self.sort.is_none() && *top > 0), by }
    }

    /// Draws the tables of a document. A column to sort by must be in one of them, unless one is empty.
    pub fn draw(&self, document: &Value, screen: Screen) -> Result<String, CommandError> {
        self.draw_by(document, None, screen)
    }

    /// Does the same with rows that the daemon has chosen by the number `by`.
    pub fn draw_by(
        &self,
        document: &Value,
        by: Option<&str>,
        screen: Screen,
    ) -> Result<String, CommandError> {
        let mut tables = rows::tables(document, screen.wide);
        if let Some(sort) = &self.sort
            && let Some(known) = tables.lack(sort)
        {
            return Err(CommandError::NoColumn { column: sort.clone(), known: known.join(", ") });
        }
        let choice = Choice { sort: self.sort.clone(), by: by.map(str::to_owned), top: self.top };
        Ok(rows::render(tables, screen, &choice))
    }
}
