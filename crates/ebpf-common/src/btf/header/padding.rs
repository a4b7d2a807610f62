//! The offsets at which C places the members of a struct, and the padding that moves them to the
//! kernel's offsets.

use std::cell::RefCell;

use super::super::blob::Btf;
use super::super::types::{BtfKind, BtfMember};

/// The types that fill gaps, each with its number of bits.
const FILLERS: [(&str, u32); 4] = [("long", 64), ("int", 32), ("short", 16), ("char", 8)];
/// The deepest nesting of structs and arrays.
const MAX_DEPTH: usize = 32;
const POINTER: u32 = 8;

/// A member with its place in the struct.
pub(super) struct Place {
    /// The number of bits from the start of the struct.
    pub offset: u32,
    /// The width of a bitfield; `None` for other members.
    pub width: Option<u32>,
    /// The number of bits of the member's type, and the alignment of the type in bits.
    bits: u32,
    alignment: u32,
}

/// The alignments of types. The alignment of each type is computed once.
pub(super) struct Alignments<'a> {
    btf: &'a Btf,
    /// The alignments in bytes, by the type's number minus one; 0 for an alignment that is not
    /// known yet.
    known: RefCell<Vec<u8>>,
}

impl<'a> Alignments<'a> {
    pub fn new(btf: &'a Btf) -> Self {
        Self {
            btf,
            known: RefCell::new(vec![0; btf.types.len()]),
        }
    }

    /// Returns the place of a member.
    pub fn place(&self, field: &BtfMember) -> Place {
        let bits = u32::try_from(self.btf.size_of(field.type_id).unwrap_or(0))
            .unwrap_or(0)
            .saturating_mul(8);
        let alignment = 8 * self.alignment(field.type_id, 0);
        let (mut offset, mut width) = (field.bit_offset, u32::from(field.bits));
        // Early compilers put the bits of a bitfield into its type.
        if let Ok(BtfKind::Int {
            size,
            bit_offset,
            bits,
            ..
        }) = self.btf.strip(field.type_id).map(|stripped| stripped.kind)
            && u32::from(*bits) < 8 * size
        {
            offset += u32::from(*bit_offset);
            width = u32::from(*bits);
        }
        Place {
            offset,
            width: (width > 0).then_some(width),
            bits,
            alignment: alignment.max(8),
        }
    }

    /// Returns the alignment of a type in bytes; 1 for a type without an alignment.
    fn alignment(&self, id: u32, depth: usize) -> u32 {
        let index = (id as usize).wrapping_sub(1);
        match self.known.borrow().get(index) {
            Some(0) => {}
            known => return known.map_or(1, |known| u32::from(*known)),
        }
        let found = self.find(id, depth);
        self.known.borrow_mut()[index] = found as u8;
        found
    }

    fn find(&self, id: u32, depth: usize) -> u32 {
        let Some(kind) = self
            .btf
            .strip(id)
            .ok()
            .map(|stripped| stripped.kind)
            .filter(|_| depth < MAX_DEPTH)
        else {
            return 1;
        };
        match kind {
            BtfKind::Int { size, .. } => (*size).clamp(1, 16),
            BtfKind::Float { size } | BtfKind::Enum { size, .. } => (*size).clamp(1, 8),
            BtfKind::Pointer(_) => POINTER,
            BtfKind::Array { element, .. } => self.alignment(*element, depth + 1),
            BtfKind::Struct { size, members } | BtfKind::Union { size, members } => {
                let largest = self.largest(members, depth);
                if self.is_packed_with(*size, members, largest) {
                    1
                } else {
                    largest
                }
            }
            _ => 1,
        }
    }

    /// Returns the largest alignment of members, in bytes.
    fn largest(&self, members: &[BtfMember], depth: usize) -> u32 {
        members
            .iter()
            .map(|member| self.alignment(member.type_id, depth + 1))
            .max()
            .unwrap_or(1)
    }

    /// Tells whether C needs `packed` to place the members at these offsets.
    pub fn is_packed(&self, size: u32, members: &[BtfMember]) -> bool {
        self.is_packed_with(size, members, self.largest(members, 0))
    }

    fn is_packed_with(&self, size: u32, members: &[BtfMember], largest: u32) -> bool {
        let misplaced = |place: &Place| match place.width {
            None => !place.offset.is_multiple_of(place.alignment),
            Some(width) => place.bits > 0 && place.offset % place.bits + width > place.bits,
        };
        !size.is_multiple_of(largest)
            || members
                .iter()
                .map(|member| self.place(member))
                .any(|place| misplaced(&place))
    }
}

impl Place {
    /// Returns the offset at which C places the member after this many bits.
    pub fn natural(&self, after: u32, packed: bool) -> u32 {
        match self.width {
            Some(width) if !packed && self.bits > 0 && after % self.bits + width > self.bits => {
                after.next_multiple_of(self.bits)
            }
            Some(_) => after,
            None if packed => after.next_multiple_of(8),
            None => after.next_multiple_of(self.alignment),
        }
    }

    /// Returns the first bit after the member.
    pub fn end(&self) -> u32 {
        self.offset.saturating_add(self.width.unwrap_or(self.bits))
    }
}

/// Returns nameless bitfields that fill the bits from `at` to `next`. C places each of them exactly
/// where the previous one ends.
pub(super) fn filling(mut at: u32, next: u32) -> Vec<(&'static str, u32)> {
    let mut fillers = Vec::new();
    while at < next {
        let rest = next - at;
        let whole = FILLERS
            .into_iter()
            .find(|(_, bits)| at.is_multiple_of(*bits) && *bits <= rest);
        let (name, bits) = whole.unwrap_or(("char", rest.min(8 - at % 8)));
        fillers.push((name, bits));
        at += bits;
    }
    fillers
}
