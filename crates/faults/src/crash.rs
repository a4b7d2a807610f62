//! Ends the process, fails or waits at a given step, for tests of the state after such an event.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The variable that names the step at which the process ends: `STEP`, or `STEP:N` for the N-th
/// time it is reached.
const DIE: &str = "TWINPROBE_CRASH_AT";
/// The variable that names the step that fails, once, in the format of [`DIE`].
const FAIL: &str = "TWINPROBE_FAIL_AT";
/// The variable that names steps to wait at: `STEP=FILE,...`, each until its file exists.
const WAIT: &str = "TWINPROBE_WAIT_AT";
/// The longest wait, because a test that was killed must not stop a daemon forever.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Ends this process if a test wants its end at `step`.
pub fn point(step: &str) {
    static AT: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();
    if is_reached(&AT, DIE, step) {
        // An abort runs no destructor, as a SIGKILL would.
        std::process::abort();
    }
}

/// Returns an I/O error if a test wants `step` to fail.
pub fn fault(step: &str) -> io::Result<()> {
    static AT: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();
    if is_reached(&AT, FAIL, step) {
        return Err(io::Error::other(format!("{step} was to fail for a test")));
    }
    Ok(())
}

/// Waits if `step` has a file for that. Blocks the thread.
pub fn pause(step: &str) {
    static AT: OnceLock<Vec<(String, PathBuf)>> = OnceLock::new();
    let at = AT.get_or_init(|| {
        let value = std::env::var(WAIT).unwrap_or_default();
        let parts = value.split(',').filter_map(|part| part.split_once('='));
        parts
            .map(|(step, file)| (step.to_owned(), Path::new(file).to_owned()))
            .collect()
    });
    if let Some((_, file)) = at.iter().find(|(wanted, _)| wanted == step) {
        tracing::info!(step, "waits for a test");
        let limit = Instant::now() + LONGEST_WAIT;
        while !file.exists() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn is_reached(at: &OnceLock<Option<(String, AtomicU32)>>, variable: &str, step: &str) -> bool {
    let at = at.get_or_init(|| {
        let value = std::env::var(variable).ok()?;
        let (step, times) = value.split_once(':').unwrap_or((&value, "1"));
        Some((step.to_owned(), AtomicU32::new(times.parse().ok()?)))
    });
    at.as_ref()
        .is_some_and(|(wanted, times)| wanted == step && times.fetch_sub(1, Ordering::Relaxed) == 1)
}
