//! Conversion of values from one layout to another.

use std::ops::Range;

use crate::field::bits::{load, sign_extend};
use crate::layout::{Layout, Member, Render, Shape};

/// The conversion of values from one layout to another, computed once for all values of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    moves: Vec<Move>,
    /// The number of bytes of a value in the new layout.
    pub(super) size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Bytes {
        from: usize,
        to: usize,
        len: usize,
    },
    Number {
        from: BitWindow,
        signed: bool,
        to: BitWindow,
        cut: Overflow,
    },
}

/// The fate of a number that does not fit into its new field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// The upper bits are lost. This applies to flags, names, and numbers of the other sign.
    Bits,
    /// The result is the nearest number that fits: a wrapped count would look like a small one.
    Nearest { signed: bool },
}

/// Some bits of a value, counted from its start, least significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitWindow {
    start: usize,
    width: usize,
}

impl Conversion {
    /// Relates the fields of two layouts by their names.
    pub fn new(from: &Layout, to: &Layout) -> Self {
        let mut moves = Vec::new();
        relate(from, 0, to, 0, &mut moves);
        Self {
            moves,
            size: to.size,
        }
    }

    /// Tells whether no field of the old layout has a counterpart in the new one.
    pub const fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Copies the fields of one value, each cut or extended to its new width. Fields of `to`
    /// without a counterpart in `from` stay as they are. Both values have the size of their layout.
    pub fn value(&self, from: &[u8], to: &mut [u8]) {
        for &step in &self.moves {
            match step {
                Move::Bytes {
                    from: start,
                    to: end,
                    len,
                } => {
                    to[end..end + len].copy_from_slice(&from[start..start + len]);
                }
                Move::Number {
                    from: bits,
                    signed,
                    to: target,
                    cut,
                } => {
                    target.store(to, cut.number(bits.load(from, signed), target.width));
                }
            }
        }
    }
}

fn relate(from: &Layout, at: usize, to: &Layout, place: usize, moves: &mut Vec<Move>) {
    if is_same(from, to) {
        moves.push(Move::Bytes {
            from: at,
            to: place,
            len: to.size,
        });
        return;
    }
    match (&from.shape, &to.shape) {
        (Shape::Struct(old), Shape::Struct(new)) => {
            for new in new {
                if let Some(old) = old.iter().find(|old| old.name == new.name) {
                    relate_members(old, at, new, place, moves);
                }
            }
        }
        (
            Shape::Array {
                element: old,
                len: had,
            },
            Shape::Array { element: new, len },
        ) => {
            let len = *len.min(had);
            if is_same(old, new) {
                moves.push(Move::Bytes {
                    from: at,
                    to: place,
                    len: len * new.size,
                });
            } else {
                for index in 0..len {
                    relate(
                        old,
                        at + index * old.size,
                        new,
                        place + index * new.size,
                        moves,
                    );
                }
            }
        }
        (old, new) if is_number(old) && is_number(new) && !swapped(from) && !swapped(to) => {
            moves.push(Move::Number {
                from: BitWindow {
                    start: 8 * at,
                    width: 8 * from.size,
                },
                signed: is_signed(old),
                to: BitWindow {
                    start: 8 * place,
                    width: 8 * to.size,
                },
                cut: Overflow::of(from, to),
            });
        }
        _ => {}
    }
}

fn relate_members(old: &Member, at: usize, new: &Member, place: usize, moves: &mut Vec<Move>) {
    if old.bitfield.is_none() && new.bitfield.is_none() {
        relate(
            &old.layout,
            at + old.bit_offset / 8,
            &new.layout,
            place + new.bit_offset / 8,
            moves,
        );
    } else if is_number(&old.layout.shape) && is_number(&new.layout.shape) {
        let bits = |member: &Member, base: usize| BitWindow {
            start: 8 * base + member.bit_offset,
            width: member.bitfield.map_or(8 * member.layout.size, usize::from),
        };
        let signed = is_signed(&old.layout.shape);
        let cut = if old.bitfield.is_some() {
            Overflow::Bits
        } else {
            Overflow::of(&old.layout, &new.layout)
        };
        moves.push(Move::Number {
            from: bits(old, at),
            signed,
            to: bits(new, place),
            cut,
        });
    }
}

