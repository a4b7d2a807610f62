//! The formats in which a metrics document is shown.

use std::borrow::Cow;

use clap::ValueEnum;
use twinprobe_client::{Answer, ClientError, Document};
use twinprobe_ebpf_common::Format;

use crate::output::exact;
use crate::output::screen::Screen;
use crate::output::view::{OutputView, yaml};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    Table,
    /// A table with lines of any length
    Wide,
    Json,
    Yaml,
    Xml,
    #[value(name = "openmetrics")]
    OpenMetrics,
    Prometheus,
}

impl OutputFormat {
    /// Returns the media type that the daemon is asked for.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Table | Self::Wide | Self::Json | Self::Yaml => Format::Json,
            Self::Xml => Format::Xml,
            Self::OpenMetrics => Format::OpenMetrics,
            Self::Prometheus => Format::Prometheus,
        }
        .media_type()
    }

    /// Tells whether documents are shown as tables.
    pub const fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// Returns the form of other answers than documents; `None` for formats that only documents have.
    pub const fn view(self) -> Option<OutputView> {
        match self {
            Self::Table => Some(OutputView::Table),
            Self::Wide => Some(OutputView::Wide),
            Self::Json => Some(OutputView::Json),
            Self::Yaml => Some(OutputView::Yaml),
            Self::Xml | Self::OpenMetrics | Self::Prometheus => None,
        }
    }

    /// The screen for tables.
    pub fn screen(self) -> Screen {
        self.view().unwrap_or(OutputView::Table).screen()
    }

    /// Returns a document in its printed form; [`Picture`](crate::commands::read::picture::Picture) draws tables.
    pub fn show(self, document: &Answer<Document>) -> Result<Cow<'_, [u8]>, ClientError> {
        match self {
            Self::Yaml => Ok(Cow::Owned(exact::written(yaml(&document.parsed(exact::parse)?)).into_bytes())),
            _ => Ok(Cow::Borrowed(&document.body)),
        }
    }
}
