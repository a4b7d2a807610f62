//! Windows of several probes that end at about the same time. They share a grace period and the
//! sync of the disk, which are most of the cost of a small window.

use std::sync::Arc;
use std::{io, thread};

use parking_lot::MutexGuard;
use tokio::runtime::Handle;
use twinprobe_kernel::Attached;
use twinprobe_windows::ClosedBy;

use crate::engine::error::CloseError;
use crate::engine::probe::probe::{Probe, ProbeState};
use crate::engine::probe::running::Running;
use crate::engine::reading::close::{EndedWindow, New};
use crate::engine::window::schedule::{Due, Scheduled, Timetable};

/// The number of threads. While one thread waits for the disk, the other threads close windows in
/// time.
const THREADS: usize = 4;
/// The largest size in bytes of a probe's last window with which the next window may be closed
/// together with others, which wait for it.
const SMALL: u64 = 64 * 1024;

/// The result of an attempt to close a window together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseOutcome {
    /// The window was closed, or the probe's status shows the reason why it was not.
    Tried,
    /// The window must be closed alone: others would wait for it, or a client reads the probe now.
    Alone,
}

/// Starts the threads that close windows, until the timetable ends. Windows that must be closed
/// alone get threads of `others`.
pub fn start(timetable: &Arc<Timetable>, others: &Handle) -> io::Result<()> {
    for _ in 0..THREADS {
        let (timetable, others) = (Arc::clone(timetable), others.clone());
        thread::Builder::new()
            .name("windows".into())
            .spawn(move || {
                let mut tried = Vec::new();
                while let Some(due) = timetable.wait(tried) {
                    tried = close(&timetable, &others, due);
                }
            })?;
    }
    Ok(())
}

/// Closes windows that are due. Returns the probes that must be entered again.
fn close(timetable: &Arc<Timetable>, others: &Handle, due: Vec<Due>) -> Vec<Scheduled> {
    let probes: Vec<&Probe> = due.iter().map(|due| &*due.probe).collect();
    let outcomes = close_together(&probes);
    let mut tried = Vec::new();
    let mut windows = None;
    for (due, outcome) in due.into_iter().zip(outcomes) {
        if outcome == CloseOutcome::Tried {
            windows.get_or_insert_with(|| Arc::clone(&due.windows));
            tried.push(due.tried());
            continue;
        }
        let (timetable, name) = (Arc::clone(timetable), due.probe.name.clone());
        let closed = others.spawn_blocking(move || timetable.enter(due.close_alone()));
        others.spawn(async move {
            if let Err(error) = closed.await {
                tracing::error!(probe = name, %error, "the daemon no longer closes the probe's windows");
            }
        });
    }
    if let Some(windows) = windows.filter(|windows| windows.exceeds_budget()) {
        others.spawn_blocking(move || windows.enforce());
    }
    tried
}

/// A probe whose window is being closed.
struct Closing<'a> {
    place: usize,
    probe: &'a Probe,
    state: MutexGuard<'a, ProbeState>,
}

impl Closing<'_> {
    fn running(&mut self) -> Option<&mut Running> {
        match &mut *self.state {
            ProbeState::Running(running) => Some(running),
            ProbeState::Failed { .. } | ProbeState::Gone => None,
        }
    }

    /// Takes a step. After an error, notes the error, stops the present attempt to close the
    /// window, and returns `None`.
    fn step<T>(&mut self, step: impl FnOnce(&mut Running) -> Result<T, CloseError>) -> Option<T> {
        let running = self.running()?;
        match step(running) {
            Ok(done) => Some(done),
            Err(error) => {
                self.end(Some(&error));
                None
            }
        }
    }

    fn end(&mut self, error: Option<&CloseError>) {
        let probe = self.probe;
        if let Some(running) = self.running() {
            running.note_trouble(error);
            probe
                .shown
                .lock()
                .close_error
                .clone_from(&running.close_error);
        }
    }
}

/// Closes the open windows of these probes by the clock, with the steps of [`Running::close`].
fn close_together(probes: &[&Probe]) -> Vec<CloseOutcome> {
    let mut outcomes = vec![CloseOutcome::Alone; probes.len()];
    let mut closing: Vec<Closing<'_>> = Vec::new();
    for (place, probe) in probes.iter().enumerate() {
        // The thread never waits for a lock while it holds others.
        let Some(state) = probe.state.try_lock() else {
            continue;
        };
        let mut one = Closing {
            place,
            probe,
            state,
        };
        if one.running().is_some_and(|running| is_small(running)) {
            closing.push(one);
        }
    }
    for one in &closing {
        outcomes[one.place] = CloseOutcome::Tried;
    }
    closing.retain_mut(|one| {
        one.step(|running| running.open.begin_close(ClosedBy::Schedule))
            .is_some()
    });
    let mut flipping: Vec<&mut Attached> = closing
        .iter_mut()
        .filter_map(|one| one.running().map(|running| &mut running.open.attached))
        .collect();
    // After an error each window waits for a separate grace period, and reports why that fails.
    let _ = Attached::flip_together(&mut flipping);
    let mut stored: Vec<(Closing<'_>, Option<New>)> = Vec::new();
    for mut one in closing {
        match one.step(|running| running.store(ClosedBy::Schedule)) {
            Some(EndedWindow::New(new)) => stored.push((one, Some(*new))),
            Some(EndedWindow::Known(_)) => stored.push((one, None)),
            None => {}
        }
    }
    // The first caller waits for the disk, and also commits the changes of all others.
    for (mut one, new) in stored {
        if new.is_some_and(|new| one.step(|running| running.open.list(new)).is_none()) {
            continue;
        }
        if one
            .step(|running| running.empty(ClosedBy::Schedule))
            .is_some()
        {
            one.end(None);
        }
    }
    outcomes
}

/// Tells whether the next window can probably be closed fast, and nothing of the last window is
/// left in the maps.
fn is_small(running: &Running) -> bool {
    running.open.resets()
        && running.open.attached.closed().is_none()
        && running
            .open
            .windows
            .newest()
            .is_some_and(|newest| newest.entry.bytes <= SMALL)
}
