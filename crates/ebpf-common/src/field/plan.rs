//! Layouts that are compiled once per metric: renderings are chosen, sizes checked, and names made
//! ready to be written.
//!
//! A plan never reaches outside the `size` of its layout, even if the layout is wrong: members and
//! arrays that do not fit become blobs. So the walk over a million rows needs no checks.

use crate::layout::{Layout, Member, Render, Shape};

use std::collections::HashMap;

use super::bits::Bits;
use super::names::{PROTOCOLS, TCP_FLAGS};
use super::prefix::Prefix;

/// The rendering of a value of `size` bytes. `L` is a member's name as a format writes it.
#[derive(Clone, Debug)]
pub enum Plan<L> {
    Scalar {
        kind: Scalar,
        size: usize,
    },
    Float {
        size: usize,
    },
    /// A text that ends at the first NUL.
    Text {
        size: usize,
    },
    /// Bytes that are shown in hex, in the order of memory.
    Blob {
        size: usize,
    },
    Ipv4,
    /// Sixteen bytes.
    Ip,
    Mac,
    /// An address together with the number of its significant bits.
    Prefix(Prefix),
    /// The members of a struct or union.
    Struct(Vec<FieldPlan<L>>),
    Array {
        element: Box<Self>,
        stride: usize,
        len: usize,
    },
}

/// The rendering of an integer of up to 16 bytes, or of a bitfield.
#[derive(Clone, Debug)]
pub enum Scalar {
    Unsigned,
    Signed,
    /// An integer that is big-endian in memory.
    Swapped,
    Bool,
    /// An enumeration: names by value, each value cut to the width of the field.
    Enum {
        signed: bool,
        variants: Vec<(u64, String)>,
    },
    Hex,
    /// Flags with these names, from the lowest bit on.
    Flags(&'static [&'static str]),
    /// A number of more than 64 bits that is shown as a number.
    Decimal {
        signed: bool,
    },
    /// A time in nanoseconds since the boot of the machine.
    Ktime,
    /// A time in nanoseconds since 1970.
    Time,
    Ifindex,
}

/// A member of a struct or union.
#[derive(Clone, Debug)]
pub struct FieldPlan<L> {
    /// The name of the member, ready to be written.
    pub label: L,
    /// The offset of the member in the struct, in bytes.
    pub offset: usize,
    /// The number of bytes that must be read.
    pub size: usize,
    /// The position of the number in these bytes, if the member is a bitfield.
    pub bits: Option<Bits>,
    pub plan: Plan<L>,
}

impl<L> Plan<L> {
    /// Compiles a layout. `label` converts a member's name into the form that the format writes.
    pub fn new(layout: &Layout, label: fn(&str) -> L) -> Self {
        compile(layout, None, label)
    }
}

/// Compiles a layout that is in an array whose rendering is `inherited`.
pub fn compile<L>(layout: &Layout, inherited: Option<Render>, label: fn(&str) -> L) -> Plan<L> {
    let renders = [inherited, layout.render].into_iter().flatten();
    if let Some(plan) = renders
        .into_iter()
        .find_map(|render| rendered(layout, render))
    {
        return plan;
    }
    let size = layout.size;
    match &layout.shape {
        Shape::Int { signed: false } if is_int(size) => scalar(Scalar::Unsigned, size),
        Shape::Int { signed: true } if is_int(size) => scalar(Scalar::Signed, size),
        Shape::Char if size == 1 => scalar(Scalar::Signed, size),
        Shape::Bool if is_int(size) => scalar(Scalar::Bool, size),
        Shape::Enum { .. } if is_int(size) && size <= 8 => {
            scalar(enumeration(layout, 8 * size), size)
        }
        Shape::Float if matches!(size, 4 | 8) => Plan::Float { size },
        Shape::Struct(members) | Shape::Union(members) => {
            let fields: Option<Vec<_>> = members
                .iter()
                .map(|member| field(member, size, label))
                .collect();
            fields.map_or(Plan::Blob { size }, Plan::Struct)
        }
        Shape::Array { element, len } => match element.size.checked_mul(*len) {
            Some(total) if total > size || (element.size == 0 && *len > 0) => Plan::Blob { size },
            None => Plan::Blob { size },
            Some(total) if is_text(element) => Plan::Text { size: total },
            Some(_) => {
                let render = inherited.or(layout.render);
                let plan = Box::new(compile(element, render, label));
                Plan::Array {
                    element: plan,
                    stride: element.size,
                    len: *len,
                }
            }
        },
        _ => Plan::Blob { size },
    }
}

