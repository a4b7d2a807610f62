//! Random sequences of operations on several probes, against a model that knows what must be counted.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use twinprobe_tests::{model, scaled};

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_is_done_every_packet_is_where_it_belongs() -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let seed = number("TWINPROBE_SEED").unwrap_or(now);
    println!("TWINPROBE_SEED={seed}");
    let seconds = number("TWINPROBE_MODEL_SECONDS").unwrap_or_else(|| scaled(120, 3 * 3600));
    let length = number("TWINPROBE_MODEL_STEPS").unwrap_or(60) as usize;
    let shrinking = number("TWINPROBE_MODEL_SHRINK").unwrap_or(120);
    model::explore(seed, length, Duration::from_secs(seconds), Duration::from_secs(shrinking))
}
