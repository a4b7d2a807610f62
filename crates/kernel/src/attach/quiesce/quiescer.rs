//! The grace period after a flip: the wait until no CPU can still run a program of the idle twin.
//!
//! The paper (Algorithms 1 to 3) reads the idle twin straight after the swap, while other CPUs may
//! still be inside it; updates are then lost or counted in the wrong window. There are several
//! methods to wait, one file each. The daemon tries all of them when it starts, and uses the first
//! that is valid on the machine. A new method needs a file, a variant of [`QuiesceMethod`], and a
//! case in [`prepare`].
//!
//! A real-time task that occupies a CPU delays a method as long as the kernel allows. So each
//! method has a [worker] of its own, and a caller that has waited for [`PATIENCE`] asks the next
//! method as well: the first method to finish serves the caller. After [`LIMIT`] the caller gets an
//! error, and nothing is read.

#[cfg(test)]
mod tests;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::attach::quiesce::map_in_map::MapInMap;
use crate::attach::quiesce::method::{MethodReport, PATIENCE, QuiesceMethod, Way};
use crate::attach::quiesce::worker::Workers;
use crate::attach::quiesce::{membarrier, sweep};

/// The longest time that a caller waits, over all methods.
const LIMIT: Duration = Duration::from_secs(5);

/// A method, and the result of its trial.
type Trial = (QuiesceMethod, io::Result<Way>);

/// Waits for grace periods on its own threads, because a sweep moves its thread to other CPUs.
#[derive(Debug)]
pub struct Quiescer {
    pub workers: Arc<Workers>,
    /// True for [`QuiesceMethod::None`]: windows may be torn.
    never_waits: bool,
}

/// Returns the function of the method, if the method is valid here.
fn prepare(method: QuiesceMethod) -> io::Result<Way> {
    Ok(match method {
        QuiesceMethod::Sweep => sweep::prepare().map(|()| Arc::new(sweep::wait))?,
        QuiesceMethod::Membarrier => {
            membarrier::prepare().map(|()| Arc::new(|_| membarrier::wait()))?
        }
        QuiesceMethod::MapInMap => MapInMap::prepare().map(|map| Arc::new(move |_| map.wait()))?,
        QuiesceMethod::Auto | QuiesceMethod::None => return Err(io::ErrorKind::Unsupported.into()),
    })
}

/// Tries each method. A valid method that takes longer than [`PATIENCE`] counts as available,
/// because it is only delayed.
fn try_all() -> Vec<Trial> {
    // The trials run side by side: two of them take milliseconds.
    let begun = QuiesceMethod::ALL.map(|method| {
        let (sender, result) = mpsc::channel();
        let trial = prepare(method).and_then(|way| {
            let trial = Arc::clone(&way);
            let wait = move || drop(sender.send(trial(None)));
            thread::Builder::new()
                .name("quiesce-trial".into())
                .spawn(wait)
                .map(|_| way)
        });
        (method, trial, result)
    });
    let deadline = Instant::now() + PATIENCE;
    let end = |(method, trial, result): (_, io::Result<Way>, mpsc::Receiver<io::Result<()>>)| {
        let left = deadline.saturating_duration_since(Instant::now());
        let trial = trial.and_then(|way| result.recv_timeout(left).unwrap_or(Ok(())).map(|()| way));
        (method, trial)
    };
    begun.map(end).into()
}

impl Quiescer {
    /// Tries all methods and starts their workers. Fails if `wanted` is not possible on this
    /// machine, with the reason.
    pub fn start(wanted: QuiesceMethod) -> io::Result<Self> {
        Self::with(wanted, try_all())
    }

    fn with(wanted: QuiesceMethod, trials: Vec<Trial>) -> io::Result<Self> {
        let report = |(method, way): &Trial| {
            MethodReport::new(*method, way.as_ref().err().map(ToString::to_string))
        };
        let reports = trials.iter().map(report).collect();
        let workers = Workers::start(choose(wanted, trials)?, reports)?;
        Ok(Self {
            workers,
            never_waits: wanted == QuiesceMethod::None,
        })
    }

    /// Returns once every program run that began before the call has ended. The result is the
    /// duration of the wait. An error, after [`LIMIT`] at the latest, means that programs may still
    /// run.
    pub fn quiesce(&self) -> io::Result<Duration> {
        if self.never_waits {
            // Waking a thread would already be a grace period for most programs.
            return Ok(Duration::ZERO);
        }
        let started = Instant::now();
        self.workers.wait(started + LIMIT)?;
        Ok(started.elapsed())
    }
}

impl Drop for Quiescer {
    fn drop(&mut self) {
        self.workers.end();
    }
}

/// Returns the method to use, followed by the methods that replace it after a failure.
fn choose(wanted: QuiesceMethod, trials: Vec<Trial>) -> io::Result<Vec<(QuiesceMethod, Way)>> {
    let mut ways = Vec::new();
    let mut missing = Vec::new();
    for (method, way) in trials {
        match way {
            Ok(way) => ways.push((method, way)),
            Err(error) => missing.push((method, error)),
        }
    }
    match wanted {
        QuiesceMethod::None => ways.clear(),
        QuiesceMethod::Auto if ways.is_empty() => {
            let reasons = missing
                .iter()
                .map(|(method, error)| format!("{}: {error}", method.name()));
            let reasons = reasons.collect::<Vec<_>>().join("; ");
            return Err(io::Error::other(format!(
                "there is no way to wait for a grace period: {reasons}"
            )));
        }
        QuiesceMethod::Auto => {}
        forced => {
            if let Some((_, error)) = missing.iter().find(|(method, _)| *method == forced) {
                let names = ways
                    .iter()
                    .map(|(method, _)| method.name())
                    .collect::<Vec<_>>()
                    .join(", ");
                let available = if names.is_empty() {
                    "none".to_owned()
                } else {
                    names
                };
                let name = forced.name();
                return Err(io::Error::other(format!(
                    "--quiesce {name} is not possible here: {error}; available: {available}"
                )));
            }
            let before = ways
                .iter()
                .take_while(|(method, _)| *method != forced)
                .count();
            drop(ways.drain(..before));
        }
    }
    Ok(ways)
}
