//! Lists of random steps, which run until a step fails, and the search for the shortest list that
//! also fails.

use std::env;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};

/// The time to explore.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The seed of the first list; the others follow.
    pub seed: u64,
    /// The number of steps of a list.
    pub steps: usize,
    pub duration: Duration,
    pub shrinking: Duration,
}

impl Limits {
    /// Returns limits as the environment says (`TWINPROBE_SEED`, `TWINPROBE_MODEL_STEPS`, ...),
    /// else the usual ones.
    ///
    /// A usual run does the same lists each time, so that a failure is due to a change of the code;
    /// a long run searches for new ones.
    pub fn from_environment(usual_seed: u64, steps: usize, seconds: u64) -> Self {
        let is_long = env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |time| time.as_secs());
        let seed = number("TWINPROBE_SEED").unwrap_or(if is_long { now } else { usual_seed });
        println!("TWINPROBE_SEED={seed}");
        Self {
            seed,
            steps: number("TWINPROBE_MODEL_STEPS").map_or(steps, |steps| steps as usize),
            duration: Duration::from_secs(number("TWINPROBE_MODEL_SECONDS").unwrap_or(seconds)),
            shrinking: Duration::from_secs(number("TWINPROBE_MODEL_SHRINK").unwrap_or(120)),
        }
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Prints a message if `TWINPROBE_MODEL_VERBOSE` is set.
pub fn tell(what: impl FnOnce() -> String) {
    if env::var_os("TWINPROBE_MODEL_VERBOSE").is_some() {
        println!("{}", what());
    }
}

/// Tells whether `TWINPROBE_MODEL_WITHOUT`, a list with commas, has this name.
pub fn without(name: &str) -> bool {
    env::var("TWINPROBE_MODEL_WITHOUT")
        .is_ok_and(|names| names.split(',').any(|other| other == name))
}

/// The failure of a list of steps.
#[derive(Debug)]
struct Failure {
    /// The number of steps that were done, the failed one included.
    done: usize,
    error: anyhow::Error,
}

/// Does lists of steps until the time is over, at least one. `plan` makes the list of a seed and a
/// length; `run` does it and notes the number of steps that it has begun.
///
/// # Errors
/// The error of the first list that failed, with the shortest failing list that was found.
pub fn explore<S: Clone + Display>(
    limits: &Limits,
    plan: impl Fn(u64, usize) -> Vec<S>,
    run: impl Fn(u64, &[S], &mut usize) -> Result<()>,
) -> Result<()> {
    let started = Instant::now();
    let mut seed = limits.seed;
    loop {
        let steps = plan(seed, limits.steps);
        let began = Instant::now();
        if let Err(Failure { done, error }) = attempt(&run, seed, &steps) {
            println!("TWINPROBE_SEED={seed}: {error:#}");
            let (shortest, again) = shrink(&run, seed, &steps[..done], limits.shrinking);
            let list: String = shortest.iter().map(|step| format!("\n  {step}")).collect();
            // The summary of a run shows only the first lines: the reasons come before the list.
            let again = again
                .map(|error| format!("the list below fails by: {error:#}\n"))
                .unwrap_or_default();
            bail!("TWINPROBE_SEED={seed}, step {done}: {error:#}\n{again}shortest list:{list}");
        }
        println!(
            "seed {seed}: {} steps in {:?}",
            steps.len(),
            began.elapsed()
        );
        if started.elapsed() >= limits.duration {
            return Ok(());
        }
        seed += 1;
    }
}

/// Does the steps; a panic is also a failure.
fn attempt<S>(
    run: impl Fn(u64, &[S], &mut usize) -> Result<()>,
    seed: u64,
    steps: &[S],
) -> Result<(), Failure> {
    let mut done = 0;
    let error = match catch_unwind(AssertUnwindSafe(|| run(seed, steps, &mut done))) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            anyhow!("panic: {}", text.unwrap_or_default())
        }
    };
    Err(Failure { done, error })
}

/// Searches for a shorter list that also fails, until `limit` has passed.
fn shrink<S: Clone>(
    run: impl Fn(u64, &[S], &mut usize) -> Result<()>,
    seed: u64,
    steps: &[S],
    limit: Duration,
) -> (Vec<S>, Option<anyhow::Error>) {
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
            match attempt(&run, seed, &fewer) {
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
