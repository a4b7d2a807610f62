//! The wall clock, by which slices begin and end.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the nanoseconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

pub fn sleep_until(wall: u64) {
    thread::sleep(Duration::from_nanos(wall.saturating_sub(now())));
}
