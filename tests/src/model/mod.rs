//! The model test: random operations on a daemon, and a model of their required results.

mod beside;
mod document;
mod ledger;
mod links;
mod plan;
mod power;
mod probe;
mod reboot;
mod sender;
mod spec;
mod status;
mod steps;
mod time;
mod world;

use anyhow::{Context, Result};

use self::plan::Step;
use self::world::World;
use crate::DaemonOptions;
use crate::explore::{self, Limits, tell, without};

/// Does the steps one after the other with a new daemon. `done` becomes the number of steps begun.
fn run(seed: u64, steps: &[Step], done: &mut usize) -> Result<()> {
    let method = if seed.is_multiple_of(3) {
        "clsact"
    } else {
        "auto"
    };
    let mut world = World::new(
        DaemonOptions::default()
            .argument("--tc-attach")
            .argument(method),
        seed % 5 == 4,
    )?;
    for (number, step) in steps.iter().enumerate() {
        if world.is_exhausted() {
            break;
        }
        *done = number + 1;
        let result =
            steps::execute(&mut world, step).with_context(|| format!("step {number}, {step}"));
        if result.is_err()
            && let Some(daemon) = &world.daemon
            && std::env::var_os("TWINPROBE_MODEL_LOG").is_some()
        {
            println!("--- log of the daemon ---\n{}---", daemon.log());
        }
        result?;
    }
    steps::end(&mut world).context("at the end")
}

fn plan(seed: u64, length: usize) -> Vec<Step> {
    let mut steps = plan::plan(seed, length);
    // The environment can exclude steps with known failures.
    let names = plan::NAMES
        .into_iter()
        .filter(|name| without(name))
        .collect::<Vec<_>>();
    steps.retain(|step| !names.iter().any(|name| step.to_string().contains(name)));
    steps
}

/// Runs lists of random steps.
///
/// # Errors
/// The error of the first list that failed, with the shortest failing list that was found.
pub fn explore(limits: &Limits) -> Result<()> {
    explore::explore(limits, plan, run)
}
