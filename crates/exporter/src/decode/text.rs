//! Renderings as text. All append ASCII that no format needs to escape.

use std::{fmt::Write as _, net::Ipv6Addr};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The digits of each octet and a dot, the first in the lowest byte, with their number.
static OCTETS: [(u32, u32); 256] = {
    let mut octets = [(0, 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [b'0' + (octet / 100) as u8, b'0' + (octet / 10 % 10) as u8, b'0' + (octet % 10) as u8];
        octets[octet] = match octet {
            0..10 => (u32::from_le_bytes([digits[2], b'.', 0, 0]), 2),
            10..100 => (u32::from_le_bytes([digits[1], digits[2], b'.', 0]), 3),
            _ => (u32::from_le_bytes([digits[0], digits[1], digits[2], b'.']), 4),
        };
        octet += 1;
    }
    octets
};

/// `10.0.0.1`, with its length, from what a little-endian machine loads from network order. Made in a register:
/// it is copied at once.
pub fn ipv4(address: u32) -> ([u8; 16], usize) {
    let (mut text, mut len) = (0, 0);
    for octet in address.to_le_bytes() {
        let (digits, count) = OCTETS[usize::from(octet)];
        text |= u128::from(digits) << (8 * len);
        len += count;
    }
    (text.to_le_bytes(), len as usize - 1)
}

/// `2001:db8::1` from network order.
pub fn ipv6(out: &mut String, bytes: &[u8]) {
    let address: [u8; 16] = bytes.try_into().unwrap_or_default();
    // Writing to a string does not fail.
    let _ = write!(out, "{}", Ipv6Addr::from(address));
}

/// `02:00:00:00:00:01`.
pub fn mac(out: &mut String, bytes: &[u8]) {
    for (index, &byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.push(':');
        }
        push_hex(out, byte);
    }
}

/// `0x` and two digits a byte, in the order given.
pub fn hex<'a>(out: &mut String, bytes: impl IntoIterator<Item = &'a u8>) {
    out.push_str("0x");
    for &byte in bytes {
        push_hex(out, byte);
    }
}

fn push_hex(out: &mut String, byte: u8) {
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// RFC 3339 in UTC with nanoseconds, as everywhere in documents; `None` outside the years it can write.
pub fn rfc3339(unix_ns: i128) -> Option<String> {
    let mut out = String::new();
    time(&mut out, unix_ns).then_some(out)
}

/// Appends [`rfc3339`]; false, and nothing appended, where there is none.
pub fn time(out: &mut String, unix_ns: i128) -> bool {
    match jiff::Timestamp::from_nanosecond(unix_ns) {
        Ok(time) if unix_ns >= YEAR_0 => write!(out, "{time:.9}").is_ok(),
        _ => false,
    }
}

/// 0000-01-01T00:00:00Z: RFC 3339 has no years before it.
const YEAR_0: i128 = -62_167_219_200 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nine_digits() {
        assert_eq!(rfc3339(0).as_deref(), Some("1970-01-01T00:00:00.000000000Z"));
        assert_eq!(rfc3339(1_795_255_200_000_000_071).as_deref(), Some("2026-11-21T10:00:00.000000071Z"));
        assert_eq!(rfc3339(-1).as_deref(), Some("1969-12-31T23:59:59.999999999Z"));
        assert_eq!(rfc3339(YEAR_0).as_deref(), Some("0000-01-01T00:00:00.000000000Z"));
        assert_eq!(rfc3339(YEAR_0 - 1), None);
        assert_eq!(rfc3339(i128::MAX), None);
    }
}
