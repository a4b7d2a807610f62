//! Random layouts. Some make no sense.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use twinprobe_ebpf_common::{EnumVariant, Layout, Member, Render, Shape};

const RENDERS: [Render; 15] = [
    Render::Ipv4,
    Render::Ipv6,
    Render::Ip,
    Render::Mac,
    Render::Be16,
    Render::Be32,
    Render::Be64,
    Render::Hex,
    Render::String,
    Render::Decimal,
    Render::Ktime,
    Render::Ifindex,
    Render::Protocol,
    Render::Prefix,
    Render::Histogram,
];

/// Mostly useful sizes, sometimes useless ones.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![4 => select(vec![1_usize, 2, 4, 6, 8, 16]), 1 => 0_usize..40]
}

fn scalar() -> impl Strategy<Value = Shape> {
    let variant = ("[A-Z]{1,3}", prop_oneof![any::<u64>(), 0_u64..4])
        .prop_map(|(name, value)| EnumVariant { name, value });
    prop_oneof![
        any::<bool>().prop_map(|signed| Shape::Int { signed }),
        Just(Shape::Bool),
        Just(Shape::Char),
        Just(Shape::Float),
        (any::<bool>(), vec(variant, 0..4))
            .prop_map(|(signed, variants)| Shape::Enum { signed, variants }),
        Just(Shape::Opaque),
    ]
}

/// Sizes and offsets need not agree: some layouts are nonsense.
pub fn layout() -> impl Strategy<Value = Layout> {
    let render = || option::weighted(0.4, select(RENDERS.to_vec()));
    let leaf = (size(), scalar(), render()).prop_map(|(size, shape, render)| Layout {
        size,
        shape,
        render,
    });
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let member = (
            ".{0,4}",
            0_usize..200,
            option::weighted(0.3, 0_u8..=130),
            inner.clone(),
        )
            .prop_map(|(name, offset, bitfield, layout)| {
                let bit_offset = if bitfield.is_none() {
                    offset / 8 * 8
                } else {
                    offset
                };
                Member {
                    name,
                    bit_offset,
                    bitfield,
                    layout,
                }
            });
        let record = (vec(member, 0..4), any::<bool>(), 0_usize..64, render()).prop_map(
            |(members, is_union, size, render)| {
                let shape = if is_union {
                    Shape::Union(members)
                } else {
                    Shape::Struct(members)
                };
                Layout {
                    size,
                    shape,
                    render,
                }
            },
        );
        let lens = Union::new([(0_usize..5).boxed(), Just(usize::MAX).boxed()]);
        let array =
            (inner, lens, any::<bool>(), render()).prop_map(|(element, len, exact, render)| {
                let size = if exact {
                    element.size.saturating_mul(len).min(256)
                } else {
                    7
                };
                Layout {
                    size,
                    shape: Shape::Array {
                        element: Box::new(element),
                        len,
                    },
                    render,
                }
            });
        // Structs of a number and an address, in either order, with and without padding.
        let address = (
            select(vec![4_usize, 16]),
            option::of(select(vec![Render::Ip, Render::Ipv4, Render::Ipv6])),
        );
        let address = address.prop_map(|(size, render)| Layout {
            render,
            ..Layout::opaque(size)
        });
        let bits = select(vec![1_usize, 2, 4, 8]).prop_map(Layout::unsigned);
        let prefix = (address, bits, any::<bool>(), 0_usize..2).prop_map(
            |(address, bits, first, padding)| {
                let (one, other) = if first {
                    (bits, address)
                } else {
                    (address, bits)
                };
                let start = one.size + padding;
                let size = start + other.size + padding;
                let member = |name: &str, start: usize, layout| Member {
                    name: name.into(),
                    bit_offset: 8 * start,
                    bitfield: None,
                    layout,
                };
                let shape = Shape::Struct(vec![member("a", 0, one), member("b", start, other)]);
                Layout {
                    size,
                    shape,
                    render: Some(Render::Prefix),
                }
            },
        );
        prop_oneof![3 => record, 3 => array, 1 => prefix]
    })
}
