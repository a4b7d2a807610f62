//! The choice of columns and rows for a table of metrics.

use clap::Args;
use serde_json::Value;
use twinprobe_api::ConfigDocument;
use twinprobe_client::{Client, LargestEntries};

use crate::error::CommandError;
use crate::names::addresses::NamedAddresses;
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
    /// Show the names of addresses that the daemon finds beside the first 256 of a table; the
    /// formats for programs stay as they are
    #[arg(long)]
    pub names: bool,
}

impl Picture {
    /// The entries that a table needs. The daemon chooses the largest by `by`, unless the table is
    /// sorted by a column.
    pub fn largest<'a>(&self, by: Option<&'a str>) -> LargestEntries<'a> {
        LargestEntries {
            top: self.top.filter(|top| self.sort.is_none() && *top > 0),
            by,
        }
    }

    /// Draws the tables of a daemon's document. The rows have the order of the number `by` by which
    /// the daemon has chosen them. A column to sort by must be in one of the tables, unless one is
    /// empty. `config` has the labels of keys.
    pub async fn draw(
        &self,
        client: &Client,
        document: &Value,
        config: Option<&ConfigDocument>,
        by: Option<&str>,
        screen: Screen,
    ) -> Result<String, CommandError> {
        let mut tables = rows::tables(document, screen.wide);
        if let Some(config) = config {
            tables.title_keys(config);
        }
        if let Some(sort) = &self.sort
            && let Some(known) = tables.lack(sort)
        {
            return Err(CommandError::NoColumn {
                column: sort.clone(),
                known: known.join(", "),
            });
        }
        let choice = Choice {
            sort: self.sort.clone(),
            by: by.map(str::to_owned),
            top: self.top,
        };
        tables = tables.chosen(&choice);
        if self.names {
            let names = NamedAddresses::ask(client, tables.keys()).await;
            tables.name_keys(|key| names.of(key, usize::MAX));
        }
        Ok(rows::render(tables, screen))
    }
}

/// Returns the present configuration of a probe. Tables without it have no labels of keys.
pub async fn config(client: &Client, name: &str) -> Option<ConfigDocument> {
    client.status(name).await.ok()?.read().ok()?.config
}
