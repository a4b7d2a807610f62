//! Values of one layout as values of another, by the names of their fields: what a new version of a source
//! still calls the same keeps its content, whatever has become of its place and width.

use crate::{Layout, Member, RawTable, Render, Shape, TableLayout};

/// From values of one layout to values of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    moves: Vec<Move>,
    size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Bytes { from: usize, to: usize, len: usize },
    Number { from: Bits, signed: bool, to: Bits },
}

/// Bits of a value, from its start, least significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    start: usize,
    width: usize,
}

impl Conversion {
    pub fn new(from: &Layout, to: &Layout) -> Self {
        let mut moves = Vec::new();
        relate(from, 0, to, 0, &mut moves);
        Self { moves, size: to.size }
    }

    /// What has no counterpart in `from` stays as it is in `to`.
    pub fn value(&self, from: &[u8], to: &mut [u8]) {
        for &step in &self.moves {
            match step {
                Move::Bytes { from: start, to: end, len } => {
                    to[end..end + len].copy_from_slice(&from[start..start + len]);
                }
                Move::Number { from: bits, signed, to: target } => {
                    target.store(to, bits.load(from, signed));
                }
            }
        }
    }
}

/// A table's rows in another layout; `None` if the two are different kinds of tables or have different keys. New
/// fields are zero.
pub fn convert(table: &RawTable, from: &TableLayout, to: &TableLayout) -> Option<RawTable> {
    convert_onto(&vec![0; to.value.size], table, from, to)
}

/// As [`convert`], also between machines with different numbers of CPUs: what is returned is to be added up. CPUs
/// that are new have zeros. The values of CPUs that are no more come first, each in a table of its own, as values
/// of the first CPU.
pub fn convert_slots(table: &RawTable, from: &TableLayout, to: &TableLayout) -> Option<Vec<RawTable>> {
    if !from.kind.is_percpu() || from.slots == to.slots {
        return Some(vec![convert(table, from, to)?]);
    }
    let one = |layout: &TableLayout| TableLayout { slots: 1, ..layout.clone() };
    let stride = to.slot_stride();
    // The values of one CPU.
    let of_cpu = |slot: usize| {
        let values = table
            .entries(from)
            .flat_map(|(_, value)| value[slot * from.slot_stride()..][..from.slot_stride()].iter().copied());
        let own = RawTable { keys: table.keys.clone(), values: values.collect(), ..RawTable::default() };
        convert(&own, &one(from), &one(to)).map(|own| own.values)
    };
    let spread = |columns: &[Vec<u8>]| {
        let mut values = vec![0; table.len(from) * to.value_stride()];
        for (row, value) in values.chunks_exact_mut(to.value_stride().max(1)).enumerate() {
            for (slot, column) in value.chunks_exact_mut(stride.max(1)).zip(columns) {
                slot.copy_from_slice(&column[row * stride..][..stride]);
            }
        }
        RawTable { keys: table.keys.clone(), values, ..RawTable::default() }
    };
    let mut columns = (0..from.slots).map(of_cpu).collect::<Option<Vec<_>>>()?;
    let gone = columns.split_off(to.slots.min(columns.len()));
    Some(gone.into_iter().map(|column| spread(&[column])).chain([spread(&columns)]).collect())
}

/// Whether anything of a table in one layout has a counterpart in the other.
pub fn carries(from: &TableLayout, to: &TableLayout) -> bool {
    let mut moves = Vec::new();
    relate(&from.value, 0, &to.value, 0, &mut moves);
    !moves.is_empty()
        && convert(&RawTable::default(), &TableLayout { slots: to.slots, ..from.clone() }, to).is_some()
}

/// As [`convert`], where new fields are as in the value `blank`.
pub fn convert_onto(
    blank: &[u8],
    table: &RawTable,
    from: &TableLayout,
    to: &TableLayout,
) -> Option<RawTable> {
    if from.kind != to.kind || from.slots != to.slots || from.kind.is_nested() || !is_same(&from.key, &to.key)
    {
        return None;
    }
    let conversion = Conversion::new(&from.value, &to.value);
    let mut out = RawTable { keys: table.keys.clone(), ..RawTable::default() };
    let mut value = vec![0; to.slot_stride()];
    for (_, slots) in table.entries(from) {
        for slot in slots.chunks_exact(from.slot_stride().max(1)) {
            value[..conversion.size].copy_from_slice(blank);
            conversion.value(slot, &mut value[..conversion.size]);
            out.values.extend_from_slice(&value);
        }
    }
    Some(out)
}

