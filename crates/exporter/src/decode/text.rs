//! The text of renderings: ASCII that no format needs to escape.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// The digits of each octet with a dot after them, as a little-endian number, and the count of
/// these characters.
static OCTETS: [(u32, u32); 256] = {
    let mut octets = [(0, 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [
            b'0' + (octet / 100) as u8,
            b'0' + (octet / 10 % 10) as u8,
            b'0' + (octet % 10) as u8,
        ];
        octets[octet] = match octet {
            0..10 => (u32::from_le_bytes([digits[2], b'.', 0, 0]), 2),
            10..100 => (u32::from_le_bytes([digits[1], digits[2], b'.', 0]), 3),
            _ => (
                u32::from_le_bytes([digits[0], digits[1], digits[2], b'.']),
                4,
            ),
        };
        octet += 1;
    }
    octets
};

/// Returns `10.0.0.1` and its length, from the number that a little-endian machine loads from
/// network order. The text is composed in a register, so that one copy suffices.
pub fn ipv4(address: u32) -> ([u8; 16], usize) {
    let (mut text, mut len) = (0, 0);
    for octet in address.to_le_bytes() {
        let (digits, count) = OCTETS[usize::from(octet)];
        text |= u128::from(digits) << (8 * len);
        len += count;
    }
    (text.to_le_bytes(), len as usize - 1)
}

/// Appends an address of either family, such as `2001:db8::1`, from an IPv6 address in network
/// order.
pub fn ip(out: &mut String, bytes: &[u8]) {
    let address: [u8; 16] = bytes.try_into().unwrap_or_default();
    // Writing to a string does not fail.
    let _ = write!(out, "{}", Ipv6Addr::from(address).to_canonical());
}

/// Appends an address such as `02:00:00:00:00:01`.
pub fn mac(out: &mut String, bytes: &[u8]) {
    for (index, &byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.push(':');
        }
        out.extend([byte >> 4, byte & 15].map(|half| char::from(digit(half))));
    }
}

/// Appends `0x` and two digits for each byte, in the order given.
pub fn hex(out: &mut String, bytes: &[u8]) {
    out.push_str("0x");
    // The bytes are written in pieces of a fixed size, for which the compiler uses vector
    // instructions, because events carry kilobytes.
    let mut piece = [0; 256];
    for bytes in bytes.chunks(piece.len() / 2) {
        for (pair, &byte) in piece.as_chunks_mut().0.iter_mut().zip(bytes) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        out.push_str(std::str::from_utf8(&piece[..2 * bytes.len()]).unwrap_or_default());
    }
}

/// Appends text. Bytes that are not UTF-8, and NULs, become `\xff`. A backslash that looks like the
/// beginning of such an escape is also escaped, so that different bytes give different texts.
pub fn escaped(out: &mut String, bytes: &[u8]) {
    let mut rest = bytes;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\0' => escape(out, 0),
                '\\' if looks_escaped(rest) => escape(out, b'\\'),
                c => out.push(c),
            }
            rest = &rest[c.len_utf8()..];
        }
        chunk.invalid().iter().for_each(|&byte| escape(out, byte));
        rest = &rest[chunk.invalid().len()..];
    }
}

/// Tells whether bytes begin like an escape.
fn looks_escaped(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Appends a byte as `\xff`.
pub fn escape(out: &mut String, byte: u8) {
    out.push_str("\\x");
    out.extend([byte >> 4, byte & 15].map(|half| char::from(digit(half))));
}

const fn digit(value: u8) -> u8 {
    value + b'0' + if value > 9 { b'a' - b'0' - 10 } else { 0 }
}

/// Appends a time as RFC 3339 in UTC with nanoseconds, as everywhere in documents. Returns false,
/// and appends nothing, outside the years 0 to 9999, which RFC 3339 can't write.
pub fn time(out: &mut String, unix_ns: i128) -> bool {
    let (seconds, nanos) = (
        unix_ns.div_euclid(1_000_000_000),
        unix_ns.rem_euclid(1_000_000_000),
    );
    let (days, second) = (
        seconds.div_euclid(86_400),
        seconds.rem_euclid(86_400) as u32,
    );
    let Some((year, month, day)) = i32::try_from(days).ok().and_then(date) else {
        return false;
    };
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    let parts = [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, second / 3600),
        (14..16, second / 60 % 60),
        (17..19, second % 60),
        (20..29, nanos as u32),
    ];
    for (range, mut number) in parts {
        for digit in text[range].iter_mut().rev() {
            *digit += (number % 10) as u8;
            number /= 10;
        }
    }
    out.push_str(std::str::from_utf8(&text).unwrap_or_default());
    true
}

/// Returns year, month and day of a day counted from 1970-01-01, in the years 0 to 9999, which RFC
/// 3339 can write. Years are counted from March, so that the leap day is their last day.
fn date(days: i32) -> Option<(u32, u32, u32)> {
    const ERA: i32 = 146_097;
    // 0000-03-01
    let days = days.checked_add(719_468)?;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = u32::try_from(400 * era + year + next)
        .ok()
        .filter(|year| *year <= 9999)?;
    Some((year, month.unsigned_abs(), day.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rfc3339(unix_ns: i128) -> Option<String> {
        let mut out = String::new();
        time(&mut out, unix_ns).then_some(out)
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        for (bytes, text) in [
            (&b"caf\xc3\xa9"[..], "caf\u{e9}"),
            (b"a\xffb", "a\\xffb"),
            (b"a\\xffb", "a\\x5cxffb"),
            (b"C:\\x\\\xff", "C:\\x\\\\xff"),
            (b"a\0b", "a\\x00b"),
            (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
            ("\u{fffd}".as_bytes(), "\u{fffd}"),
        ] {
            let mut out = String::new();
            escaped(&mut out, bytes);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn times_have_nine_digits() {
        assert_eq!(
            rfc3339(0).as_deref(),
            Some("1970-01-01T00:00:00.000000000Z")
        );
        assert_eq!(
            rfc3339(1_795_255_200_000_000_071).as_deref(),
            Some("2026-11-21T10:00:00.000000071Z")
        );
        assert_eq!(
            rfc3339(-1).as_deref(),
            Some("1969-12-31T23:59:59.999999999Z")
        );
        let (year_0, year_10000) = (-62_167_219_200_000_000_000, 253_402_300_800_000_000_000);
        assert_eq!(
            rfc3339(year_0).as_deref(),
            Some("0000-01-01T00:00:00.000000000Z")
        );
        assert_eq!(
            rfc3339(year_10000 - 1).as_deref(),
            Some("9999-12-31T23:59:59.999999999Z")
        );
        for outside in [year_0 - 1, year_10000, i128::MIN, i128::MAX] {
            assert_eq!(rfc3339(outside), None);
        }
    }

    #[test]
    fn days_are_those_of_another_calendar() {
        let day = 86_400_000_000_000;
        for days in (-719_528_i128..2_932_000).step_by(7) {
            let time = jiff::Timestamp::from_nanosecond(days * day + 123).expect("in range");
            assert_eq!(rfc3339(days * day + 123), Some(format!("{time:.9}")));
        }
    }
}
