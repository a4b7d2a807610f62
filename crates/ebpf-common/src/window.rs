//! The window of snapshot metrics, and figures about a probe's retained windows.

pub mod owner;
pub mod shape;

use serde::{Deserialize, Serialize};

/// The time between two flips; `start` and `end` are RFC 3339, by the wall clock. If the clock was set back to a time
/// before the start, `start` is by the clock's setting at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The number of the window; the first window of a probe has 1.
    pub seq: u64,
    /// The time at which the programs began to count into the window.
    pub start: String,
    /// The time at which the flip took the window's twin out of use.
    pub end: String,
    /// Nanoseconds of real time (by the boot clock), even if the wall clock was set. Windows of
    /// earlier versions lack it.
    #[serde(default)]
    pub duration_ns: Option<u64>,
    /// Nanoseconds by which the wall clock was set in between: forward, or back if negative.
    #[serde(default)]
    pub clock_step_ns: Option<i64>,
    /// Microseconds from the flip until no program was left in the idle twin.
    pub quiesce_us: u64,
    /// Lost windows (see [`WindowStatistics::lost`]) that no window before has reported.
    pub lost_windows: u64,
}

/// Retained windows after a certain one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The name of the machine that the probe runs on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: String,
    /// The id of the probe since its creation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub instance: String,
    /// The number before the list's beginning: the number in the request, or the last one that its collector
    /// has acknowledged.
    #[serde(default)]
    pub after: u64,
    /// The oldest comes first.
    pub windows: Vec<WindowEntry>,
    /// The number of later windows that were lost: see [`WindowStatistics::lost`].
    pub lost_windows: u64,
    /// The place of the lost windows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost: Vec<LostRange>,
}

/// Lost windows without another window of the list between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    pub first: u64,
    pub last: u64,
    /// The number of lost windows. It is less than `last - first + 1` if the range is so old that it was merged with
    /// others.
    pub windows: u64,
}

/// A retained window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowEntry {
    pub seq: u64,
    /// The start of the window, RFC 3339.
    pub start: String,
    /// The end of the window, RFC 3339.
    pub end: String,
    /// The size of the window's file.
    pub bytes: u64,
}

/// Figures about the windows of one probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStatistics {
    /// The number of retained windows.
    pub retained: usize,
    /// The size of the windows' files.
    pub bytes: u64,
    /// The number of the oldest retained window.
    pub oldest: Option<u64>,
    /// The number of the newest retained window.
    pub newest: Option<u64>,
    /// The number of lost windows so far: removed before all collectors of the configuration had acknowledged them, or
    /// damaged. If the configuration names no collectors, removed windows are not lost.
    pub lost: u64,
    /// The number of lost windows whose files were damaged.
    pub damaged: u64,
    /// The number of files that can't be read now, or that a later version has written. Such files stay
    /// unchanged.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unreadable: usize,
}

/// Tells whether a field has its default, and so needs no storage.
pub fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_earlier_versions_are_read() {
        let stored = r#"{"seq":3,"start":"a","end":"b","quiesce_us":71,"lost_windows":1}"#;
        let window: Window = serde_json::from_str(stored).unwrap();
        assert_eq!((window.seq, window.duration_ns, window.clock_step_ns), (3, None, None));
        assert!(serde_json::from_str::<Window>(r#"{"seq":3}"#).is_err(), "nothing else may be missing");
    }
}
