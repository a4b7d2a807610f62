//! The state of an attachment.

use jiff::Timestamp;

/// The state of an attachment, and the repairs that this daemon has made.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The mode of the attachment; `None` if nothing is attached.
    pub mode: Option<&'static str>,
    /// The reason why nothing is attached, and since when.
    pub failure: Option<(String, Timestamp)>,
    /// The reason why XDP is attached in generic mode, if a change of the program would allow
    /// native mode.
    pub fallback: Option<String>,
    /// The number of times that the daemon has attached its program again, after somebody had
    /// removed or replaced it, and the time of the last repair.
    pub repairs: u64,
    pub repaired: Option<Timestamp>,
}
