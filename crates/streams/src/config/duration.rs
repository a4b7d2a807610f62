//! Times with a unit.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, de::Error as _};
use serde_json::Value;

/// The longest time for which a batch waits for more items in a stream with `once`.
pub const SOON: Duration = Duration::from_millis(200);

/// The time between two files.
pub const fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

/// Reads `500ms`, `10s`, `5m` or `1h`.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let time = value.as_str().and_then(parse);
    time.ok_or_else(|| {
        D::Error::custom(format!(
            "{value} is not a time; write it as 500ms, 10s, 5m or 1h"
        ))
    })
}

fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit.trim() {
        "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse("10s"), Some(Duration::from_secs(10)));
        assert_eq!(parse("5m"), Some(Duration::from_secs(300)));
        for wrong in ["", "10", "s", "0s", "1.5s", "-1s", "3 days"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
