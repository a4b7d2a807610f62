//! Times as people write them: `yesterday 14:00`, by the clock of this machine.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// Tells which end of a range the time is. The hour that comes twice when summer time ends belongs
/// to a range as a whole.
#[derive(Clone, Copy)]
enum End {
    Begin,
    Last,
}

/// Reads the begin of a range, or a single time.
pub fn begin(text: &str) -> Result<Timestamp, String> {
    read(text, &Zoned::now(), End::Begin)
}

/// Reads the end of a range.
pub fn end(text: &str) -> Result<Timestamp, String> {
    read(text, &Zoned::now(), End::Last)
}

/// Returns a begin in the words of the daemon. Times before now are left to the daemon's own clock.
pub fn asked_begin(text: &str) -> Result<String, String> {
    asked(text, begin)
}

/// Reads the end of a range.
pub fn asked_end(text: &str) -> Result<String, String> {
    asked(text, end)
}

fn asked(text: &str, read: impl Fn(&str) -> Result<Timestamp, String>) -> Result<String, String> {
    match text == "now" || text.starts_with('-') && text.parse::<SignedDuration>().is_ok() {
        true => Ok(text.to_owned()),
        false => Ok(read(text)?.to_string()),
    }
}

fn read(text: &str, now: &Zoned, end: End) -> Result<Timestamp, String> {
    let text = text.trim();
    absolute(text, now).or_else(|| local(text, now, end)).ok_or_else(|| {
        "not a time such as `yesterday 14:00`, `2026-11-21 10:00`, 10:00 (today), `monday 9:30`, \
         2026-11-21T10:00:00Z, now, -1h (an hour ago) and -2d"
            .to_owned()
    })
}

/// Reads a time that does not depend on the time zone, and a time before now.
fn absolute(text: &str, now: &Zoned) -> Option<Timestamp> {
    if text == "now" {
        return Some(now.timestamp());
    }
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    // A day is a day of the calendar: it has 23 or 25 hours when the clocks change.
    let before: Span = text.parse().ok()?;
    before
        .is_negative()
        .then(|| now.checked_add(before).ok())?
        .map(|time| time.timestamp())
}

/// Reads a time by the clock of this machine.
fn local(text: &str, now: &Zoned, end: End) -> Option<Timestamp> {
    let time = text
        .parse::<DateTime>()
        .ok()
        .or_else(|| in_words(text, now))?;
    let time = now.time_zone().to_ambiguous_timestamp(time);
    match end {
        End::Begin => time.compatible(),
        End::Last => time.later(),
    }
    .ok()
}

fn in_words(text: &str, now: &Zoned) -> Option<DateTime> {
    let mut words = text.split_whitespace().filter(|word| *word != "at");
    let first = words.next()?;
    let (day, time) = match day(first, now) {
        Some(day) => (day, words.next()),
        None => (now.date(), Some(first)),
    };
    let time = match time {
        Some(time) => Time::strptime("%H:%M:%S", time)
            .or_else(|_| Time::strptime("%H:%M", time))
            .ok()?,
        None => Time::midnight(),
    };
    words.next().is_none().then(|| day.to_datetime(time))
}

