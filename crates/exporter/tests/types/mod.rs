//! Types of values, as C compilers lay them out.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use twinprobe_ebpf_common::{EnumVariant, Layout, Member, Render, Shape};

use crate::support::{array, char_array, shaped, signed, tagged, unsigned};

/// Numbers of all sizes.
pub fn number() -> impl Strategy<Value = Layout> {
    let int = (select(vec![1_usize, 2, 4, 8, 16]), any::<bool>()).prop_map(|(size, is_signed)| {
        if is_signed {
            signed(size)
        } else {
            unsigned(size)
        }
    });
    let swapped = select(vec![
        (Render::Be16, 2),
        (Render::Be32, 4),
        (Render::Be64, 8),
    ])
    .prop_map(|(render, size)| tagged(render, unsigned(size)));
    prop_oneof![4 => int, 1 => Just(shaped(1, Shape::Bool)), 1 => swapped]
}

/// A number of bits and an address of `size` bytes.
fn prefix(size: usize) -> Layout {
    let member = |name: &str, bit_offset, layout| Member {
        name: name.into(),
        bit_offset,
        bitfield: None,
        layout,
    };
    let address = tagged(Render::Ip, Layout::opaque(size));
    let members = vec![
        member("bits", 0, unsigned(4)),
        member("address", 32, address),
    ];
    tagged(Render::Prefix, shaped(4 + size, Shape::Struct(members)))
}

/// Types without members.
pub fn leaf() -> impl Strategy<Value = Layout> {
    let variant =
        ("[A-Z]{1,3}", any::<u64>(), any::<bool>()).prop_map(|(name, value, small)| EnumVariant {
            name,
            value: if small { value % 4 } else { value },
        });
    let enumeration = (
        select(vec![1_usize, 2, 4, 8]),
        any::<bool>(),
        vec(variant, 0..6),
    )
        .prop_map(|(size, signed, mut variants)| {
            let unused = 64 - 8 * size;
            for (index, variant) in variants.iter_mut().enumerate() {
                // C allows each name in an enum only once.
                variant.name += &index.to_string();
                let top = variant.value << unused;
                variant.value = if signed {
                    (top.cast_signed() >> unused).cast_unsigned()
                } else {
                    top >> unused
                };
            }
            shaped(size, Shape::Enum { signed, variants })
        });
    let other = select(vec![
        shaped(1, Shape::Char),
        shaped(4, Shape::Float),
        shaped(8, Shape::Float),
        char_array(5),
        Layout::opaque(3),
        tagged(Render::Ipv4, unsigned(4)),
        tagged(Render::Ipv6, array(unsigned(1), 16)),
        tagged(Render::Ip, array(unsigned(1), 16)),
        tagged(Render::Mac, array(unsigned(1), 6)),
        prefix(4),
        prefix(16),
        tagged(Render::Hex, unsigned(8)),
        tagged(Render::Hex, unsigned(16)),
        tagged(Render::Decimal, unsigned(16)),
        tagged(Render::Decimal, signed(16)),
        tagged(Render::String, array(unsigned(1), 7)),
    ]);
    prop_oneof![3 => number(), 1 => enumeration, 2 => other]
}

/// Lays members out as a C compiler does, but bitfields may cross their units, as in packed
/// structs.
fn record(members: Vec<(Layout, Option<usize>)>, kind: u8) -> Layout {
    let (is_union, is_packed) = (kind == 0, kind == 1);
    let (mut at, mut size) = (0_usize, 1_usize);
    let members = members
        .into_iter()
        .enumerate()
        .map(|(index, (layout, width))| {
            let scalar = layout.render.is_none()
                && matches!(
                    layout.shape,
                    Shape::Int { .. } | Shape::Bool | Shape::Enum { .. }
                );
            let width = width
                .filter(|_| scalar)
                .map(|width| width % (8 * layout.size) + 1);
            let unit = if is_packed {
                1
            } else {
                layout.size.next_power_of_two().clamp(1, 16)
            };
            if width.is_none() {
                at = at.next_multiple_of(8 * unit);
            }
            let bit_offset = if is_union { 0 } else { at };
            at = bit_offset + width.unwrap_or(8 * layout.size);
            size = size.max(at.div_ceil(8));
            let bitfield = width.map(|width| u8::try_from(width).expect("at most 128"));
            Member {
                name: format!("m{index}"),
                bit_offset,
                bitfield,
                layout,
            }
        })
        .collect();
    let size = if is_packed {
        size
    } else {
        size.next_multiple_of(8)
    };
    shaped(
        size,
        if is_union {
            Shape::Union(members)
        } else {
            Shape::Struct(members)
        },
    )
}

/// Types of `leaf`s, with unions unless the test only calculates with them.
pub fn any_type(
    leaf: impl Strategy<Value = Layout> + 'static,
    kinds: std::ops::Range<u8>,
) -> impl Strategy<Value = Layout> {
    leaf.prop_recursive(3, 20, 5, move |inner| {
        let member = (inner.clone(), option::weighted(0.4, 0_usize..128));
        let record =
            (vec(member, 1..6), kinds.clone()).prop_map(|(members, kind)| record(members, kind));
        let list = (inner, 1_usize..4).prop_map(|(element, len)| {
            // An array of `char` would be a text.
            if matches!(element.shape, Shape::Char) {
                element
            } else {
                array(element, len)
            }
        });
        prop_oneof![2 => record, 1 => list]
    })
}
