//! Windows that are closed by the clock.
//!
//! Each probe with an interval has a task. The ticks of the task are multiples of the interval from one instant on, so
//! that the time that closing takes does not add up. Ticks that pass while a window is being closed are not made up
//! for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{self, Instant, MissedTickBehavior};
use twinprobe_kernel::clock::{self, Moment};
use twinprobe_windows::ClosedBy;

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::probe::probe::Probe;
use crate::engine::window::together::Outcome;
use twinprobe_config::Schedule;

/// The longest sleep of a task that follows the wall clock: the clock can be set meanwhile.
const LOOK: Duration = Duration::from_secs(1);

impl Engine {
    /// Closes the probe's windows by the clock, until the probe is replaced or deleted.
    pub fn start_schedule(self: &Arc<Self>, probe: &Arc<Probe>) {
        let Some((schedule, opened, mut gone, counters)) = probe.schedule() else { return };
        let (engine, probe) = (Arc::downgrade(self), Arc::downgrade(probe));
        self.clock.spawn(async move {
            let mut ticks = Ticks::new(schedule, opened);
            while let Some(missed) = ticks.next(&mut gone).await
                && close(&engine, &probe).await
            {
                counters.ticks_missed.inc_by(missed);
            }
        });
    }
}

/// Closes the open window. Returns false if the clock can close no more windows of the probe.
async fn close(engine: &Weak<Engine>, probe: &Weak<Probe>) -> bool {
    let (Some(engine), Some(probe)) = (engine.upgrade(), probe.upgrade()) else { return false };
    if engine.clock.together.close(Arc::clone(&probe)).await == Outcome::Tried {
        if engine.windows.exceeds_budget() {
            tokio::task::spawn_blocking(move || engine.windows.enforce());
        }
        return true;
    }
    let name = probe.name.clone();
    // The clock does not take turns with readers, of whom many may wait: it waits for one of them at most.
    let closed = tokio::task::spawn_blocking(move || {
        let closed = probe.close_window(ClosedBy::Schedule);
        engine.windows.enforce();
        closed
    });
    match closed.await {
        // The cause may pass: the next tick tries again.
        Ok(Ok(_) | Err(EngineError::Close(_) | EngineError::Kernel(_))) => true,
        Ok(Err(_)) => false,
        Err(error) => {
            tracing::error!(probe = name, %error, "the daemon closes the probe's windows no more");
            false
        }
    }
}

/// The instants at which windows end.
enum Ticks {
    /// Ticks counted from the start of a window, whatever the wall clock says.
    Counted { ticks: Box<time::Interval>, last: Option<Instant> },
    /// Ticks by the wall clock, at multiples of the interval.
    Aligned { interval: Duration, last: Option<Moment> },
}

impl Ticks {
    /// Creates the ticks. `opened` is the start of the open window, perhaps under an earlier daemon.
    fn new(Schedule { interval, align }: Schedule, opened: Moment) -> Self {
        if align {
            return Self::Aligned { interval, last: None };
        }
        let mut ticks =
            time::interval_at(Instant::now() + interval.saturating_sub(opened.elapsed()), interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self::Counted { ticks: Box::new(ticks), last: None }
    }

    /// Waits for the next tick and returns the number of ticks missed since the one before; `None` once the probe is
    /// `gone`.
    async fn next(&mut self, gone: &mut watch::Receiver<()>) -> Option<u64> {
        let tick = async {
            match self {
                Self::Counted { ticks, last } => {
                    let at = ticks.tick().await;
                    let since = last.replace(at).map_or(Duration::ZERO, |last| at - last);
                    since.as_nanos() / ticks.period().as_nanos()
                }
                Self::Aligned { interval, last } => {
                    boundary(*interval).await;
                    // Elapsed time counts the boundaries, because setting the wall clock passes none of them.
                    let since = last.replace(Moment::now()).map_or(Duration::ZERO, Moment::elapsed);
                    (since + *interval / 2).as_nanos() / interval.as_nanos()
                }
            }
        };
        tokio::select! {
            intervals = tick => Some(u64::try_from(intervals).unwrap_or(u64::MAX).saturating_sub(1)),
            Err(_) = gone.changed() => None,
        }
    }
}

/// Waits for the next multiple of the interval on the wall clock.
async fn boundary(interval: Duration) {
    let at = boundary_after(clock::now().as_nanosecond(), interval);
    loop {
        let left = at - clock::now().as_nanosecond();
        // A clock that was set back would make this window longer than any other.
        if left <= 0 || left > interval.as_nanos() as i128 {
            return;
        }
        time::sleep(Duration::from_nanos(left as u64).min(LOOK)).await;
    }
}

/// Returns the first multiple of the interval after `now`, both in nanoseconds since the Unix epoch.
fn boundary_after(now: i128, interval: Duration) -> i128 {
    let interval = interval.as_nanos() as i128;
    (now.div_euclid(interval) + 1) * interval
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_multiples_of_the_interval() {
        let second = Duration::from_secs(1);
        assert_eq!(boundary_after(0, second), 1_000_000_000);
        assert_eq!(boundary_after(999_999_999, second), 1_000_000_000);
        assert_eq!(boundary_after(1_000_000_000, second), 2_000_000_000);
        assert_eq!(boundary_after(1, Duration::from_millis(1)), 1_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn what_closing_takes_does_not_add_up() {
        let (sender, mut gone) = watch::channel(());
        let interval = Duration::from_millis(100);
        let mut ticks = Ticks::new(Schedule { interval, align: false }, Moment::now());
        let start = Instant::now();
        for n in 1..=50 {
            assert_eq!(ticks.next(&mut gone).await, Some(0));
            let late = start.elapsed().saturating_sub(interval * n);
            assert!(late < Duration::from_millis(5), "{n}: {late:?}");
            time::advance(Duration::from_millis(n as u64 % 90)).await;
        }
        time::advance(interval * 3).await;
        // The first missed tick comes late, the others are not made up for.
        assert_eq!(ticks.next(&mut gone).await, Some(0));
        assert_eq!(ticks.next(&mut gone).await, Some(2));
        drop(sender);
        assert_eq!(ticks.next(&mut gone).await, None);
    }
}