/// Tells whether `render` can show the values of `layout`, as a whole or as the elements of an
/// array.
pub fn fits(layout: &Layout, render: Render) -> bool {
    rendered::<()>(layout, render).is_some()
        || matches!(&layout.shape, Shape::Array { element, .. } if fits(element, render))
}

/// Tells whether the rendering in a bitfield's layout suits its width.
pub fn fits_bitfield(layout: &Layout, width: usize) -> bool {
    let plain = Layout {
        render: None,
        ..layout.clone()
    };
    let kind = |layout: &Layout| match bitfield::<()>(layout, width) {
        Some(Plan::Scalar { kind, .. }) => Some(std::mem::discriminant(&kind)),
        _ => None,
    };
    kind(layout) != kind(&plain)
}

/// Returns the plan if `render` can show a value of `layout` as a whole.
fn rendered<L>(layout: &Layout, render: Render) -> Option<Plan<L>> {
    let bytes = match &layout.shape {
        Shape::Array { element, len } => {
            let is_byte =
                element.size == 1 && matches!(element.shape, Shape::Int { .. } | Shape::Char);
            // An array of addresses stays an array, even if it has one element.
            if element.size.checked_mul(*len) != Some(layout.size)
                || (!is_byte && rendered::<L>(element, render).is_some())
            {
                return None;
            }
            is_byte
        }
        Shape::Opaque => true,
        _ => false,
    };
    let size = layout.size;
    let int = matches!(layout.shape, Shape::Int { .. });
    let record = matches!(layout.shape, Shape::Struct(_) | Shape::Union(_));
    let number = int || matches!(layout.shape, Shape::Char | Shape::Enum { .. });
    Some(match render {
        Render::Ipv4 | Render::Ip if size == 4 => Plan::Ipv4,
        Render::Ipv6 | Render::Ip if size == 16 => Plan::Ip,
        Render::Mac if size == 6 => Plan::Mac,
        Render::Prefix => Plan::Prefix(Prefix::of(layout)?),
        Render::Be16 if size == 2 && (int || bytes) => scalar(Scalar::Swapped, size),
        Render::Be32 if size == 4 && (int || bytes) => scalar(Scalar::Swapped, size),
        Render::Be64 if size == 8 && (int || bytes) => scalar(Scalar::Swapped, size),
        Render::Hex if number && is_int(size) => scalar(Scalar::Hex, size),
        Render::Hex if bytes || record => Plan::Blob { size },
        Render::String if bytes => Plan::Text { size },
        // A histogram stays a histogram even if its counts do not fit into 64 bits.
        Render::Decimal | Render::Histogram if int && size == 16 => {
            scalar(decimal(&layout.shape), size)
        }
        Render::Ktime if int && size == 8 => scalar(Scalar::Ktime, size),
        Render::Time if int && size == 8 => scalar(Scalar::Time, size),
        Render::Ifindex if int && matches!(size, 4 | 8) => scalar(Scalar::Ifindex, size),
        Render::Protocol if int && size <= 8 && is_int(size) => scalar(protocols(), size),
        Render::TcpFlags if int && size <= 8 && is_int(size) => {
            scalar(Scalar::Flags(&TCP_FLAGS), size)
        }
        _ => return None,
    })
}

