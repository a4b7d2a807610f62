//! A metrics document as the body of an answer, rendered piece by piece as the client takes it: a slow client
//! slows its own answer only, and the whole rendered document is never in memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use hyper::body::{Bytes, Frame};
use twinprobe_exporter::{Context, Document, DocumentEncoder, Format, Progress};

use crate::engine::Delivery;

/// Bytes handed to the connection at once, about.
const CHUNK: usize = 64 << 10;
/// Raw bytes rendered at once; they grow by some factor.
const ROWS: usize = 8 << 10;

/// The body. Once its last piece has been taken the document counts as delivered; dropped before, it does not.
pub(super) struct Export {
    encoder: DocumentEncoder,
    delivery: Option<Delivery>,
    /// The next row: table by its position in the document, and entry in it.
    table: usize,
    row: usize,
    /// What the encoder has written at its creation.
    head: Vec<u8>,
}

impl Export {
    pub(super) fn new(delivery: Delivery, context: Context, format: Format) -> Self {
        let mut head = Vec::new();
        let encoder = DocumentEncoder::new(format, &delivery.document().head(), Arc::new(context), &mut head);
        Self { encoder, delivery: Some(delivery), table: 0, row: 0, head }
    }

    /// The next piece; `None` at the end.
    fn next(&mut self) -> Option<Vec<u8>> {
        let delivery = self.delivery.as_ref()?;
        let mut out = std::mem::take(&mut self.head);
        let document = Arc::clone(delivery.document());
        while out.len() < CHUNK {
            if !self.write_rows(&document, &mut out) {
                if let Progress::Done(_) = self.encoder.finish(&mut out) {
                    self.delivery.take()?.complete();
                }
                break;
            }
        }
        Some(out)
    }

    /// Writes some rows of the current table; false if there is no table left.
    fn write_rows(&mut self, document: &Document, out: &mut Vec<u8>) -> bool {
        let Some((direction, table)) = document.tables().nth(self.table) else { return false };
        let layout = &table.metric.layout;
        if self.row == 0 {
            self.encoder.begin_metric(direction, &table.metric, out);
        }
        let entry = layout.key.size + layout.value_stride();
        let end = self.row + (ROWS / entry.max(1)).max(1);
        self.encoder.rows(&table.table.slice(self.row, end, layout), out);
        self.row = end;
        if self.row >= table.table.len(layout) {
            self.encoder.end_metric(out);
            (self.table, self.row) = (self.table + 1, 0);
        }
        true
    }
}

impl hyper::body::Body for Export {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|bytes| Ok(Frame::data(bytes.into()))))
    }
}
