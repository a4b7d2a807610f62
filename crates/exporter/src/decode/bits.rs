//! Little-endian numbers and bitfields in byte slices.

/// Where a bitfield is in the little-endian number that a field's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Less than 8.
    pub shift: u32,
    /// From 1 to 128.
    pub width: u32,
}

/// The number in up to 16 bytes.
pub fn load(bytes: &[u8]) -> u128 {
    let mut wide = [0; 16];
    let len = bytes.len().min(16);
    wide[..len].copy_from_slice(&bytes[..len]);
    u128::from_le_bytes(wide)
}

/// The same for the widths that nearly all fields have, without a copy.
pub fn load_small(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => load(bytes) as u64,
    }
}

/// The bits of a field; 128 bits that don't start on a byte take 17 bytes.
pub fn load_bits(bytes: &[u8], bits: Bits) -> u128 {
    let low = load(bytes) >> bits.shift;
    let high = bytes.get(16).map_or(0, |&byte| u128::from(byte));
    let high = if bits.shift == 0 { 0 } else { high << (128 - bits.shift) };
    (low | high) & mask(bits.width)
}

/// Replaces the bits of a field and leaves its neighbours alone.
pub fn store_bits(bytes: &mut [u8], bits: Bits, value: u128) {
    let value = value & mask(bits.width);
    for (index, byte) in (0_u32..).zip(bytes) {
        // What of `mask` and `value` lands in this byte.
        let window = |number: u128| {
            let moved = match (8 * index).checked_sub(bits.shift) {
                Some(right) => number.checked_shr(right).unwrap_or(0),
                None => number << bits.shift,
            };
            moved as u8
        };
        *byte = (*byte & !window(mask(bits.width))) | window(value);
    }
}

/// Copies bit `width - 1` into all bits above it.
pub const fn sign_extend(value: u128, width: u32) -> i128 {
    let unused = 128 - width;
    (value << unused).cast_signed() >> unused
}

pub const fn mask(width: u32) -> u128 {
    u128::MAX >> (128 - width)
}