fn field<L>(member: &Member, size: usize, label: fn(&str) -> L) -> Option<FieldPlan<L>> {
    let offset = member.bit_offset / 8;
    let shift = member.bit_offset % 8;
    let (width, bits, plan) = match member.bitfield {
        None if shift == 0 => (
            8 * member.layout.size,
            None,
            compile(&member.layout, None, label),
        ),
        Some(width @ 1..=128) => {
            let bits = Bits {
                shift: u32::try_from(shift).ok()?,
                width: u32::from(width),
            };
            (
                usize::from(width),
                Some(bits),
                bitfield(&member.layout, usize::from(width))?,
            )
        }
        _ => return None,
    };
    let read = (shift + width).div_ceil(8);
    (offset.checked_add(read)? <= size).then(|| FieldPlan {
        label: label(&member.name),
        offset,
        size: read,
        bits,
        plan,
    })
}

/// Returns the plan of a bitfield, to which the renderings of bytes in memory do not apply.
pub fn bitfield<L>(layout: &Layout, width: usize) -> Option<Plan<L>> {
    let kind = match (&layout.shape, layout.render) {
        (Shape::Int { .. } | Shape::Char | Shape::Enum { .. }, Some(Render::Hex)) => Scalar::Hex,
        (Shape::Int { .. }, Some(Render::Decimal)) if width > 64 => decimal(&layout.shape),
        (Shape::Int { .. }, Some(Render::Ktime)) => Scalar::Ktime,
        (Shape::Int { .. }, Some(Render::Time)) => Scalar::Time,
        (Shape::Int { .. }, Some(Render::Ifindex)) => Scalar::Ifindex,
        (Shape::Int { signed: false }, _) => Scalar::Unsigned,
        (Shape::Int { signed: true } | Shape::Char, _) => Scalar::Signed,
        (Shape::Bool, _) => Scalar::Bool,
        (Shape::Enum { .. }, _) if width <= 64 => enumeration(layout, width),
        _ => return None,
    };
    Some(scalar(kind, layout.size))
}

fn enumeration(layout: &Layout, width: usize) -> Scalar {
    let Shape::Enum { signed, variants } = &layout.shape else {
        return Scalar::Unsigned;
    };
    let mask = u64::MAX >> (64 - width);
    let mut variants: Vec<_> = variants
        .iter()
        .map(|v| (v.value & mask, v.name.clone()))
        .collect();
    // The sort is stable, so that the first of several names for one value is shown.
    variants.sort_by_key(|(value, _)| *value);
    // An object may have anything as a name, and a name twice.
    let mut first: HashMap<String, u64> = HashMap::new();
    for (value, name) in &mut variants {
        if !is_name(name) || *first.entry(name.clone()).or_insert(*value) != *value {
            *name = format!("{name}#{value}");
        }
    }
    Scalar::Enum {
        signed: *signed,
        variants,
    }
}

fn protocols() -> Scalar {
    let variants = PROTOCOLS.map(|(number, name)| (number, name.to_owned()));
    Scalar::Enum {
        signed: false,
        variants: variants.into(),
    }
}

const fn decimal(shape: &Shape) -> Scalar {
    Scalar::Decimal {
        signed: matches!(shape, Shape::Int { signed: true }),
    }
}

const fn scalar<L>(kind: Scalar, size: usize) -> Plan<L> {
    Plan::Scalar { kind, size }
}

const fn is_int(size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8 | 16)
}

const fn is_text(element: &Layout) -> bool {
    matches!(element.shape, Shape::Char) && element.render.is_none() && element.size == 1
}

/// Tells whether a text can only be a name: it is not a number, a name with a number, or an escape.
pub fn is_name(text: &str) -> bool {
    let special =
        |c: char| c == '#' || c == '\\' || c.is_control() || c == char::REPLACEMENT_CHARACTER;
    !text.contains(special) && text.contains(|c: char| !c.is_ascii_digit() && c != '-')
}

#[cfg(test)]
mod tests;
