//! The experiments behind docs/benchmarks/: the paper's, ours, and others' programs beside them.
//! They use the released binary by its command line and its HTTP interface only.

mod experiments;
mod frame;
mod scenes;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use twinprobe_tests::measure;

use crate::experiments::EXPERIMENTS;
use crate::frame::document::Document;
use crate::frame::machine::{self, Watch};
use crate::frame::options::Options;

/// The duration of the look at the machine before an experiment.
const LOOK: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(order) = &options.burn {
        return scenes::placebo::burn(order);
    }
    if options.list {
        for experiment in EXPERIMENTS {
            println!("{}", experiment.name);
        }
        return Ok(());
    }
    if let [pin, mode] = &options.aya_consumer[..] {
        return scenes::events::aya::consume(Path::new(pin), mode == "check");
    }
    let bench = options.bench().map_err(anyhow::Error::msg)?;
    // Other work disturbs less: child processes inherit the priority of this process.
    measure::come_first()?;
    let chosen = &options.experiments;
    for name in chosen {
        let known = EXPERIMENTS.iter().any(|experiment| experiment.name == name);
        ensure!(known, "no experiment {name}; see --list");
    }
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks");
    let output: Option<PathBuf> = options.output.or_else(|| (!bench.quick).then_some(default));
    let commit = machine::commit();
    let mut took = Vec::new();
    for experiment in EXPERIMENTS {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == experiment.name) {
            continue;
        }
        eprintln!("{}", experiment.name);
        let started = Instant::now();
        let watch = Watch::begin(if bench.quick { LOOK / 20 } else { LOOK })?;
        let section =
            (experiment.run)(&bench).with_context(|| format!("experiment {}", experiment.name))?;
        let noise = watch.end()?;
        let quick = if bench.quick {
            "**A quick run, whose figures mean little.** "
        } else {
            ""
        };
        let part = if bench.part < 1.0 {
            format!("{:.0} % of the rounds. ", 100.0 * bench.part)
        } else {
            String::new()
        };
        let conditions = format!(
            "{quick}{part}Commit {commit}, {} {noise}",
            machine::describe_machine()?
        );
        match &output {
            Some(directory) => {
                Document { directory }.write(experiment.name, &section, &conditions, &commit)?;
            }
            None => println!("{}", section.markdown(&conditions)),
        }
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("  {seconds:.0} s; {noise}");
        took.push((experiment.name, seconds));
    }
    eprintln!("experiment, seconds:");
    for (name, seconds) in &took {
        eprintln!("  {name:<12}{seconds:>7.0}");
    }
    eprintln!(
        "  {:<12}{:>7.0}",
        "all",
        took.iter().map(|(_, seconds)| seconds).sum::<f64>()
    );
    Ok(())
}
