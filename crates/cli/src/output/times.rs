//! Times in tables: short, and in the local time zone. JSON and YAML have the daemon's own times.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Formats a time of the daemon as `2026-11-21 10:00:00`; leaves any other text as it is.
pub fn short(text: &str) -> String {
    formatted(text, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time with milliseconds.
pub fn precise(text: &str) -> String {
    formatted(text, "%Y-%m-%d %H:%M:%S.%3f")
}

/// Tells whether a text is a time in the form of documents, `2026-11-21T10:00:00.000000071Z`.
pub fn is_time(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00.000000000Z";
    let same = |(&wanted, is): (&u8, u8)| {
        if wanted == b'0' {
            is.is_ascii_digit()
        } else {
            wanted == is
        }
    };
    text.len() == SHAPE.len() && SHAPE.iter().zip(text.bytes()).all(same)
}

/// Returns how long ago a time was, such as `3 s`, `5 min` or `2 h`; nothing for a future time.
pub fn ago(text: &str, now: Timestamp) -> Option<String> {
    let seconds = u64::try_from(now.duration_since(text.parse().ok()?).as_secs()).ok()?;
    Some(match seconds {
        0..100 => format!("{seconds} s"),
        100..6_000 => format!("{} min", seconds / 60),
        6_000..200_000 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    })
}

fn formatted(text: &str, format: &str) -> String {
    let Ok(time) = text.parse::<Timestamp>() else {
        return text.to_owned();
    };
    time.to_zoned(TimeZone::system())
        .strftime(format)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_other_texts_stay() {
        // The zone of the machine shifts times by minutes, never by seconds.
        let time = short("2026-11-21T10:00:07.391065973Z");
        assert!(
            time.len() == 19 && time.ends_with(":07") && time.starts_with("2026-11-2"),
            "{time}"
        );
        assert!(precise("2026-11-21T10:00:07.391965973Z").ends_with(":07.391"));
        assert_eq!(short("never"), "never");
        assert!(is_time("2026-11-21T10:00:00.000000071Z"));
        assert!(!is_time("2026-11-21T10:00:00Z") && !is_time("2026-11-21T10:00:00.00000007xZ"));
    }

    #[test]
    fn the_time_since_is_rounded_down() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        for (then, expected) in [
            ("2026-11-21T09:59:57.5Z", Some("2 s")),
            ("2026-11-21T09:55:00Z", Some("5 min")),
            ("2026-11-21T00:00:00Z", Some("10 h")),
            ("2026-11-01T00:00:00Z", Some("20 days")),
            ("2026-11-21T10:00:05Z", None),
            ("x", None),
        ] {
            assert_eq!(ago(then, now).as_deref(), expected, "{then}");
        }
    }
}
