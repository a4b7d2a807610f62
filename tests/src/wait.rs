//! Waiting for conditions that a daemon or the kernel fulfils after some time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Daemon;

/// The limit of a wait for an event that takes a moment on an idle machine and has no other limit:
/// a test that reaches it would wait forever.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The interval of looks.
const STEP: Duration = Duration::from_millis(5);

/// Calls `look` until it succeeds. The error at the limit has the last reason.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("{what}: not within {limit:?}"));
            }
            Err(_) => thread::sleep(STEP),
        }
    }
}

/// A flag that tells threads to end. It is set on drop, also by a panic, because a scope waits for
/// its threads.
#[derive(Debug)]
pub struct EndOnDrop<'a>(pub &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits until the probe has attachments to `interface`, one per direction, and all are `state`
/// (`attached`, `pending`). Returns the probe's status.
pub fn wait_for_attachment(
    daemon: &Daemon,
    probe: &str,
    interface: &str,
    state: &str,
    limit: Duration,
) -> Result<Value> {
    wait_for(&format!("{probe} {state} at {interface}"), limit, || {
        let status = daemon.json(&format!("/v1/probes/{probe}"));
        let found: Vec<&Value> = attachments(&status, interface);
        if found.is_empty() || found.iter().any(|attachment| attachment["state"] != state) {
            bail!("{}", status["interfaces"]);
        }
        Ok(status)
    })
}

/// Returns the attachments to one interface in a probe's status.
pub fn attachments<'a>(status: &'a Value, interface: &str) -> Vec<&'a Value> {
    let all = status["interfaces"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    all.iter()
        .filter(|attachment| attachment["interface"] == interface)
        .collect()
}
