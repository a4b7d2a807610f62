//! The interface of a format that writes documents.

use std::ops::Range;
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
    /// The document is complete.
    Done(Encoded),
}

/// The facts about a document that has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "what was left out should be counted"]
pub struct Encoded {
    /// The number of numbers and texts that the format has no place for; only OpenMetrics leaves any out.
    pub skipped: u64,
}

/// A format that writes one document. The functions have the meaning of those of [`crate::DocumentEncoder`].
pub trait Encoder: Send + Sync {
    /// Sets the number that earlier documents left out. Formats that leave nothing out ignore it.
    fn skipped_before(&mut self, _: u64) {}

    fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>);

    fn rows(&mut self, table: &RawTable, rows: Range<usize>, out: &mut Vec<u8>);

    fn end_metric(&mut self, out: &mut Vec<u8>);

    fn finish(&mut self, out: &mut Vec<u8>) -> Progress;
}
