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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use self::plan::Step;
use self::world::World;
use crate::DaemonOptions;

/// Prints a message if `TWINPROBE_MODEL_VERBOSE` is set.
fn tell(what: impl FnOnce() -> String) {
    if std::env::var_os("TWINPROBE_MODEL_VERBOSE").is_some() {
        println!("{}", what());
    }
}

/// Tells whether `TWINPROBE_MODEL_WITHOUT`, a list with commas, has this name.
fn without(name: &str) -> bool {
    std::env::var("TWINPROBE_MODEL_WITHOUT").is_ok_and(|names| names.split(',').any(|other| other == name))
}

/// The failure of a list of steps.
#[derive(Debug)]
pub struct Failure {
    /// The number of steps that were done, the failed one included.
    pub done: usize,
    pub error: anyhow::Error,
}

/// Does the steps one after the other with a new daemon.
pub fn run(seed: u64, steps: &[Step]) -> Result<(), Failure> {
    let mut done = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| -> Result<()> {
        let method = if seed.is_multiple_of(3) { "clsact" } else { "auto" };
        let mut world =
            World::new(DaemonOptions::default().argument("--tc-attach").argument(method), seed % 5 == 4)?;
        for (number, step) in steps.iter().enumerate() {
            if world.is_exhausted() {
                break;
            }
            done = number + 1;
            let result = steps::execute(&mut world, step).with_context(|| format!("step {number}, {step}"));
            if result.is_err()
                && let Some(daemon) = &world.daemon
                && std::env::var_os("TWINPROBE_MODEL_LOG").is_some()
            {
                println!("--- log of the daemon ---\n{}---", daemon.log());
            }
            result?;
        }
        steps::end(&mut world).context("at the end")
    }));
    let error = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            anyhow!(
                "panic: {}",
                text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned())).unwrap_or_default()
            )
        }
    };
    Err(Failure { done, error })
}

/// Searches for a shorter list that fails, too, until `limit` has passed.
fn shrink(seed: u64, steps: &[Step], limit: Duration) -> (Vec<Step>, Option<anyhow::Error>) {
    let started = Instant::now();
    let mut best = steps.to_vec();
    let mut error = None;
    let mut piece = best.len() / 2;
    while piece > 0 && started.elapsed() < limit {
        let mut from = 0;
        while from < best.len() && started.elapsed() < limit {
            let to = (from + piece).min(best.len());
            let mut fewer = best[..from].to_vec();
            fewer.extend_from_slice(&best[to..]);
            match run(seed, &fewer) {
                Err(failure) => {
                    fewer.truncate(failure.done);
                    (best, error) = (fewer, Some(failure.error));
                }
                Ok(()) => from = to,
            }
        }
        piece /= 2;
    }
    (best, error)
}

/// Runs lists of `length` random steps until `duration` has passed, at least one list. The first one has this seed.
///
/// # Errors
/// The error of the first list that failed, with the shortest failing list that was found within `shrinking`.
pub fn explore(seed: u64, length: usize, duration: Duration, shrinking: Duration) -> Result<()> {
    let started = Instant::now();
    let mut seed = seed;
    loop {
        let mut steps = plan::plan(seed, length);
        // Steps can be left out, to search for other failures than the known ones.
        let names = plan::NAMES.into_iter().filter(|name| without(name)).collect::<Vec<_>>();
        steps.retain(|step| !names.iter().any(|name| step.to_string().contains(name)));
        let began = Instant::now();
        if let Err(Failure { done, error }) = run(seed, &steps) {
            println!("TWINPROBE_SEED={seed}: {error:#}");
            let (shortest, again) = shrink(seed, &steps[..done], shrinking);
            let list: String = shortest.iter().map(|step| format!("  {step}\n")).collect();
            let again = again.map(|error| format!("\nwhich fails by: {error:#}")).unwrap_or_default();
            return Err(
                error.context(format!("TWINPROBE_SEED={seed}, {done} steps, shortest list:\n{list}{again}"))
            );
        }
        println!("seed {seed}: {length} steps in {:?}", began.elapsed());
        if started.elapsed() >= duration {
            return Ok(());
        }
        seed += 1;
    }
}
