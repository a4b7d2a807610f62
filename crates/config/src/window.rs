//! The settings of a probe's windows.

use std::time::Duration;

/// The schedule on which windows are closed without a request, and the limits of their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    pub schedule: Option<Schedule>,
    /// The largest number of windows without an acknowledgement; beyond it the oldest window is dropped.
    pub retain: usize,
    /// The limit of retained windows in bytes on disk.
    pub retain_bytes: u64,
    /// The collectors that must acknowledge a window; if empty, any client can acknowledge it.
    pub collectors: Vec<String>,
}

/// The schedule of windows that are closed by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub interval: Duration,
    /// True if windows end at multiples of the interval since the Unix epoch; otherwise the interval counts from the
    /// start of the first window.
    pub align: bool,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self { schedule: None, retain: 32, retain_bytes: 256 << 20, collectors: Vec::new() }
    }
}
