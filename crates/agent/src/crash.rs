//! Dies at a certain step, for the tests of what a crash there leaves.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// `STEP` or `STEP:N`, the N-th time it is reached.
const VARIABLE: &str = "TWINPROBE_CRASH_AT";

/// The end of this process, if it is to end at `step`.
pub fn point(step: &str) {
    static AT: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();
    let at = AT.get_or_init(|| {
        let value = std::env::var(VARIABLE).ok()?;
        let (step, times) = value.split_once(':').unwrap_or((&value, "1"));
        Some((step.to_owned(), AtomicU32::new(times.parse().ok()?)))
    });
    if let Some((wanted, times)) = at
        && wanted == step
        && times.fetch_sub(1, Ordering::Relaxed) == 1
    {
        // As a signal would: nothing is cleaned up.
        std::process::abort();
    }
}
