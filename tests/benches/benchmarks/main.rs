//! Benchmarks of twinprobe's costs, as ratios and differences paired within one run. Prints Markdown;
//! docs/benchmarks.md keeps a run. Arguments choose sections by name; `TWINPROBE_SCALE` scales the repetitions.

mod cost;
mod deployment;
mod dispatcher;
mod latency;
mod memory;

use anyhow::Result;
use serde_json::Value;
use twinprobe_tests::{probes, report};

fn main() -> Result<()> {
    report::run(&[
        ("deployment", deployment::run),
        ("dispatcher", dispatcher::run),
        ("memory", memory::run),
        ("latency", latency::run),
        ("cost", cost::run),
    ])
}

/// Returns the configuration of a ready-made probe for mon0 without its name, to be put under any name.
fn nameless(probe: &str) -> Result<Value> {
    let mut config = probes::configuration(probe, "mon0")?;
    if let Some(config) = config.as_object_mut() {
        config.remove("name");
    }
    Ok(config)
}
