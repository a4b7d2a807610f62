//! Little-endian numbers and bitfields in byte slices.

/// The position of a bitfield in its bytes. The bytes are read as one little-endian number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The number of the lowest bit, less than 8.
    pub shift: u32,
    /// The number of bits, from 1 to 128.
    pub width: u32,
}

/// Returns the number that up to 16 bytes represent.
#[inline]
pub fn load(bytes: &[u8]) -> u128 {
    let mut wide = [0; 16];
    let len = bytes.len().min(16);
    wide[..len].copy_from_slice(&bytes[..len]);
    u128::from_le_bytes(wide)
}

/// Returns the number that up to 8 bytes represent. This is faster than [`load`], because nearly
/// all fields have sizes that need no copy.
#[inline]
pub fn load_small(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => load(bytes) as u64,
    }
}

/// Returns the bits of a field; 128 bits that don't start on a byte take 17 bytes.
#[inline]
pub fn load_bits(bytes: &[u8], bits: Bits) -> u128 {
    let low = load(bytes) >> bits.shift;
    let high = bytes.get(16).map_or(0, |&byte| u128::from(byte));
    let high = if bits.shift == 0 {
        0
    } else {
        high << (128 - bits.shift)
    };
    (low | high) & mask(bits.width)
}

/// Replaces the bits of a field; neighbouring bits stay unchanged.
pub fn store_bits(bytes: &mut [u8], bits: Bits, value: u128) {
    let value = value & mask(bits.width);
    for (index, byte) in (0_u32..).zip(bytes) {
        // The eight bits of a number that belong in this byte.
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

/// Returns a number whose lowest `width` bits, at least one, are set.
const fn mask(width: u32) -> u128 {
    u128::MAX >> (128 - width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_and_their_neighbours_stay() {
        for (shift, width) in [(0, 1), (3, 11), (7, 57), (5, 64), (0, 128), (7, 128)] {
            let bits = Bits { shift, width };
            let number = 0xf123_4567_89ab_cdef_fedc_ba98_7654_3211 & mask(width);
            for fill in [0, 0xff] {
                let mut bytes = vec![fill; (shift + width).div_ceil(8) as usize];
                store_bits(&mut bytes, bits, number);
                assert_eq!(load_bits(&bytes, bits), number, "{bits:?}");
                store_bits(&mut bytes, bits, if fill == 0 { 0 } else { u128::MAX });
                assert!(
                    bytes.iter().all(|&byte| byte == fill),
                    "{bits:?} {bytes:x?}"
                );
            }
        }
    }

    #[test]
    fn numbers_are_little_endian_and_keep_their_sign() {
        assert_eq!(
            (load(&[1, 2, 3]), load_small(&[1, 2, 3])),
            (0x03_0201, 0x03_0201)
        );
        assert_eq!(load_small(&[0xff; 8]), u64::MAX);
        assert_eq!(
            (sign_extend(0x7ff, 11), sign_extend(0x3ff, 11)),
            (-1, 0x3ff)
        );
    }
}
