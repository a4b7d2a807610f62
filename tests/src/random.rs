//! Chance that can be repeated.

use std::time::{SystemTime, UNIX_EPOCH};

/// Xorshift: good enough to choose what a test does next.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Another one each time, unless `TWINPROBE_SEED` says which; the seed is printed.
    pub fn new() -> Self {
        let chosen = std::env::var("TWINPROBE_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
        let seed: u64 = chosen.unwrap_or_else(now);
        println!("TWINPROBE_SEED={seed}");
        Self(seed | 1)
    }

    /// Always the same one.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }

    /// Another one that goes its own way.
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
