//! The grace period after a flip: wait until no CPU can still run a program of the twin that was left.
//!
//! The paper reads the idle twin straight after the swap, while other CPUs may still be inside it; updates
//! are then lost or counted in the wrong window. There are several ways to wait, one file each. Which of them are valid
//! here is found by trying when the daemon starts, and the first of those is used. To add one: a file, and a variant
//! of [`QuiesceMethod`] and of [`Way`].

mod cpus;
mod map_in_map;
mod membarrier;
mod sweep;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use serde::Serialize;

pub use self::cpus::{online_cpus, possible_cpus, run_on};
use self::map_in_map::MapInMap;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum QuiesceMethod {
    /// The first of the following that is valid here.
    Auto,
    /// One thread runs on every CPU in turn.
    Sweep,
    /// `membarrier(MEMBARRIER_CMD_GLOBAL)`.
    Membarrier,
    /// The update of a map of maps.
    MapInMap,
    /// Do not wait: windows are torn. Only for the test that shows it.
    #[value(hide = true)]
    None,
}

/// Whether a method can be used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MethodReport {
    name: String,
    available: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Waits for grace periods on a thread of its own, since the sweep moves the thread that does it.
#[derive(Debug)]
pub struct Quiescer {
    requests: mpsc::Sender<mpsc::SyncSender<io::Result<()>>>,
    status: Arc<Mutex<Status>>,
    /// Windows may be torn.
    never_waits: bool,
}

#[derive(Debug)]
struct Status {
    in_use: QuiesceMethod,
    methods: Vec<MethodReport>,
}

/// A method that was tried and works.
#[derive(Debug)]
enum Way {
    Sweep,
    Membarrier,
    MapInMap(MapInMap),
}

type Trial = (QuiesceMethod, io::Result<Way>);

impl QuiesceMethod {
    /// In the order of preference.
    const ALL: [Self; 3] = [Self::Sweep, Self::Membarrier, Self::MapInMap];

    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl MethodReport {
    fn new(method: QuiesceMethod, failure: Option<&io::Error>) -> Self {
        let reason = failure.map(ToString::to_string);
        Self { name: method.name(), available: reason.is_none(), reason }
    }
}

impl Way {
    fn prepare(method: QuiesceMethod) -> io::Result<Self> {
        match method {
            QuiesceMethod::Sweep => sweep::prepare().map(|()| Self::Sweep),
            QuiesceMethod::Membarrier => membarrier::prepare().map(|()| Self::Membarrier),
            QuiesceMethod::MapInMap => MapInMap::prepare().map(Self::MapInMap),
            QuiesceMethod::Auto | QuiesceMethod::None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn wait(&self) -> io::Result<()> {
        match self {
            Self::Sweep => sweep::wait(),
            Self::Membarrier => membarrier::wait(),
            Self::MapInMap(map) => map.wait(),
        }
    }
}

impl Quiescer {
    /// An error says why `wanted` is not possible here.
    pub fn start(wanted: QuiesceMethod) -> io::Result<Self> {
        // Side by side: two of them take milliseconds.
        let trials = thread::scope(|scope| {
            let trials = QuiesceMethod::ALL.map(|method| (method, scope.spawn(move || Way::prepare(method))));
            trials.map(|(method, trial)| {
                (method, trial.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        });
        Self::with(wanted, trials.into())
    }

    fn with(wanted: QuiesceMethod, trials: Vec<Trial>) -> io::Result<Self> {
        let methods =
            trials.iter().map(|(method, way)| MethodReport::new(*method, way.as_ref().err())).collect();
        let ways = choose(wanted, trials)?;
        let in_use = ways.first().map_or(QuiesceMethod::None, |(method, _)| *method);
        let status = Arc::new(Mutex::new(Status { in_use, methods }));
        let (requests, inbox) = mpsc::channel();
        let thread = thread::Builder::new().name("quiesce".into());
        let of_thread = Arc::clone(&status);
        thread.spawn(move || serve(&inbox, &ways, &of_thread))?;
        Ok(Self { requests, status, never_waits: wanted == QuiesceMethod::None })
    }

    /// The one in use.
    pub fn method(&self) -> QuiesceMethod {
        lock(&self.status).in_use
    }

    /// All of them, in the order of preference.
    pub fn methods(&self) -> Vec<MethodReport> {
        lock(&self.status).methods.clone()
    }

    /// Returns once every program run that began before the call has ended, with the time that took.
    pub fn quiesce(&self) -> io::Result<Duration> {
        if self.never_waits {
            // Not even the time it takes to wake the thread, which would be a grace period for most programs.
            return Ok(Duration::ZERO);
        }
        let started = Instant::now();
        let (reply, done) = mpsc::sync_channel(1);
        let gone = || io::Error::other("the quiesce thread has ended");
        self.requests.send(reply).map_err(|_| gone())?;
        done.recv().map_err(|_| gone())??;
        Ok(started.elapsed())
    }
}

fn lock(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one to use, and those to use when it fails, in this order.
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
            let reasons = missing.iter().map(|(method, error)| format!("{}: {error}", method.name()));
            let reasons = reasons.collect::<Vec<_>>().join("; ");
            return Err(io::Error::other(format!("there is no way to wait for a grace period: {reasons}")));
        }
        QuiesceMethod::Auto => {}
        forced => {
            if let Some((_, error)) = missing.iter().find(|(method, _)| *method == forced) {
                let names = ways.iter().map(|(method, _)| method.name()).collect::<Vec<_>>().join(", ");
                let available = if names.is_empty() { "none".to_owned() } else { names };
                let name = forced.name();
                return Err(io::Error::other(format!(
                    "--quiesce {name} is not possible here: {error}; available: {available}"
                )));
            }
            let before = ways.iter().take_while(|(method, _)| *method != forced).count();
            drop(ways.drain(..before));
        }
    }
    Ok(ways)
}

/// Until nobody can ask any more.
fn serve(
    inbox: &mpsc::Receiver<mpsc::SyncSender<io::Result<()>>>,
    ways: &[(QuiesceMethod, Way)],
    status: &Mutex<Status>,
) {
    let mut last = 0;
    while let Ok(reply) = inbox.recv() {
        // One grace period serves everybody who asked before it began.
        let waiting: Vec<_> = std::iter::once(reply).chain(inbox.try_iter()).collect();
        let (result, used) = wait(ways, status);
        if let (Ok(()), Some((method, _))) = (&result, ways.get(used))
            && used != last
        {
            last = used;
            tracing::warn!(?method, "grace periods are waited for in another way");
            let mut status = lock(status);
            status.in_use = *method;
            // What failed once may work again.
            report(&mut status, *method, None);
        }
        for reply in waiting {
            let result = match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(copy_of(error)),
            };
            // A caller that has gone needs no answer.
            let _ = reply.send(result);
        }
    }
}

/// By the first that works. Says which that was.
fn wait(ways: &[(QuiesceMethod, Way)], status: &Mutex<Status>) -> (io::Result<()>, usize) {
    let mut failure = io::Error::other("there is no way to wait for a grace period");
    for (place, (method, way)) in ways.iter().enumerate() {
        match way.wait() {
            Ok(()) => return (Ok(()), place),
            Err(error) => {
                report(&mut lock(status), *method, Some(&error));
                failure = error;
            }
        }
    }
    (Err(failure), ways.len())
}

fn report(status: &mut Status, method: QuiesceMethod, failure: Option<&io::Error>) {
    let report = MethodReport::new(method, failure);
    if let Some(old) = status.methods.iter_mut().find(|old| old.name == report.name) {
        *old = report;
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests;
