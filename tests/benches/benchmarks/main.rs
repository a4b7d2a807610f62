//! What twinprobe costs, as ratios and differences paired within one run. Prints Markdown; docs/benchmarks.md keeps
//! a run. Names of sections as arguments choose among them; `TWINPROBE_SCALE` scales the repetitions.

mod deployment;
mod dispatcher;
mod latency;
mod memory;
mod report;

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;
use twinprobe_tests::probes;

type Section = (&'static str, fn() -> Result<()>);

const SECTIONS: [Section; 4] = [
    ("deployment", deployment::run),
    ("dispatcher", dispatcher::run),
    ("memory", memory::run),
    ("latency", latency::run),
];

fn main() -> Result<()> {
    // cargo passes --bench.
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for name in &chosen {
        let names = SECTIONS.map(|(name, _)| name).join(", ");
        ensure!(SECTIONS.iter().any(|(section, _)| section == name), "no section {name}; there are {names}");
    }
    report::machine()?;
    for (name, run) in SECTIONS {
        if chosen.is_empty() || chosen.iter().any(|chosen| chosen == name) {
            let started = Instant::now();
            run()?;
            eprintln!("{name}: {:.0} s", started.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// The configuration of a ready-made probe for mon0, to be put under any name.
fn nameless(probe: &str) -> Result<Value> {
    let mut config = probes::configuration(probe, "mon0")?;
    if let Some(config) = config.as_object_mut() {
        config.remove("name");
    }
    Ok(config)
}
