//! What is said of a probe's retained windows: each of them, and all together.

use serde::{Deserialize, Serialize};

/// Retained windows after a certain one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The oldest comes first.
    pub windows: Vec<Entry>,
    /// The number of later windows that went without having been acknowledged.
    pub lost_windows: u64,
}

/// A retained window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub seq: u64,
    /// When the window began, RFC 3339.
    pub start: String,
    /// When the window was closed, RFC 3339.
    pub end: String,
    /// The size of the window's file.
    pub bytes: u64,
}

/// Figures about the windows of one probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// The number of retained windows.
    pub retained: usize,
    /// The size of the windows' files.
    pub bytes: u64,
    /// The number of the oldest retained window.
    pub oldest: Option<u64>,
    /// The number of the newest retained window.
    pub newest: Option<u64>,
    /// The number of windows that ever went without having been acknowledged.
    pub lost: u64,
    /// The number of lost windows whose files were damaged.
    pub damaged: u64,
    /// The number of files that can't be read now, or that a later version has written. Such files stay as they are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unreadable: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_none(count: &usize) -> bool {
    *count == 0
}
