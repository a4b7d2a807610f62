//! Whole documents, whose tables are in memory.

use std::io;
use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Direction, Format, Head, RawTable, Window};

use super::document::DocumentEncoder;
use super::encoder::{CHUNK, Progress};
use crate::metric::Metric;

/// The number of entries that are written between two checks of the buffer's size.
const ROWS: usize = 256;

/// One answer about one probe. Values stay raw bytes until they are encoded.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The name of the probe.
    pub probe: String,
    /// The names of the interfaces that the probe is attached to.
    pub interfaces: Vec<String>,
    /// The window that the snapshot metrics belong to, if one was closed.
    pub window: Option<Window>,
    pub ingress: Vec<MetricTable>,
    pub egress: Vec<MetricTable>,
}

/// A metric and one reading of its map.
#[derive(Clone, Debug)]
pub struct MetricTable {
    pub metric: Arc<Metric>,
    pub table: RawTable,
}

impl Document {
    /// Returns the head of the document, which comes before its first metric.
    pub fn head(&self) -> Head<'_> {
        Head { probe: &self.probe, interfaces: &self.interfaces, window: self.window.as_ref() }
    }

    /// Returns the metrics of both directions, in the order of the document.
    pub fn tables(&self) -> impl Iterator<Item = (Direction, &MetricTable)> {
        let ingress = self.ingress.iter().map(|table| (Direction::Ingress, table));
        ingress.chain(self.egress.iter().map(|table| (Direction::Egress, table)))
    }
}

/// Writes `document` to `out` in chunks of about 64 KiB.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn encode(
    document: &Document,
    context: &Context,
    format: Format,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(2 * CHUNK);
    let mut encoder = DocumentEncoder::new(format, &document.head(), Arc::new(context.clone()), &mut buffer);
    for (direction, MetricTable { metric, table }) in document.tables() {
        encoder.begin_metric(direction, metric, &mut buffer);
        for first in (0..table.len(&metric.layout)).step_by(ROWS) {
            encoder.some_rows(table, first..first + ROWS, &mut buffer);
            if buffer.len() >= CHUNK {
                out.write_all(&buffer)?;
                buffer.clear();
            }
        }
        encoder.end_metric(&mut buffer);
    }
    while let Progress::More = encoder.finish(&mut buffer) {
        out.write_all(&buffer)?;
        buffer.clear();
    }
    out.write_all(&buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that accepts `0` more calls.
    struct Full(usize);

    impl io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_can_not_be_written_is_an_error_in_every_format() {
        for format in Format::ALL {
            let written = |calls| encode(&Document::default(), &Context::default(), format, &mut Full(calls));
            assert_eq!(written(0).unwrap_err().kind(), io::ErrorKind::StorageFull, "{}", format.name());
            assert!(written(1).is_ok(), "{}", format.name());
        }
    }
}
