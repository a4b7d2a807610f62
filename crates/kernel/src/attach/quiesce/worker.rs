//! Threads, one for each method, so that a delayed method delays no caller that another method can
//! serve.

use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::process::Pid;
use rustix::thread::{gettid, sched_getcpu};

use crate::attach::quiesce::method::{MethodReport, PATIENCE, QuiesceMethod, Way};
use crate::attach::quiesce::sweep;
use crate::sys::cpus;

/// The shortest time between two log messages about a late method.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The time for which a caller polls for the end of a grace period before it sleeps. A sleep with
/// its wake-up takes more processor time than a sweep of two CPUs.
const SOON: Duration = Duration::from_micros(100);
/// The number of callers that sleep immediately after a caller has polled in vain, because the
/// machine is busy then.
const SLEEPERS: u32 = 8;

/// The available methods, in the order of preference, and the grace periods that callers wait for.
#[derive(Debug)]
pub struct Workers {
    state: Mutex<QuiesceState>,
    /// The condition that callers wait for: a grace period has ended or failed.
    over: Condvar,
    /// The number of grace periods of all methods that have ended or failed.
    ended: AtomicU64,
    /// The condition that each method's thread waits for: a request of a caller. Each method has a
    /// condition of its own, because a wake-up of all threads would take more processor time than a
    /// sweep.
    asked: Vec<Condvar>,
}

#[derive(Debug)]
struct QuiesceState {
    workers: Vec<Worker>,
    in_use: QuiesceMethod,
    reports: Vec<MethodReport>,
    /// The time of the last log message about a late method, by the method's name.
    said: BTreeMap<&'static str, Instant>,
    /// True while a caller polls for the end of a grace period. A second polling caller could keep
    /// the sweep from its CPU.
    looking: bool,
    /// The number of callers that must sleep immediately.
    sleepers: u32,
    ended: bool,
}

/// The numbers of the grace periods that one method waits for.
#[derive(Debug)]
struct Worker {
    method: QuiesceMethod,
    /// The method's thread; `None` until it runs.
    thread: Option<Pid>,
    /// The numbers of three grace periods: the last that a caller wants, the last that has begun,
    /// and the last that has ended.
    wanted: u64,
    begun: u64,
    over: u64,
    /// The number of callers that want the next grace period, and the CPU of the first of these
    /// callers.
    asking: usize,
    asked_on: usize,
    /// The number of the last failed grace period, and the error.
    failed: Option<(u64, io::Error)>,
    /// True if a caller waits for a later grace period than the present one.
    late: bool,
}

impl Worker {
    const fn new(method: QuiesceMethod) -> Self {
        let (wanted, begun, over, asking, asked_on) = (0, 0, 0, 0, 0);
        Self {
            method,
            thread: None,
            wanted,
            begun,
            over,
            asking,
            asked_on,
            failed: None,
            late: false,
        }
    }

    /// Returns the number of the next grace period to begin, which serves every caller that asks
    /// before its start.
    fn ask(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        if self.asking == 0 {
            self.asked_on = sched_getcpu();
            if let (QuiesceMethod::Sweep, Some(thread)) = (self.method, self.thread) {
                // The thread is woken on the other CPU, because this takes less time than its move
                // to that CPU.
                cpus::keep_off(thread, self.asked_on);
            }
        }
        self.asking += 1;
        self.wanted
    }

    /// Begins the requested grace period. Returns its number and, with a single caller, the CPU on
    /// which the caller asked: earlier programs have left that CPU, because the caller ran on it
    /// after the flip. With several callers the CPU says nothing, because the others may have come
    /// after a later flip.
    fn begin(&mut self) -> (u64, Option<usize>) {
        self.begun += 1;
        let asking = std::mem::take(&mut self.asking);
        (self.begun, (asking == 1).then_some(self.asked_on))
    }

    /// Returns the error of the last failed grace period, if its number is at least `number`.
    fn failure(&self, number: u64) -> Option<&io::Error> {
        self.failed
            .as_ref()
            .filter(|(failed, _)| *failed >= number)
            .map(|(_, error)| error)
    }
}

impl QuiesceState {
    fn report(&mut self, method: QuiesceMethod, failure: Option<String>) {
        let report = MethodReport::new(method, failure);
        if let Some(old) = self.reports.iter_mut().find(|old| old.name == report.name) {
            *old = report;
        }
    }

    /// Marks a method as late, in its report and in the log, when a caller no longer waits for this
    /// method alone.
    fn late(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.late = true;
        let method = worker.method;
        let place = if method == QuiesceMethod::Sweep {
            sweep::place()
        } else {
            String::new()
        };
        let reason = format!(
            "no grace period within {PATIENCE:?}{place}: a real-time task may occupy a CPU"
        );
        let now = Instant::now();
        let name = method.name();
        if self
            .said
            .get(name)
            .is_none_or(|said| now - *said > SAID_EVERY)
        {
            self.said.insert(name, now);
            tracing::warn!(
                ?method,
                reason,
                "a grace period is late; another method waits as well"
            );
        }
        self.report(method, Some(reason));
    }
}

