//! The limits of retained windows, and the reasons why a window is missing or can't be
//! acknowledged.

use std::io;

/// The limits of retained windows, and the named collectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// The largest number of windows; the newest stays in any case.
    pub retain: usize,
    /// The largest size of all retained windows together, in bytes.
    pub bytes: u64,
    /// The names of the collectors. A window is removed only after all of them have acknowledged
    /// it.
    pub collectors: Vec<String>,
    /// The treatment of a window that is removed after its client has received all of it: true if
    /// the window counts as served, false if it counts as lost.
    pub taken_counts: bool,
}

impl Default for RetentionLimits {
    /// No limits.
    fn default() -> Self {
        Self {
            retain: usize::MAX,
            bytes: u64::MAX,
            collectors: Vec::new(),
            taken_counts: false,
        }
    }
}

/// The bounds of a list of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListBounds {
    /// The most windows in the list.
    pub windows: usize,
    /// The most bytes of these windows in the store; the first window may have more.
    pub bytes: u64,
}

impl Default for ListBounds {
    /// No bounds.
    fn default() -> Self {
        Self {
            windows: usize::MAX,
            bytes: u64::MAX,
        }
    }
}

/// The reason why a window is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("this window never existed")]
    Never,
    #[error("the window was acknowledged")]
    Acknowledged,
    /// The window was removed while the configuration named no collector that could miss it.
    #[error("the window is not retained any more: there were too many, or they were too large")]
    Outlived,
    #[error("the window was lost: before its acknowledgement, it was removed or damaged")]
    Lost,
}

/// The reason why an acknowledgement fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    #[error("the newest window is {newest}")]
    Beyond { newest: u64 },
    #[error("no collector is called {0}")]
    UnknownCollector(String),
    /// The acknowledgement could not be written, so that no window is acknowledged.
    #[error("it could not be stored: {0}")]
    NotWritten(io::ErrorKind),
}

/// The number of damaged windows that are kept for people to examine.
pub const DAMAGED_WINDOWS: usize = 8;
