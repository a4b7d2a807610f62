//! The kinds of numbers: how their bytes are read, and how numbers compare.

use super::plan::Scalar;

/// The way in which the bytes of a number are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafKind {
    /// An integer; `swapped` if it is in network order.
    Number {
        signed: bool,
        swapped: bool,
    },
    Bool,
    /// A float of 4 or 8 bytes.
    Float,
}

impl LeafKind {
    /// Returns the kind of such an integer.
    pub const fn of(scalar: &Scalar) -> Self {
        let signed = matches!(
            scalar,
            Scalar::Signed | Scalar::Decimal { signed: true } | Scalar::Enum { signed: true, .. }
        );
        let swapped = matches!(scalar, Scalar::Swapped);
        if matches!(scalar, Scalar::Bool) {
            Self::Bool
        } else {
            Self::Number { signed, swapped }
        }
    }
}

/// Converts the bits of numbers so that they compare like unsigned numbers.
pub const fn order(bits: u128, signed: bool) -> u128 {
    if signed { bits ^ (1 << 127) } else { bits }
}
