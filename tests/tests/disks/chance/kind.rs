//! The kinds of probes of the random test.

use serde_json::{Value, json};

use crate::scene::Spec;

/// The collectors that some probes name.
pub const COLLECTORS: [&str; 2] = ["archive", "ledger"];

/// The facts about a probe that only a replacement keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The bytes of an entry of the hash.
    pub size: u64,
    /// The number of windows that are kept, if the configuration has a `window`.
    pub retain: Option<usize>,
    /// True if the clock closes windows.
    pub has_interval: bool,
    pub collectors: &'static [&'static str],
}

impl Kind {
    /// Returns one of the kinds.
    pub fn of(number: u64) -> Self {
        let retain = [None, None, Some(3), Some(1000), Some(1000)][(number % 5) as usize];
        let has_interval = retain.is_some() && (number / 5).is_multiple_of(6);
        Self {
            size: [16, 1000, 16 << 10, 16 << 10][(number / 30 % 4) as usize],
            // Many windows are closed within a second.
            retain: retain.map(|retain: usize| if has_interval { retain.min(20) } else { retain }),
            has_interval,
            collectors: if retain.is_some() && (number / 120).is_multiple_of(2) {
                &COLLECTORS
            } else {
                &[]
            },
        }
    }

    pub fn spec(&self, variant: u64, reset: bool, expires: Option<&'static str>) -> Spec {
        let window = self.retain.map(|retain| {
            let mut window = json!({ "retain": retain, "collectors": self.collectors });
            if self.has_interval {
                window["interval"] = Value::from("40ms");
            }
            window
        });
        Spec {
            size: self.size,
            variant,
            window,
            reset,
            expires,
        }
    }
}
