//! Random sequences of operations on several probes, compared with a model of the expected counts.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use twinprobe_tests::{model, scaled};

/// The first seed of a usual run.
const USUAL_SEED: u64 = 1004;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_is_done_every_packet_is_where_it_belongs() -> Result<()> {
    // A usual run does the same sequences each time, so that a failure is due to a change of the code; a long run
    // searches for new sequences.
    let is_long = env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let seed = number("TWINPROBE_SEED").unwrap_or(if is_long { now } else { USUAL_SEED });
    println!("TWINPROBE_SEED={seed}");
    let seconds = number("TWINPROBE_MODEL_SECONDS").unwrap_or_else(|| scaled(30, 3 * 3600));
    let length = number("TWINPROBE_MODEL_STEPS").unwrap_or(60) as usize;
    let shrinking = number("TWINPROBE_MODEL_SHRINK").unwrap_or(120);
    model::explore(seed, length, Duration::from_secs(seconds), Duration::from_secs(shrinking))
}
