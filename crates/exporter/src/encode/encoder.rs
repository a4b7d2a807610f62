//! What each format does with the metrics of a document.

use std::ops::Range;
use std::sync::Arc;

use twinprobe_ebpf_common::{Direction, RawTable};

use crate::metric::Metric;

/// Bytes gathered before they are handed on.
pub const CHUNK: usize = 64 * 1024;

/// Whether a document is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a document that is not done is not valid"]
pub enum Progress {
    /// There is more to come; hand the buffer on and call again.
    More,
    /// The document is complete.
    Done(Encoded),
}

/// What is to be said about a document that has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "what was left out should be counted"]
pub struct Encoded {
    /// The number of numbers and texts that the format has no place for; only OpenMetrics leaves any out.
    pub skipped: u64,
}

/// A format that writes one document. The calls mean what those of [`crate::DocumentEncoder`] mean.
pub trait Encoder: Send + Sync {
    /// What earlier documents left out. Formats that leave nothing out need not know.
    fn skipped_before(&mut self, _: u64) {}

    fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>);

    fn rows(&mut self, table: &RawTable, rows: Range<usize>, out: &mut Vec<u8>);

    fn end_metric(&mut self, out: &mut Vec<u8>);

    fn finish(&mut self, out: &mut Vec<u8>) -> Progress;
}
