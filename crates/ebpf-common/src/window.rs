//! The window that snapshot metrics belong to.

use serde::{Deserialize, Serialize};

/// The time between two flips; `start` and `end` are RFC 3339, by the wall clock. If the clock was set back behind the
/// start, `start` is by the clock as it was at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The number of the window; the first window of a probe has 1.
    pub seq: u64,
    /// When the programs began to count into the window.
    pub start: String,
    /// When the flip took the window's twin out of use.
    pub end: String,
    /// Nanoseconds that have really passed (by the boot clock), whatever was done to the wall clock. Windows of
    /// earlier versions lack it.
    #[serde(default)]
    pub duration_ns: Option<u64>,
    /// Nanoseconds by which the wall clock was set in between: forward, or back if negative.
    #[serde(default)]
    pub clock_step_ns: Option<i64>,
    /// Microseconds from the flip until no program was left in the idle twin.
    pub quiesce_us: u64,
    /// Windows that went without having been acknowledged, and that no window before has reported.
    pub lost_windows: u64,
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
