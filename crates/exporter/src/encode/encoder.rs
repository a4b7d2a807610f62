//! The interface of a document that is written piece by piece.

use std::sync::Arc;

use twinprobe_ebpf_common::RawTable;

use crate::metric::Metric;

/// The number of bytes after which rows that have more to be written are left to the next call.
pub const CHUNK: usize = 64 << 10;

/// One document in one format. The encoder asks for the tables of the metrics, one after the other.
/// Each call appends to the caller's buffer, which can be handed on and emptied between any two
/// calls:
///
/// ```text
/// document_encoder, add_metric..., (next_table, rows...)..., finish
/// ```
///
/// The encoder keeps nothing of the tables. JSON and XML ask for each table once. OpenMetrics asks
/// for a table again for each family to which the table contributes, because the samples of a
/// family must be together. One row of structs has samples of many families, and both directions
/// can have samples of the same family. The rows must be the same each time, so that the samples of
/// a row agree.
pub trait DocumentEncoder: Send + Sync {
    /// Sets the number of numbers and texts that earlier documents left out, so that the counter at
    /// the end of an OpenMetrics document never decreases. The caller must call this before it adds
    /// the first metric.
    fn skipped_before(&mut self, _: u64) {}

    /// Adds a metric. [`Self::next_table`] asks for its table by the number of previously added
    /// metrics. No key of the table comes twice, unless it is a trie that is read live.
    ///
    /// # Panics
    ///
    /// Panics if a metric of the ingress follows a metric of the egress.
    fn add_metric(&mut self, metric: &Arc<Metric>);

    /// Ends the previous table. Returns the number of the table whose rows come next, from the
    /// first row on; `None` if only the end of the document is left.
    fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize>;

    /// Tells whether [`Self::next_table`] will return the same table again.
    fn asks_again(&self) -> bool {
        false
    }

    /// Writes the complete entries of `table`, a part of the table that [`Self::next_table`]
    /// returned; without such a table, nothing happens. `out` grows in proportion to the entries,
    /// unless the format leaves some entries to [`Self::more`].
    fn rows(&mut self, table: &RawTable, out: &mut Vec<u8>);

    /// Writes another chunk of the rows from the last call of [`Self::rows`]. Returns false at the
    /// end. A call of any other function writes all remaining rows.
    fn more(&mut self, _: &mut Vec<u8>) -> bool {
        false
    }

    /// Ends the document, once [`Self::next_table`] has returned `None`. Returns the number of
    /// numbers and texts without a place in the format; only OpenMetrics leaves any out.
    fn finish(&mut self, out: &mut Vec<u8>) -> u64;
}
