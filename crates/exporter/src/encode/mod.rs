//! Documents to bytes, one file per format.

mod event;
mod fragment;
mod json;
mod openmetrics;
mod stream;
mod tree;
mod xml;

use std::{io, sync::Arc};

pub use event::EventEncoder;
pub(crate) use json::Label as JsonLabel;
pub use openmetrics::PageEncoder;
pub(crate) use openmetrics::Samples;
pub use stream::{DocumentEncoder, Progress};
pub(crate) use xml::Label as XmlLabel;

use twinprobe_ebpf_common::{Context, Format};

use crate::Document;

/// What is to be said about a document that has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "what was left out should be counted"]
pub struct Encoded {
    /// Numbers and texts that the format has no place for; only OpenMetrics leaves any out.
    pub skipped: u64,
}

/// Bytes gathered before they are handed on.
const CHUNK: usize = 64 * 1024;

/// Writes `document` to `out` in chunks; fails only if `out` does.
pub fn encode(
    document: &Document,
    context: &Context,
    format: Format,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(2 * CHUNK);
    let mut encoder = DocumentEncoder::new(format, &document.head(), Arc::new(context.clone()), &mut buffer);
    for (direction, table) in document.tables() {
        encoder.begin_metric(direction, &table.metric, &mut buffer);
        if format == Format::OpenMetrics {
            encoder.rows(&table.table, &mut buffer);
        }
        let mut rows = table.table.rows(&table.metric.layout);
        while encoder.some_rows(&mut rows, &mut buffer) {
            out.write_all(&buffer)?;
            buffer.clear();
        }
        encoder.end_metric(&mut buffer);
    }
    while let Progress::More = encoder.finish(&mut buffer) {
        out.write_all(&buffer)?;
        buffer.clear();
    }
    out.write_all(&buffer)
}