/// Tells whether the bytes of both layouts have the same meaning, independent of their rendering.
pub(super) fn is_same(a: &Layout, b: &Layout) -> bool {
    let members = |a: &[Member], b: &[Member]| {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| {
                (&a.name, a.bit_offset, a.bitfield) == (&b.name, b.bit_offset, b.bitfield)
                    && is_same(&a.layout, &b.layout)
            })
    };
    a.size == b.size
        && match (&a.shape, &b.shape) {
            (Shape::Struct(a), Shape::Struct(b)) | (Shape::Union(a), Shape::Union(b)) => {
                members(a, b)
            }
            (
                Shape::Array { element: a, len },
                Shape::Array {
                    element: b,
                    len: other,
                },
            ) => len == other && is_same(a, b),
            (Shape::Int { .. } | Shape::Enum { .. }, Shape::Int { .. } | Shape::Enum { .. }) => {
                swapped_by(a.render) == swapped_by(b.render)
            }
            (a, b) => a == b,
        }
}

const fn is_number(shape: &Shape) -> bool {
    matches!(shape, Shape::Int { .. } | Shape::Enum { .. } | Shape::Bool)
}

const fn is_signed(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::Int { signed: true } | Shape::Enum { signed: true, .. }
    )
}

const fn swapped(layout: &Layout) -> bool {
    swapped_by(layout.render)
}

/// Tells whether the bytes are in network order: such a number cannot be widened by moving its
/// bits.
const fn swapped_by(render: Option<Render>) -> bool {
    matches!(
        render,
        Some(Render::Be16 | Render::Be32 | Render::Be64 | Render::Ipv4)
    )
}

impl Overflow {
    fn of(from: &Layout, to: &Layout) -> Self {
        match (&from.shape, &to.shape, from.render, to.render) {
            (
                Shape::Int { signed },
                Shape::Int { signed: now },
                None | Some(Render::Histogram | Render::Decimal),
                None | Some(Render::Histogram | Render::Decimal),
            ) if signed == now => Self::Nearest { signed: *signed },
            _ => Self::Bits,
        }
    }

    fn number(self, number: u128, width: usize) -> u128 {
        match self {
            Self::Nearest { signed: true } if (1..128).contains(&width) => {
                let most = i128::MAX >> (128 - width);
                number.cast_signed().clamp(-most - 1, most).cast_unsigned()
            }
            Self::Nearest { signed: false } if (1..128).contains(&width) => {
                number.min(u128::MAX >> (128 - width))
            }
            _ => number,
        }
    }
}

impl BitWindow {
    /// Returns the bytes of a number that consists of whole bytes.
    fn whole(self) -> Option<Range<usize>> {
        let is_whole =
            self.start.is_multiple_of(8) && self.width.is_multiple_of(8) && self.width <= 128;
        is_whole.then(|| self.start / 8..(self.start + self.width) / 8)
    }

    fn load(self, bytes: &[u8], signed: bool) -> u128 {
        if let Some(whole) = self.whole() {
            let number = load(&bytes[whole]);
            return if signed && self.width > 0 {
                sign_extend(number, self.width as u32).cast_unsigned()
            } else {
                number
            };
        }
        let bit = |index: usize| u128::from(bytes[index / 8] >> (index % 8) & 1);
        let raw =
            (0..self.width.min(128)).fold(0, |raw, index| raw | bit(self.start + index) << index);
        let negative = signed && (1..128).contains(&self.width) && raw >> (self.width - 1) & 1 == 1;
        if negative {
            raw | u128::MAX << self.width
        } else {
            raw
        }
    }

    fn store(self, bytes: &mut [u8], number: u128) {
        if let Some(whole) = self.whole() {
            let len = whole.len();
            return bytes[whole].copy_from_slice(&number.to_le_bytes()[..len]);
        }
        for index in 0..self.width {
            let bit = if index < 128 {
                (number >> index & 1) as u8
            } else {
                0
            };
            let at = self.start + index;
            bytes[at / 8] = bytes[at / 8] & !(1 << (at % 8)) | bit << (at % 8);
        }
    }
}
