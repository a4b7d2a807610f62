//! The formats in which a metrics document is shown.

use std::borrow::Cow;

use clap::ValueEnum;
use twinprobe_client::{Answer, ClientError, Document};
use twinprobe_ebpf_common::Format;

use crate::output::{print, rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    Table,
    Json,
    Xml,
    #[value(name = "openmetrics")]
    OpenMetrics,
}

impl OutputFormat {
    /// Returns the media type that the daemon is asked for.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Table | Self::Json => Format::Json,
            Self::Xml => Format::Xml,
            Self::OpenMetrics => Format::OpenMetrics,
        }
        .media_type()
    }

    /// Returns a document as it is printed.
    pub fn show(self, document: &Answer<Document>) -> Result<Cow<'_, [u8]>, ClientError> {
        if self == Self::Table {
            return Ok(Cow::Owned(rows::render(&document.read()?, print::width()).into_bytes()));
        }
        Ok(Cow::Borrowed(&document.body))
    }
}
