//! Short pieces of text, which make up most of a document. The encoder copies a piece of up to
//! [`Fragment::INLINE`] bytes with a length that the compiler knows, and then cuts it. That is
//! several times as fast as a call to copy the exact length.

use std::io::Write as _;

/// A text that is written repeatedly, such as the name of a member.
#[derive(Clone, Debug)]
pub struct Fragment {
    inline: [u8; Self::INLINE],
    len: usize,
    /// The text if it is longer than `inline`, else empty.
    long: Box<[u8]>,
}

impl Fragment {
    const INLINE: usize = 32;

    /// Makes a fragment from a text.
    pub fn new(text: &[u8]) -> Self {
        let mut inline = [0; Self::INLINE];
        let mut long = Box::default();
        match inline.get_mut(..text.len()) {
            Some(start) => start.copy_from_slice(text),
            None => long = text.into(),
        }
        Self {
            inline,
            len: text.len(),
            long,
        }
    }

    /// Appends the text.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        if self.len <= Self::INLINE {
            push_short(out, &self.inline, self.len);
        } else {
            out.extend_from_slice(&self.long);
        }
    }
}

/// Appends the first `len` bytes.
pub fn push_short<const N: usize>(out: &mut Vec<u8>, bytes: &[u8; N], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(bytes);
    out.truncate(end);
}

const BLOCK: u64 = 100_000_000;

/// Appends a number in decimal. Eight digits at a time are made in a register: if digits were
/// stored one by one, the copy of the whole number would have to wait for these stores.
#[inline]
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    // Many counters and flags have one digit.
    match number {
        0..10 => out.push(b'0' + number as u8),
        10..BLOCK => push_first(out, number),
        _ => push_large(out, number),
    }
}

/// Appends a number of nine digits or more.
fn push_large(out: &mut Vec<u8>, number: u64) {
    let (mut head, last) = (number / BLOCK, number % BLOCK);
    if head >= BLOCK {
        push_first(out, head / BLOCK);
        head %= BLOCK;
        out.extend_from_slice(&ascii(digits(head)));
        return out.extend_from_slice(&ascii(digits(last)));
    }
    let (head, last) = (digits(head), digits(last));
    let zeros = head.trailing_zeros() / 8;
    let both = (u128::from(head) | (u128::from(last) << 64)) >> (8 * zeros);
    let text = (both | u128::from_le_bytes([b'0'; 16])).to_le_bytes();
    push_short(out, &text, 16 - zeros as usize);
}

/// Appends a number below [`BLOCK`] without leading zeros.
fn push_first(out: &mut Vec<u8>, number: u64) {
    let digits = digits(number);
    let zeros = (digits.trailing_zeros() / 8).min(7);
    push_short(out, &ascii(digits >> (8 * zeros)), 8 - zeros as usize);
}

const fn ascii(digits: u64) -> [u8; 8] {
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

/// Returns the eight digits of a number below [`BLOCK`], one per byte, the first in the lowest
/// byte. Both halves of four digits are split at once, then the quarters; multiplying by 10486 /
/// 2^20 and by 103 / 2^10 divides by 100 and by 10.
const fn digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | ((fours - hundreds * 100) << 16);
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((twos - tens * 10) << 8)
}

/// Appends a string literal of JSON.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut clean = 0;
    for (index, &byte) in text.as_bytes().iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[clean..index]);
        clean = index + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            // Writing to a Vec does not fail.
            _ => drop(write!(out, "\\u{byte:04x}")),
        }
    }
    out.extend_from_slice(&text.as_bytes()[clean..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let powers = (0..20).map(|exponent| 10_u64.pow(exponent));
        let near = powers.flat_map(|power| [power - 1, power, power + 1, power.wrapping_mul(7)]);
        for number in near.chain(0..100_000).chain([u64::MAX]) {
            let mut out = b"x".to_vec();
            push_number(&mut out, number);
            assert_eq!(String::from_utf8(out), Ok(format!("x{number}")));
        }
    }

    #[test]
    fn any_length_is_kept() {
        for len in 0..70 {
            let text = vec![b'a'; len];
            let mut out = vec![b'x'];
            Fragment::new(&text).push_to(&mut out);
            assert_eq!(out.len(), 1 + len);
        }
    }
}
