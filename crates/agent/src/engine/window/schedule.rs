//! Windows that the clock closes.
//!
//! The threads that close windows wait for the ticks themselves. If they woke another thread for
//! each window, and one more when the window is closed, the wake-ups would take as much processor
//! time as a small window. One thread waits for the next tick. Then it closes the windows of all
//! probes whose tick has come, and another thread waits if there are others.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use twinprobe_windows::{ClosedBy, WindowStore};

use crate::engine::error::EngineError;
use crate::engine::probe::probe::Probe;
use crate::engine::window::ticks::Ticks;
use crate::telemetry::counters::Counters;

/// The largest number of windows that are closed together.
const MOST: usize = 64;

/// A probe whose windows the clock closes, until the probe is replaced or deleted.
#[derive(Debug)]
pub struct Scheduled {
    windows: Weak<WindowStore>,
    probe: Weak<Probe>,
    gone: watch::Receiver<()>,
    ticks: Ticks,
    counters: Weak<Counters>,
}

/// The probes whose windows are not being closed now, by the instant of their next ticks.
#[derive(Debug, Default)]
pub struct Timetable {
    waiting: Mutex<WaitingProbes>,
    /// The condition of the thread that waits for a tick: an earlier tick was entered.
    earlier: Condvar,
    /// The condition of all other threads: one of them must start to wait for a tick.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct WaitingProbes {
    probes: BTreeMap<(Instant, u64), Scheduled>,
    /// The number of probes that were entered so far. It distinguishes probes with the same
    /// instant.
    entered: u64,
    /// The instant until which a thread waits. The outer `None` means that no thread waits, and the
    /// inner `None` that there is no tick.
    until: Option<Option<Instant>>,
    ended: bool,
}

/// A probe whose window is due now.
#[derive(Debug)]
pub struct Due {
    pub windows: Arc<WindowStore>,
    pub probe: Arc<Probe>,
    scheduled: Scheduled,
    missed: u64,
}

impl Scheduled {
    /// Returns the window that is due, or the probe itself if its tick has not come. `None` if the
    /// probe was deleted.
    fn due(mut self, now: Instant) -> Option<Result<Due, Self>> {
        // The sender ends with the deployment.
        if self.gone.has_changed().is_err() {
            return None;
        }
        let Some(missed) = self.ticks.tick(now) else {
            return Some(Err(self));
        };
        let (windows, probe) = (self.windows.upgrade()?, self.probe.upgrade()?);
        Some(Ok(Due {
            windows,
            probe,
            scheduled: self,
            missed,
        }))
    }
}

impl Timetable {
    /// Closes the probe's windows by the clock, until the probe is replaced or deleted.
    pub fn schedule(&self, probe: &Arc<Probe>, windows: &Arc<WindowStore>) {
        let Some((schedule, opened, gone, counters)) = probe.schedule() else {
            return;
        };
        let (windows, probe) = (Arc::downgrade(windows), Arc::downgrade(probe));
        let (ticks, counters) = (Ticks::new(schedule, opened), Arc::downgrade(&counters));
        self.enter([Scheduled {
            windows,
            probe,
            gone,
            ticks,
            counters,
        }]);
    }

    /// Enters probes. Each of them is due at its next tick.
    pub fn enter(&self, probes: impl IntoIterator<Item = Scheduled>) {
        let waiting = &mut self.waiting.lock();
        self.add(waiting, probes);
        if waiting.until.is_none() {
            self.idle.notify_one();
        }
    }

    fn add(&self, waiting: &mut WaitingProbes, probes: impl IntoIterator<Item = Scheduled>) {
        for probe in probes {
            waiting.entered += 1;
            let place = (probe.ticks.due(), waiting.entered);
            waiting.probes.insert(place, probe);
        }
        let next = waiting.probes.keys().next().map(|(at, _)| *at);
        if let (Some(until), Some(next)) = (waiting.until, next)
            && until.is_none_or(|until| next < until)
        {
            self.earlier.notify_one();
        }
    }

    /// Enters probes, and waits until windows are due; returns at most [`MOST`] of these. `None`
    /// once the clock has ended.
    pub fn wait(&self, mut again: Vec<Scheduled>) -> Option<Vec<Due>> {
        loop {
            let taken = self.take(std::mem::take(&mut again))?;
            let now = Instant::now();
            let mut all_due = Vec::new();
            for due in taken.into_iter().filter_map(|probe| probe.due(now)) {
                match due {
                    Ok(due) => all_due.push(due),
                    Err(later) => again.push(later),
                }
            }
            if all_due.is_empty() {
                continue;
            }
            if !again.is_empty() {
                self.enter(again);
            }
            return Some(all_due);
        }
    }

    /// Enters probes, waits until the instant of some probes has come, and removes these from the
    /// timetable. `None` once the clock has ended.
    fn take(&self, again: Vec<Scheduled>) -> Option<Vec<Scheduled>> {
        let mut waiting = self.waiting.lock();
        self.add(&mut waiting, again);
        loop {
            if waiting.ended {
                return None;
            }
            if waiting.until.is_some() {
                self.idle.wait(&mut waiting);
                continue;
            }
            let next = waiting.probes.keys().next().map(|(at, _)| *at);
            let now = Instant::now();
            if next.is_none_or(|next| next > now) {
                waiting.until = Some(next);
                match next {
                    Some(next) => drop(self.earlier.wait_until(&mut waiting, next)),
                    None => self.earlier.wait(&mut waiting),
                }
                waiting.until = None;
                continue;
            }
            let mut taken = Vec::new();
            while taken.len() < MOST
                && let Some(first) = waiting
                    .probes
                    .first_entry()
                    .filter(|first| first.key().0 <= now)
            {
                taken.push(first.remove());
            }
            if !waiting.probes.is_empty() {
                self.idle.notify_one();
            }
            return Some(taken);
        }
    }

    /// Ends the threads that wait for ticks.
    pub fn end(&self) {
        let mut waiting = self.waiting.lock();
        waiting.ended = true;
        let probes = std::mem::take(&mut waiting.probes);
        self.earlier.notify_all();
        self.idle.notify_all();
        drop(waiting);
        drop(probes);
    }
}

impl Due {
    /// Notes that the attempt to close the window has ended. Returns the probe, which must be
    /// entered again.
    pub fn tried(self) -> Scheduled {
        let Self {
            mut scheduled,
            missed,
            ..
        } = self;
        if let Some(counters) = scheduled.counters.upgrade() {
            counters.ticks_missed.inc_by(missed);
        }
        scheduled.ticks.go_on();
        scheduled
    }

    /// Closes the window alone, after the present reader. The clock goes before all waiting
    /// readers, because there may be many. Returns the probe, which must be entered again; `None`
    /// if the clock can't close its windows any longer.
    pub fn close_alone(self) -> Option<Scheduled> {
        let closed = self.probe.close_window(ClosedBy::Schedule);
        self.windows.enforce();
        match closed {
            // The cause may pass: the next tick tries again.
            Ok(_) | Err(EngineError::Close(_) | EngineError::Kernel(_)) => Some(self.tried()),
            Err(_) => None,
        }
    }
}
