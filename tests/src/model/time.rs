//! The wall clock of the daemon, and the times in documents.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

/// The offsets of the daemon's clock from this clock, and the start of each offset.
#[derive(Debug, Default)]
pub struct Clock(Mutex<Vec<(i128, i128)>>);

/// The time in nanoseconds after which a change of the clock has taken effect everywhere.
const AROUND: i128 = 2_000_000_000;

impl Clock {
    /// Notes that the daemon's clock is ahead by this many nanoseconds from now on.
    pub fn set(&self, offset: i128) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((now(), offset));
    }

    /// Converts a time of the daemon's clock to this clock.
    pub fn real(&self, daemons: i128) -> Result<i128> {
        let eras = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut until = i128::MAX - AROUND;
        for (since, offset) in eras.iter().rev() {
            let real = daemons - offset;
            if real >= since - AROUND && real <= until + AROUND {
                return Ok(real);
            }
            until = *since;
        }
        let real = daemons;
        ensure!(
            real <= until + AROUND,
            "{daemons} is not a time that the clock has shown: {eras:?}"
        );
        Ok(real)
    }
}

/// Returns the nanoseconds since 1970.
pub fn now() -> i128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as i128)
}

/// Parses `YYYY-MM-DDTHH:MM:SS.NNNNNNNNNZ` into nanoseconds since 1970.
pub fn nanoseconds(text: &str) -> Result<i128> {
    parse(text).with_context(|| format!("{text} is not a time"))
}

fn parse(text: &str) -> Option<i128> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i128>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let seconds = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    // The year begins in March here, so that the leap day is its last day.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + seconds) * 1_000_000_000 + number(20, 29)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(nanoseconds("1970-01-01T00:00:00.000000001Z").unwrap(), 1);
        let time = nanoseconds("2026-11-21T10:00:00.500000000Z").unwrap();
        assert_eq!(time, 1_795_255_200_500_000_000);
        assert!(nanoseconds("2026").is_err());
    }
}
