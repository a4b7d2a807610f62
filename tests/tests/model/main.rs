//! Random sequences of operations on several probes, against a model that knows what must be counted.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use twinprobe_tests::{model, scaled};

/// The first seed of the usual run.
const USUAL_SEED: u64 = 1004;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_is_done_every_packet_is_where_it_belongs() -> Result<()> {
    // The usual run does the same sequences each time, so that a failure is about what was changed; a long one looks
    // for sequences that nobody has tried.
    let is_long = env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let seed = number("TWINPROBE_SEED").unwrap_or(if is_long { now } else { USUAL_SEED });
    println!("TWINPROBE_SEED={seed}");
    let seconds = number("TWINPROBE_MODEL_SECONDS").unwrap_or_else(|| scaled(120, 3 * 3600));
    let length = number("TWINPROBE_MODEL_STEPS").unwrap_or(60) as usize;
    let shrinking = number("TWINPROBE_MODEL_SHRINK").unwrap_or(120);
    model::explore(seed, length, Duration::from_secs(seconds), Duration::from_secs(shrinking))
}
