//! The formats of a page: OpenMetrics, and the formats that are converted from it.

use super::plain::Plain;
use super::protobuf::delimited::Delimited;

/// A format of a page about the daemon and all probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFormat {
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// Version 1.0.0 of the text format. It allows more names than a page uses, so a page is the
    /// same in both versions.
    NewerText,
    /// The protobuf messages of Prometheus, with native histograms.
    Protobuf,
}

impl PageFormat {
    /// All formats, the default first.
    pub const ALL: [Self; 4] = [
        Self::OpenMetrics,
        Self::Text,
        Self::NewerText,
        Self::Protobuf,
    ];

    /// Returns the value of `Content-Type`, parameters included.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::NewerText => "text/plain; version=1.0.0; charset=utf-8; escaping=underscores",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// The converter from the lines of OpenMetrics to a page of another format.
#[derive(Debug)]
pub enum PageConversion {
    None,
    Text(Plain),
    Protobuf(Delimited),
}

impl PageConversion {
    pub fn new(format: PageFormat) -> Self {
        match format {
            PageFormat::OpenMetrics => Self::None,
            PageFormat::Text | PageFormat::NewerText => Self::Text(Plain::default()),
            PageFormat::Protobuf => Self::Protobuf(Delimited::default()),
        }
    }

    /// Converts the part of `out` from `start` on, which must have whole lines.
    pub fn convert(&mut self, start: usize, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Text(plain) => plain.convert(start, out),
            Self::Protobuf(delimited) => delimited.convert(start, out),
        }
    }
}