/// Reads a day. A day of the week is the last such day before today.
fn day(word: &str, now: &Zoned) -> Option<Date> {
    let today = now.date();
    let weekday = match &*word.to_lowercase() {
        "today" => return Some(today),
        "yesterday" => return today.yesterday().ok(),
        "mon" | "monday" => Weekday::Monday,
        "tue" | "tuesday" => Weekday::Tuesday,
        "wed" | "wednesday" => Weekday::Wednesday,
        "thu" | "thursday" => Weekday::Thursday,
        "fri" | "friday" => Weekday::Friday,
        "sat" | "saturday" => Weekday::Saturday,
        "sun" | "sunday" => Weekday::Sunday,
        _ => return word.parse().ok(),
    };
    today.nth_weekday(-1, weekday).ok()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// The clock of Berlin. Its summer time ended on 2026-10-25 at 3:00.
    fn at(time: &str) -> Zoned {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        time.parse::<DateTime>().unwrap().to_zoned(zone).unwrap()
    }

    #[test]
    fn times_are_those_of_the_clock_here() {
        let now = at("2026-11-26 16:30");
        for (text, expected) in [
            ("yesterday 14:00", "2026-11-25T13:00:00Z"),
            ("Yesterday at 9:05", "2026-11-25T08:05:00Z"),
            ("yesterday", "2026-11-24T23:00:00Z"),
            ("today", "2026-11-25T23:00:00Z"),
            ("14:00", "2026-11-26T13:00:00Z"),
            ("14:00:30", "2026-11-26T13:00:30Z"),
            ("monday 14:00", "2026-11-23T13:00:00Z"),
            // Today is a Thursday, so a Thursday without a date means the Thursday of last week.
            ("thu 14:00", "2026-11-19T13:00:00Z"),
            ("2026-11-21", "2026-11-20T23:00:00Z"),
            ("2026-11-21 10:00", "2026-11-21T09:00:00Z"),
            ("2026-11-21 9:00", "2026-11-21T08:00:00Z"),
            ("2026-11-21T10:00:00", "2026-11-21T09:00:00Z"),
            ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00Z"),
            ("2026-11-21T10:00:00+02:00", "2026-11-21T08:00:00Z"),
            ("now", "2026-11-26T15:30:00Z"),
            ("-1h", "2026-11-26T14:30:00Z"),
            ("-1h30m", "2026-11-26T14:00:00Z"),
            ("-2d", "2026-11-24T15:30:00Z"),
            ("2h ago", "2026-11-26T13:30:00Z"),
        ] {
            assert_eq!(
                read(text, &now, End::Begin).map(|time| time.to_string()),
                Ok(expected.into()),
                "{text}"
            );
        }
        for wrong in [
            "",
            "yesterday 25:00",
            "2pm",
            "1h",
            "2026-13-01",
            "yesterday 14:00 15:00",
            "yesterday14:00",
            "14",
        ] {
            assert!(
                read(wrong, &now, End::Begin)
                    .unwrap_err()
                    .contains("`yesterday 14:00`"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_day_on_which_the_clocks_change_is_a_day() {
        let now = at("2026-10-26 14:00");
        let time = |text, end| read(text, &now, end).unwrap().to_string();
        assert_eq!(time("-1d", End::Begin), "2026-10-25T13:00:00Z");
        assert_eq!(
            time("-2d", End::Begin),
            "2026-10-24T12:00:00Z",
            "in summer time"
        );
        assert_eq!(time("sat 14:00", End::Begin), "2026-10-24T12:00:00Z");
        // On this day the clock shows 2:30 twice. A range contains both moments.
        assert_eq!(time("yesterday 2:30", End::Begin), "2026-10-25T00:30:00Z");
        assert_eq!(time("yesterday 2:30", End::Last), "2026-10-25T01:30:00Z");
        // 2:30 is left out in spring.
        let now = at("2026-03-29 14:00");
        let missing = read("2:30", &now, End::Begin).unwrap();
        assert_eq!(missing.to_string(), "2026-03-29T01:30:00Z");
    }

    #[test]
    fn times_before_now_are_by_the_clock_of_the_daemon() {
        assert_eq!(asked_begin("-1h").as_deref(), Ok("-1h"));
        assert_eq!(asked_end("now").as_deref(), Ok("now"));
        assert_eq!(
            asked_begin("2026-11-21T10:00:00+02:00").as_deref(),
            Ok("2026-11-21T08:00:00Z")
        );
        assert!(
            asked_begin("-1d").unwrap().ends_with('Z'),
            "the daemon knows no days"
        );
        assert!(asked_end("soon").is_err());
    }
}
