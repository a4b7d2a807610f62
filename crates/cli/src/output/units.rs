//! Numbers with units, for people.

const STEPS: [&str; 5] = ["", "k", "M", "G", "T"];
const BINARY: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Formats a number by thousands: `940`, `12.3k`, `1.50M`.
pub fn count(number: f64) -> String {
    scaled(number, 1000.0, &STEPS, "")
}

/// Formats bytes by 1024: `940 B`, `12.3 KiB`.
pub fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &BINARY, " ")
}

/// Formats a rate under a title: bytes if the title has bytes, other numbers by powers of 1000.
pub fn rate(title: &str, number: f64) -> String {
    let is_bytes = title
        .split(['_', '.', ' '])
        .any(|word| word == "bytes" || word == "octets");
    format!(
        "{}/s",
        if is_bytes {
            bytes(number)
        } else {
            count(number)
        }
    )
}

/// Formats nanoseconds: `87 ns`, `1.20 us`, `4.00 s`.
pub fn nanoseconds(number: f64) -> String {
    scaled(number, 1000.0, &["ns", "us", "ms", "s"], " ")
}

fn scaled(number: f64, step: f64, units: &[&str], gap: &str) -> String {
    let (mut left, mut unit) = (number.abs(), 0);
    // A number that rounds to a thousand is shown in the next unit.
    while unit + 1 < units.len() && left >= step - 0.5 {
        (left, unit) = (left / step, unit + 1);
    }
    let digits = match left {
        _ if unit == 0 && left.fract() == 0.0 => 0,
        _ if left >= 99.95 => 0,
        _ if left >= 9.995 => 1,
        _ => 2,
    };
    let sign = if number < 0.0 { "-" } else { "" };
    let gap = if units[unit].is_empty() { "" } else { gap };
    format!("{sign}{left:.digits$}{gap}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_say_enough() {
        for (number, expected) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.25, "0.25"),
            (940.0, "940"),
            (999.7, "1.00k"),
            (12_345.0, "12.3k"),
            (1.5e6, "1.50M"),
        ] {
            assert_eq!(count(number), expected);
        }
        assert_eq!(
            (bytes(940.0).as_str(), bytes(12_595.0).as_str()),
            ("940 B", "12.3 KiB")
        );
        assert_eq!(nanoseconds(1_200.0), "1.20 us");
        assert_eq!(count(-1234.0), "-1.23k");
    }

    #[test]
    fn rates_of_bytes_are_in_bytes() {
        assert_eq!(rate("bytes_total", 2048.0), "2.00 KiB/s");
        assert_eq!(rate("packets", 2048.0), "2.05k/s");
    }
}