impl Workers {
    pub fn start(
        ways: Vec<(QuiesceMethod, Way)>,
        reports: Vec<MethodReport>,
    ) -> io::Result<Arc<Self>> {
        let in_use = ways
            .first()
            .map_or(QuiesceMethod::None, |(method, _)| *method);
        let workers = ways
            .iter()
            .map(|(method, _)| Worker::new(*method))
            .collect();
        let said = BTreeMap::new();
        let state = QuiesceState {
            workers,
            in_use,
            reports,
            said,
            looking: false,
            sleepers: 0,
            ended: false,
        };
        let asked = ways.iter().map(|_| Condvar::new()).collect();
        let (state, over, ended) = (Mutex::new(state), Condvar::new(), AtomicU64::new(0));
        let workers = Arc::new(Self {
            state,
            over,
            ended,
            asked,
        });
        for (index, (method, way)) in ways.into_iter().enumerate() {
            let of_thread = Arc::clone(&workers);
            let thread = thread::Builder::new().name(format!("quiesce-{}", method.name()));
            if let Err(error) = thread.spawn(move || of_thread.serve(index, &way)) {
                workers.end();
                return Err(error);
            }
        }
        Ok(workers)
    }

    /// Returns the method that served the last caller; before the first call, the preferred method.
    pub fn in_use(&self) -> QuiesceMethod {
        self.state.lock().in_use
    }

    /// Returns the number of callers that want the next grace period of the preferred method.
    #[cfg(test)]
    pub fn asking(&self) -> usize {
        self.state.lock().workers[0].asking
    }

    /// Returns the state of all methods, preferred methods first.
    pub fn reports(&self) -> Vec<MethodReport> {
        self.state.lock().reports.clone()
    }

    /// Ends the threads, each after its present grace period. Call this when no caller will request
    /// anything any more.
    pub fn end(&self) {
        self.state.lock().ended = true;
        for asked in &self.asked {
            asked.notify_one();
        }
    }

    /// Waits until one of the methods has waited for a grace period that began after the call.
    /// Starts one method after the other: each method starts when all earlier methods have failed
    /// or are late.
    pub fn wait(&self, deadline: Instant) -> io::Result<()> {
        let begun = Instant::now();
        let mut state = self.state.lock();
        let mut asked: Vec<u64> = Vec::new();
        let mut patience = Instant::now();
        loop {
            let of_asked = || state.workers.iter().zip(&asked);
            if let Some(method) = of_asked()
                .find(|(worker, number)| worker.over >= **number)
                .map(|(worker, _)| worker.method)
            {
                state.in_use = method;
                return Ok(());
            }
            let failures = of_asked().filter_map(|(worker, number)| worker.failure(*number));
            let now = Instant::now();
            if failures.clone().count() == state.workers.len() {
                let none = || io::Error::other("there is no way to wait for a grace period");
                return Err(failures.clone().next_back().map_or_else(none, copy_of));
            }
            if now >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no grace period within the time limit; a real-time task may occupy a CPU, or the kernel \
                     is stuck: see the daemon's capabilities and the kernel's log",
                ));
            }
            let all_failed = failures.count() == asked.len();
            if all_failed || now >= patience {
                if let (false, Some(last)) = (all_failed, asked.len().checked_sub(1))
                    && state.workers[last].failure(asked[last]).is_none()
                {
                    state.late(last);
                }
                if let Some(next) = state.workers.get_mut(asked.len()) {
                    let number = next.ask();
                    patience = if next.late { now } else { now + PATIENCE };
                    self.asked[asked.len()].notify_one();
                    asked.push(number);
                } else {
                    // Every method has been started, and the first one that ends serves the caller.
                    patience = deadline;
                }
            }
            if self.ends_soon(&mut state, begun) {
                continue;
            }
            let left = patience
                .min(deadline)
                .saturating_duration_since(Instant::now());
            self.over.wait_for(&mut state, left);
        }
    }

    /// Polls for the end of a grace period for a short time, unless another caller polls, or has
    /// recently polled in vain. Returns true if a grace period has ended.
    fn ends_soon(&self, state: &mut MutexGuard<'_, QuiesceState>, begun: Instant) -> bool {
        if state.looking || begun.elapsed() >= SOON {
            return false;
        }
        if let Some(others) = state.sleepers.checked_sub(1) {
            state.sleepers = others;
            return false;
        }
        state.looking = true;
        let before = self.ended.load(Ordering::Relaxed);
        let has_ended = || self.ended.load(Ordering::Relaxed) != before;
        MutexGuard::unlocked(state, || {
            while !has_ended() && begun.elapsed() < SOON {
                spin_loop();
            }
        });
        state.looking = false;
        state.sleepers = if has_ended() { 0 } else { SLEEPERS };
        has_ended()
    }

    fn serve(&self, index: usize, way: &Way) {
        let mut state = self.state.lock();
        state.workers[index].thread = Some(gettid());
        while !state.ended {
            let worker = &mut state.workers[index];
            if worker.wanted <= worker.begun {
                self.asked[index].wait(&mut state);
                continue;
            }
            let ((number, left), method) = (worker.begin(), worker.method);
            drop(state);
            let result = way(left);
            state = self.state.lock();
            state.workers[index].late = false;
            state.report(method, result.as_ref().err().map(ToString::to_string));
            match result {
                Ok(()) => state.workers[index].over = number,
                Err(error) => state.workers[index].failed = Some((number, error)),
            }
            self.over.notify_all();
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(
        || io::Error::new(error.kind(), error.to_string()),
        io::Error::from_raw_os_error,
    )
}
