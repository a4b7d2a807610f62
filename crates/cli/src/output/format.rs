//! The formats in which a metrics document is shown.

use std::borrow::Cow;
use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use twinprobe_client::{Answer, ClientError, Document};
use twinprobe_ebpf_common::Format;

use crate::output::exact;
use crate::output::screen::Screen;
use crate::output::view::{OutputView, yaml};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// The forms of other answers; all but JSON show a document in JSON.
    View(OutputView),
    /// The document as the daemon sends it.
    Document(Format),
}

/// The choices in the order of the help: the forms of every answer, then the formats that only
/// documents have.
static CHOICES: LazyLock<Vec<OutputFormat>> = LazyLock::new(|| {
    let views = OutputView::value_variants()
        .iter()
        .map(|view| OutputFormat::View(*view));
    views
        .chain(OutputFormat::of_documents().map(OutputFormat::Document))
        .collect()
});

impl ValueEnum for OutputFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::View(OutputView::Wide) => {
                Some(PossibleValue::new("wide").help("A table with lines of any length"))
            }
            Self::View(view) => view.to_possible_value(),
            Self::Document(format) => Some(PossibleValue::new(format.name())),
        }
    }
}

impl OutputFormat {
    pub const TABLE: Self = Self::View(OutputView::Table);

    /// The formats that only documents have.
    pub fn of_documents() -> impl Iterator<Item = Format> {
        Format::ALL
            .into_iter()
            .filter(|format| *format != Format::Json)
    }

    /// Returns the media type that the daemon is asked for.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::View(_) => Format::Json.media_type(),
            Self::Document(format) => format.media_type(),
        }
    }

    /// Tells whether documents are shown as tables.
    pub const fn is_table(self) -> bool {
        matches!(self, Self::View(OutputView::Table | OutputView::Wide))
    }

    /// Returns the form of other answers than documents; `None` for formats that only documents
    /// have.
    pub const fn view(self) -> Option<OutputView> {
        match self {
            Self::View(view) => Some(view),
            Self::Document(_) => None,
        }
    }

    /// The screen for tables.
    pub fn screen(self) -> Screen {
        self.view().unwrap_or(OutputView::Table).screen()
    }

    /// Returns a document in its printed form; [`Picture`](crate::commands::read::picture::Picture)
    /// draws tables.
    pub fn show(self, document: &Answer<Document>) -> Result<Cow<'_, [u8]>, ClientError> {
        match self {
            Self::View(OutputView::Yaml) => Ok(Cow::Owned(
                exact::written(yaml(&document.parsed(exact::parse)?)).into_bytes(),
            )),
            _ => Ok(Cow::Borrowed(&document.body)),
        }
    }
}
