//! Random numbers that a seed repeats.

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator of random numbers (xorshift), which choose the next step of a test.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator with a seed from the clock, or with `TWINPROBE_SEED`. Prints the seed, so
    /// that a failed run can be repeated.
    pub fn new() -> Self {
        let chosen = std::env::var("TWINPROBE_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |time| time.as_nanos() as u64)
        };
        let seed: u64 = chosen.unwrap_or_else(now);
        println!("TWINPROBE_SEED={seed}");
        Self(seed | 1)
    }

    /// Makes a generator with this seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }

    /// Makes another generator, whose numbers are independent of this generator's later numbers.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self((self.below(u64::MAX) << 1) | 1)
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
