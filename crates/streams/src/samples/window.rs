//! The facts that samples state about their window.

use super::document::SampleFamily;
use crate::receiver::ItemName;
use crate::rows::cell::nanoseconds;

/// The family with the length of each window, by which a sum becomes a rate.
pub const WINDOW_SECONDS: &str = "twinprobe_window_seconds";
/// The family with the number of each window. If the numbers have a gap, windows are missing.
pub const WINDOW_SEQ: &str = "twinprobe_window_seq";
/// A family about the document itself.
const ABOUT_DOCUMENT: &str = "twinprobe_export_skipped";

/// Tells whether a family describes the window.
pub fn is_of_window(family: &SampleFamily<'_>) -> bool {
    family.name != ABOUT_DOCUMENT
}

/// Returns the start and the end of a window, in nanoseconds since 1970.
pub fn times(name: &ItemName) -> [i64; 2] {
    [&name.start, &name.end].map(|text| nanoseconds(text).unwrap_or_default())
}
