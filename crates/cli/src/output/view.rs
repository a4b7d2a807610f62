//! The formats of other answers than metrics documents.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use crate::error::CommandError;
use crate::output::print;
use crate::output::screen::Screen;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputView {
    Table,
    /// A table with all columns and exact numbers
    Wide,
    Json,
    Yaml,
}

/// The option of commands whose answer is a table.
#[derive(Clone, Copy, Debug, Args)]
pub struct ViewOption {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = OutputView::Table)]
    pub output: OutputView,
}

impl OutputView {
    /// Prints `value` as JSON or YAML, or the result of `table` for a screen.
    pub fn show(
        self,
        value: &impl Serialize,
        table: impl FnOnce(Screen) -> String,
    ) -> Result<(), CommandError> {
        match self.structured(value)? {
            Some(text) => print::print(text),
            None => print::print(table(self.screen())),
        }
    }

    /// Tells whether programs read the output.
    pub const fn is_structured(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Returns `value` as JSON or YAML; `None` for a table.
    pub fn structured(self, value: &impl Serialize) -> Result<Option<String>, CommandError> {
        let value = || serde_json::to_value(value).map_err(std::io::Error::from);
        Ok(match self {
            Self::Table | Self::Wide => None,
            Self::Json => Some(format!("{:#}", value()?)),
            Self::Yaml => Some(yaml(&value()?)),
        })
    }

    /// The screen for the table.
    pub fn screen(self) -> Screen {
        let screen = Screen::stdout();
        if self == Self::Wide {
            Screen {
                width: usize::MAX,
                wide: true,
                ..screen
            }
        } else {
            screen
        }
    }
}

/// Returns a value of JSON as YAML.
pub fn yaml(value: &Value) -> String {
    // All keys of JSON are strings, which YAML has as well.
    yaml_serde::to_string(value).unwrap_or_default()
}
