//! The clocks: the wall clock, which may be set at any time, and clocks that are never set.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The environment variable that names a file with nanoseconds to add to the wall clock, for tests
/// that set the clock.
const OFFSET: &str = "TWINPROBE_CLOCK_OFFSET";
/// The longest time between the readings of two clocks that count as simultaneous, in nanoseconds.
const SIMULTANEOUS: u64 = 20_000;
/// NTP may make the wall clock gain or lose one nanosecond in this number; a larger difference is a
/// step of the clock.
const SLEW: i128 = 2_000;
/// The difference in nanoseconds up to which there is no step in any case.
const JITTER_NS: i128 = 1_000_000;

/// An instant, read from the wall clock and from a clock that is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub wall: Timestamp,
    /// Nanoseconds since the start of the machine, including suspension (CLOCK_BOOTTIME); 0 if
    /// unknown.
    pub boot_ns: u64,
}

/// The time between two moments. The start is corrected if somebody has set the wall clock back to
/// a time before it: see [`Moment::until`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub start: Timestamp,
    pub end: Timestamp,
    /// The time that has really passed, in nanoseconds.
    pub duration_ns: u64,
    /// The nanoseconds by which the wall clock was set in between; `None` if it was not set.
    pub step_ns: Option<i64>,
}

impl Moment {
    pub fn now() -> Self {
        let offset = offset_ns();
        // A thread that is preempted between two readings would see a step.
        for _ in 0..10 {
            let before = boot_ns();
            let wall = wall_ns();
            let after = boot_ns();
            if after.saturating_sub(before) <= SIMULTANEOUS {
                return Self {
                    wall: timestamp(wall + offset),
                    boot_ns: after,
                };
            }
        }
        Self {
            wall: timestamp(wall_ns() + offset),
            boot_ns: boot_ns(),
        }
    }

    /// Returns the time that has passed since this moment.
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(self.until(Self::now()).duration_ns)
    }

    /// Returns the span from this moment to `end`. If somebody has set the wall clock back to a
    /// time before the start, the start is corrected by the setting of the clock at `end`, so that
    /// no window ends before it begins.
    pub fn until(self, end: Self) -> TimeSpan {
        let wall = end.wall.as_nanosecond() - self.wall.as_nanosecond();
        let known = self.boot_ns != 0 && end.boot_ns >= self.boot_ns;
        let duration = if known {
            i128::from(end.boot_ns - self.boot_ns)
        } else {
            wall.max(0)
        };
        let step = wall - duration;
        let is_step = step.abs() > JITTER_NS + duration / SLEW;
        TimeSpan {
            start: if wall < 0 {
                timestamp(end.wall.as_nanosecond() - duration)
            } else {
                self.wall
            },
            end: end.wall,
            duration_ns: u64::try_from(duration).unwrap_or(u64::MAX),
            step_ns: is_step
                .then(|| i64::try_from(step).unwrap_or(if step < 0 { i64::MIN } else { i64::MAX })),
        }
    }
}

/// Formats a time as RFC 3339 with nanoseconds, in UTC, as documents and status show it.
pub fn rfc3339(at: Timestamp) -> String {
    format!("{at:.9}")
}

/// Reads the wall clock.
pub fn now() -> Timestamp {
    timestamp(wall_ns() + offset_ns())
}

/// Returns the nanoseconds from the Unix epoch to the zero of CLOCK_MONOTONIC, which
/// `bpf_ktime_get_ns` reads: roughly the boot of the machine.
pub fn monotonic_zero_ns() -> i128 {
    let monotonic = i128::try_from(read(ClockId::Monotonic).as_nanos()).unwrap_or(i128::MAX);
    wall_ns() + offset_ns() - monotonic
}

/// Returns the CPU time that the threads of this process have used so far.
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn timestamp(nanoseconds: i128) -> Timestamp {
    Timestamp::from_nanosecond(nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn wall_ns() -> i128 {
    let unix = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i128::try_from(unix.as_nanos()).unwrap_or(i128::MAX)
}

fn boot_ns() -> u64 {
    u64::try_from(read(ClockId::Boottime).as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the offset that a test has set for the clock, or zero.
fn offset_ns() -> i128 {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE
        .get_or_init(|| std::env::var_os(OFFSET).map(PathBuf::from))
        .as_ref();
    let offset = file.and_then(|file| {
        std::fs::read_to_string(file)
            .ok()?
            .trim()
            .parse::<i64>()
            .ok()
    });
    offset.map_or(0, i128::from)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn moment(wall: i64, boot_ns: i64) -> Moment {
        Moment {
            wall: timestamp(wall.into()),
            boot_ns: boot_ns as u64,
        }
    }

    fn span(start: i64, end: i64, duration: i64, step_ns: Option<i64>) -> TimeSpan {
        let [start, end] = [start, end].map(|at| timestamp(at.into()));
        TimeSpan {
            start,
            end,
            duration_ns: duration as u64,
            step_ns,
        }
    }

    #[test]
    fn the_wall_clock_may_be_set_in_a_window() {
        let s = SECOND;
        let opened = moment(100 * s, 7 * s);
        assert_eq!(
            opened.until(moment(110 * s, 17 * s)),
            span(100 * s, 110 * s, 10 * s, None)
        );
        // The clock is slewed.
        assert_eq!(
            opened.until(moment(110 * s + 3_000_000, 17 * s)),
            span(100 * s, 110 * s + 3_000_000, 10 * s, None)
        );
        // The clock is set forward, back, and back to a time before the start.
        assert_eq!(
            opened.until(moment(210 * s, 17 * s)),
            span(100 * s, 210 * s, 10 * s, Some(100 * s))
        );
        assert_eq!(
            opened.until(moment(107 * s, 17 * s)),
            span(100 * s, 107 * s, 10 * s, Some(-3 * s))
        );
        assert_eq!(
            opened.until(moment(60 * s, 17 * s)),
            span(50 * s, 60 * s, 10 * s, Some(-50 * s))
        );
    }

    /// The daemon that opened the window did not record CLOCK_BOOTTIME, so only the wall clock
    /// decides.
    #[test]
    fn without_the_other_clock_the_wall_clock_decides() {
        let opened = moment(100, 0);
        assert_eq!(opened.until(moment(110, 17)), span(100, 110, 10, None));
        assert_eq!(opened.until(moment(90 - SECOND, 17)).duration_ns, 0);
    }

    #[test]
    fn both_clocks_go_on() {
        let opened = Moment::now();
        std::thread::sleep(Duration::from_millis(2));
        let span = opened.until(Moment::now());
        assert!(
            span.duration_ns >= 2_000_000 && span.step_ns.is_none(),
            "{span:?}"
        );
    }
}
