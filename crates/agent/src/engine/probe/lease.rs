//! Leases: a probe whose configuration has `expires` is removed unless a PUT renews it.

use std::time::Duration;

use jiff::{Timestamp, Unit};
use twinprobe_kernel::clock::{Moment, rfc3339};

use crate::store::record::{StoredLease, StoredProbe};

/// A lease from the moment when it was granted. A change of the wall clock does not change its
/// length. Only after a reboot, the wall clock alone determines the remaining time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    granted: Moment,
    duration: Duration,
}

impl Lease {
    /// Grants a lease from now on.
    pub fn begin(duration: Duration) -> Self {
        Self {
            granted: Moment::now(),
            duration,
        }
    }

    /// Returns the lease of a stored probe, if the probe has one.
    pub fn recorded(probe: &StoredProbe, boot_id: &str) -> Option<Self> {
        probe
            .lease
            .as_ref()
            .and_then(|lease| Self::of(lease, boot_id))
    }

    /// Returns the lease that is in a record, read during the boot with the id `boot_id`; `None` if
    /// the time in the record can't be read.
    fn of(stored: &StoredLease, boot_id: &str) -> Option<Self> {
        let wall = stored.granted.parse().ok()?;
        let boot_ns = if stored.boot_id == boot_id {
            stored.boot_ns
        } else {
            0
        };
        Some(Self {
            granted: Moment { wall, boot_ns },
            duration: Duration::from_nanos(stored.duration_ns),
        })
    }

    /// Returns the lease in the form of a record.
    pub fn stored(self, boot_id: &str) -> StoredLease {
        StoredLease {
            granted: rfc3339(self.granted.wall),
            boot_ns: self.granted.boot_ns,
            boot_id: boot_id.to_owned(),
            duration_ns: u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the lease, extended by `more`.
    pub fn extended(self, more: Duration) -> Self {
        Self {
            duration: self.duration.saturating_add(more),
            ..self
        }
    }

    /// Returns the time until the lease ends; zero once it has ended.
    pub fn left(self) -> Duration {
        self.left_at(Moment::now())
    }

    fn left_at(self, now: Moment) -> Duration {
        self.duration
            .saturating_sub(Duration::from_nanos(self.granted.until(now).duration_ns))
    }

    /// Returns the end of the lease by the present setting of the wall clock, in RFC 3339.
    pub fn expires_at(self) -> String {
        rfc3339(self.expires_at_by(Moment::now()))
    }

    fn expires_at_by(self, now: Moment) -> Timestamp {
        let end = self
            .granted
            .wall
            .saturating_add(self.duration)
            .unwrap_or(Timestamp::MAX);
        let Some(step) = self.granted.until(now).step_ns else {
            return end;
        };
        // Two answers must not differ by the time between two readings of the clocks.
        let set = end
            .saturating_add(Duration::from_nanos(step.unsigned_abs()))
            .unwrap_or(Timestamp::MAX);
        let set = if step < 0 {
            end.saturating_sub(Duration::from_nanos(step.unsigned_abs()))
                .unwrap_or(Timestamp::MIN)
        } else {
            set
        };
        set.round(Unit::Millisecond).unwrap_or(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn moment(wall: &str, seconds: u64) -> Moment {
        Moment {
            wall: wall.parse().unwrap(),
            boot_ns: seconds * SECOND,
        }
    }

    fn lease() -> Lease {
        Lease {
            granted: moment("2026-11-22T10:00:00.5Z", 100),
            duration: Duration::from_secs(600),
        }
    }

    #[test]
    fn a_clock_that_is_set_does_not_change_a_lease() {
        for (wall, expires_at) in [
            ("2026-11-22T10:05:00.5Z", "2026-11-22T10:10:00.500000000Z"),
            // The wall clock is set forward by a year, and back by a day.
            ("2027-11-22T10:05:00.5Z", "2027-11-22T10:10:00.500000000Z"),
            ("2026-11-21T10:05:00.5Z", "2026-11-21T10:10:00.500000000Z"),
        ] {
            let now = moment(wall, 400);
            assert_eq!(lease().left_at(now), Duration::from_secs(300), "{wall}");
            assert_eq!(rfc3339(lease().expires_at_by(now)), expires_at);
        }
        assert_eq!(
            lease().left_at(moment("2026-11-22T10:00:01Z", 700)),
            Duration::ZERO
        );
        assert_eq!(
            lease()
                .extended(Duration::from_secs(1))
                .left_at(moment("2026-11-22T10:10:00.5Z", 700))
                .as_secs(),
            1
        );
    }

    #[test]
    fn after_a_reboot_the_wall_clock_counts() {
        let stored = lease().stored("boot 1");
        assert_eq!(Lease::of(&stored, "boot 1"), Some(lease()));
        let after = Lease::of(&stored, "boot 2").unwrap();
        assert_eq!(
            after.left_at(moment("2026-11-22T10:04:00.5Z", 3)),
            Duration::from_secs(360)
        );
        assert_eq!(
            after.left_at(moment("2026-11-22T11:00:00Z", 3)),
            Duration::ZERO
        );
        assert_eq!(
            after.left_at(moment("2026-11-22T09:00:00Z", 3)),
            Duration::from_secs(600),
            "set back"
        );
        assert_eq!(
            Lease::of(&after.stored("boot 2"), "boot 2"),
            Some(after),
            "it stays with the wall clock"
        );
        assert_eq!(
            Lease::of(
                &StoredLease {
                    granted: "?".into(),
                    ..stored
                },
                "boot 1"
            ),
            None
        );
    }
}
