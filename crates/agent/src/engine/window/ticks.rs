//! The instants at which the clock closes windows.
//!
//! The ticks of a probe are multiples of the interval from one instant on, so that the delays of
//! closing do not add up. Ticks that pass while a window is being closed are lost.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use twinprobe_config::Schedule;
use twinprobe_kernel::clock::{self, Moment};

/// The longest wait for a tick by the wall clock, because somebody may set the clock during the
/// wait.
const LOOK: Duration = Duration::from_secs(1);
/// The steps of the grid for counted ticks, in milliseconds. Probes whose ticks come at the same
/// time share a grace period and a sync. The first window is longer by up to half an interval.
const STEPS: [u64; 5] = [20, 10, 5, 2, 1];

/// The instants at which the windows of a probe end.
#[derive(Debug)]
pub enum Ticks {
    /// Ticks counted from the start of a window, independent of the wall clock.
    Counted {
        interval: Duration,
        next: Instant,
        last: Option<Instant>,
    },
    /// Ticks by the wall clock, at multiples of the interval; `next` in nanoseconds since the Unix
    /// epoch.
    Aligned {
        interval: Duration,
        next: i128,
        last: Option<Moment>,
    },
}

impl Ticks {
    /// Makes the ticks. `opened` is the start of the open window, which an earlier daemon may have
    /// opened.
    pub fn new(schedule: Schedule, opened: Moment) -> Self {
        let Schedule { interval, align } = schedule;
        if align {
            return Self::Aligned {
                interval,
                next: boundary_after(clock::now().as_nanosecond(), interval),
                last: None,
            };
        }
        let first = Instant::now() + interval.saturating_sub(opened.elapsed());
        Self::Counted {
            interval,
            next: on_grid(first, step(interval)),
            last: None,
        }
    }

    /// Returns the instant at which the caller must check whether the next tick has come.
    pub fn due(&self) -> Instant {
        match *self {
            Self::Counted { next, .. } => next,
            Self::Aligned { next, .. } => {
                let left = u64::try_from(next - clock::now().as_nanosecond()).unwrap_or_default();
                on_grid(
                    Instant::now() + Duration::from_nanos(left).min(LOOK),
                    Duration::from_millis(1),
                )
            }
        }
    }

    /// Returns the number of missed ticks since the last one, if the next tick has come; `None` if
    /// it has not.
    pub fn tick(&mut self, now: Instant) -> Option<u64> {
        let intervals = match self {
            Self::Counted {
                interval,
                next,
                last,
            } => {
                let late = now.checked_duration_since(*next)?;
                let at = *next;
                let passed =
                    u32::try_from(late.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX - 1);
                *next = at
                    .checked_add(interval.saturating_mul(passed + 1))
                    .unwrap_or(now + *interval);
                let since = last.replace(at).map_or(Duration::ZERO, |last| at - last);
                since.as_nanos() / interval.as_nanos()
            }
            Self::Aligned {
                interval,
                next,
                last,
            } => {
                let left = *next - clock::now().as_nanosecond();
                // A clock that was set back would make this window longer than any other.
                if left > 0 && left <= interval.as_nanos() as i128 {
                    return None;
                }
                // Elapsed time counts the missed boundaries, because a change of the wall clock
                // passes none.
                let since = last
                    .replace(Moment::now())
                    .map_or(Duration::ZERO, Moment::elapsed);
                (since + *interval / 2).as_nanos() / interval.as_nanos()
            }
        };
        Some(
            u64::try_from(intervals)
                .unwrap_or(u64::MAX)
                .saturating_sub(1),
        )
    }

    /// Begins to wait for the next tick. Call this once the window is closed.
    pub fn go_on(&mut self) {
        if let Self::Aligned { interval, next, .. } = self {
            *next = boundary_after(clock::now().as_nanosecond(), *interval);
        }
    }
}

/// Returns the step of the grid for an interval. It is at most half of the interval, and a divisor
/// of it, so that the ticks stay on the grid.
fn step(interval: Duration) -> Duration {
    let fits = |step: &&u64| {
        let step = u128::from(**step) * 1_000_000;
        2 * step <= interval.as_nanos() && interval.as_nanos().is_multiple_of(step)
    };
    Duration::from_millis(STEPS.iter().find(fits).copied().unwrap_or(1))
}

/// Returns the first instant of the grid that is not before `at`.
fn on_grid(at: Instant, step: Duration) -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let begin = *BEGIN.get_or_init(Instant::now);
    let behind = at.saturating_duration_since(begin).as_nanos() % step.as_nanos();
    if behind == 0 {
        at
    } else {
        at + (step - Duration::from_nanos(behind as u64))
    }
}

/// Returns the first multiple of the interval after `now`, both in nanoseconds since the Unix
/// epoch.
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

    #[test]
    fn what_closing_takes_does_not_add_up() {
        let interval = Duration::from_millis(100);
        let mut ticks = Ticks::new(
            Schedule {
                interval,
                align: false,
            },
            Moment::now(),
        );
        let begin = ticks.due();
        for n in 0..50 {
            let due = begin + interval * n;
            assert_eq!(ticks.due(), due);
            assert_eq!(ticks.tick(due - Duration::from_nanos(1)), None);
            assert_eq!(
                ticks.tick(due + Duration::from_millis(u64::from(n) * 2)),
                Some(0),
                "{n}"
            );
            ticks.go_on();
        }
        // The first missed tick comes late, and further missed ticks are skipped.
        assert_eq!(ticks.tick(begin + interval * 53), Some(0));
        assert_eq!(ticks.due(), begin + interval * 54);
        assert_eq!(ticks.tick(begin + interval * 54), Some(3));
    }

    #[test]
    fn ticks_of_probes_fall_together() {
        for (interval, expected) in [
            (1, 1),
            (3, 1),
            (10, 5),
            (20, 10),
            (30, 10),
            (100, 20),
            (1_000, 20),
            (86_400_000, 20),
        ] {
            let interval = Duration::from_millis(interval);
            assert_eq!(
                step(interval),
                Duration::from_millis(expected),
                "{interval:?}"
            );
            let first = |delay| {
                let at = Instant::now() + delay;
                let on = on_grid(at, step(interval));
                assert!(on >= at && on - at < step(interval));
                on
            };
            let apart = first(interval) - first(Duration::ZERO);
            assert!(
                apart.as_nanos().is_multiple_of(step(interval).as_nanos()),
                "{apart:?}"
            );
        }
    }
}