/// Offset and size of every number that can be added to, one by one: 4 or 8 bytes, in the machine's own order.
pub fn counters(layout: &Layout) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    collect_counters(layout, 0, &mut found);
    found
}

fn collect_counters(layout: &Layout, offset: usize, found: &mut Vec<(usize, usize)>) {
    match &layout.shape {
        Shape::Int { .. }
            if matches!(layout.size, 4 | 8)
                && layout.render.is_none()
                && offset.is_multiple_of(layout.size) =>
        {
            found.push((offset, layout.size));
        }
        Shape::Struct(members) => {
            for member in members.iter().filter(|member| member.bitfield.is_none()) {
                collect_counters(&member.layout, offset + member.bit_offset / 8, found);
            }
        }
        Shape::Array { element, len } => {
            for index in 0..*len {
                collect_counters(element, offset + index * element.size, found);
            }
        }
        _ => {}
    }
}

fn relate(from: &Layout, at: usize, to: &Layout, place: usize, moves: &mut Vec<Move>) {
    if is_same(from, to) {
        moves.push(Move::Bytes { from: at, to: place, len: to.size });
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
        (Shape::Array { element: old, len: had }, Shape::Array { element: new, len }) => {
            let len = *len.min(had);
            if is_same(old, new) {
                moves.push(Move::Bytes { from: at, to: place, len: len * new.size });
            } else {
                for index in 0..len {
                    relate(old, at + index * old.size, new, place + index * new.size, moves);
                }
            }
        }
        (old, new) if is_number(old) && is_number(new) && !swapped(from) && !swapped(to) => {
            moves.push(Move::Number {
                from: Bits { start: 8 * at, width: 8 * from.size },
                signed: is_signed(old),
                to: Bits { start: 8 * place, width: 8 * to.size },
            });
        }
        _ => {}
    }
}

fn relate_members(old: &Member, at: usize, new: &Member, place: usize, moves: &mut Vec<Move>) {
    if old.bitfield.is_none() && new.bitfield.is_none() {
        relate(&old.layout, at + old.bit_offset / 8, &new.layout, place + new.bit_offset / 8, moves);
    } else if is_number(&old.layout.shape) && is_number(&new.layout.shape) {
        let bits = |member: &Member, base: usize| Bits {
            start: 8 * base + member.bit_offset,
            width: member.bitfield.map_or(8 * member.layout.size, usize::from),
        };
        let signed = is_signed(&old.layout.shape);
        moves.push(Move::Number { from: bits(old, at), signed, to: bits(new, place) });
    }
}

/// Whether the bytes of one mean the same as those of the other, however they are shown.
fn is_same(a: &Layout, b: &Layout) -> bool {
    let members = |a: &[Member], b: &[Member]| {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| {
                (&a.name, a.bit_offset, a.bitfield) == (&b.name, b.bit_offset, b.bitfield)
                    && is_same(&a.layout, &b.layout)
            })
    };
    a.size == b.size
        && match (&a.shape, &b.shape) {
            (Shape::Struct(a), Shape::Struct(b)) | (Shape::Union(a), Shape::Union(b)) => members(a, b),
            (Shape::Array { element: a, len }, Shape::Array { element: b, len: other }) => {
                len == other && is_same(a, b)
            }
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
    matches!(shape, Shape::Int { signed: true } | Shape::Enum { signed: true, .. })
}

const fn swapped(layout: &Layout) -> bool {
    swapped_by(layout.render)
}

/// In network order: another width needs more than bits to be moved.
const fn swapped_by(render: Option<Render>) -> bool {
    matches!(render, Some(Render::Be16 | Render::Be32 | Render::Be64 | Render::Ipv4))
}

impl Bits {
    fn load(self, bytes: &[u8], signed: bool) -> u128 {
        let bit = |index: usize| u128::from(bytes[index / 8] >> (index % 8) & 1);
        let raw = (0..self.width.min(128)).fold(0, |raw, index| raw | bit(self.start + index) << index);
        let negative = signed && (1..128).contains(&self.width) && raw >> (self.width - 1) & 1 == 1;
        if negative { raw | u128::MAX << self.width } else { raw }
    }

    fn store(self, bytes: &mut [u8], number: u128) {
        for index in 0..self.width {
            let bit = if index < 128 { (number >> index & 1) as u8 } else { 0 };
            let at = self.start + index;
            bytes[at / 8] = bytes[at / 8] & !(1 << (at % 8)) | bit << (at % 8);
        }
    }
}

#[cfg(test)]
mod tests;
