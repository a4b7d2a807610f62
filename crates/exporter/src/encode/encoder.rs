//! The interface of a document that is written piece by piece.

use std::sync::Arc;

use twinprobe_ebpf_common::{Direction, RawTable};

use crate::metric::Metric;

/// The number of bytes that are gathered before they are handed on.
pub const CHUNK: usize = 64 * 1024;

/// The state of a document: complete or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a document that is not done is not valid"]
pub enum Progress {
    /// The document is not complete; hand the buffer on and call again.
    More,
    /// The document is complete. `skipped` is the number of numbers and texts that the format has no place for; only
    /// OpenMetrics leaves any out.
    Done { skipped: u64 },
}

/// One document in one format. Each call appends to the caller's buffer, which can be handed on and emptied between any
/// two calls:
///
/// ```text
/// document_encoder, (begin_metric, rows..., end_metric)..., finish until it is done
/// ```
///
/// JSON and XML are written as rows come, and nothing is kept. OpenMetrics does not allow this: the samples of a family
/// must not be mixed with those of others, while one row of structs holds samples of many families, and both directions
/// can have samples of the same family. So the raw rows, which need a fraction of the memory of their samples, are kept
/// until `finish` and walked once for each family.
pub trait DocumentEncoder: Send + Sync {
    /// Sets the number of numbers and texts that earlier documents left out, so that the counter at the end of an
    /// OpenMetrics document never decreases. To be called before the first metric.
    fn skipped_before(&mut self, _: u64) {}

    /// Begins a metric, and ends the one before.
    ///
    /// # Panics
    ///
    /// Panics if a metric of the ingress follows one of the egress.
    fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>);

    /// Writes the complete entries of `table`, a part of the map of the metric that was begun last; without such a
    /// metric, nothing happens. `out` grows in proportion to the entries.
    fn rows(&mut self, table: &RawTable, out: &mut Vec<u8>);

    /// Ends the metric that was begun last, as the next call of [`Self::begin_metric`] or [`Self::finish`] does too.
    fn end_metric(&mut self, out: &mut Vec<u8>);

    /// Ends the document. Call it until it is done; each call appends about a chunk of 64 KiB.
    fn finish(&mut self, out: &mut Vec<u8>) -> Progress;
}
