//! The rendering of keys. A key is the identity of an entry, so two keys that differ in any bit
//! must look different. Therefore a key also shows bits that a value does not show: padding that is
//! not zero, bytes after a NUL, the payload of a NaN.

use twinprobe_ebpf_common::Layout;

use twinprobe_ebpf_common::field::bits::Bits;
use twinprobe_ebpf_common::field::plan::{FieldPlan, Plan};

/// The number of bytes of a key that the padding covers. The kernel has no key of more than 512
/// bytes, but a layout may claim any size.
const LONGEST: usize = 4096;
/// The name under which documents show the bits of a key that belong to no member.
const PADDING: &str = "padding";

/// The rendering of a key.
#[derive(Clone, Debug)]
pub struct KeyPlan<L> {
    pub plan: Plan<L>,
    pub padding: Padding,
    /// The label of the padding, which differs from the labels of all members.
    pub label: L,
}

impl<L> KeyPlan<L> {
    /// Compiles the layout of a key.
    pub fn new(layout: &Layout, label: fn(&str) -> L) -> Self {
        let names = Plan::new(layout, str::to_owned);
        let mut name = PADDING.to_owned();
        while let Plan::Struct(fields) = &names
            && fields.iter().any(|field| field.label == name)
        {
            name.insert(0, '_');
        }
        let padding = Padding::new(layout.size, |shown| cover(&names, 0, None, shown));
        Self {
            plan: Plan::new(layout, label),
            padding,
            label: label(&name),
        }
    }
}

/// The bits of a key that none of its members shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding(Vec<u8>);

impl Padding {
    fn new(size: usize, cover: impl FnOnce(&mut [u8])) -> Self {
        let mut shown = vec![0; size.min(LONGEST)];
        cover(&mut shown);
        let hidden: Vec<u8> = shown.into_iter().map(|bits: u8| !bits).collect();
        Self(if hidden.iter().all(|bits| *bits == 0) {
            Vec::new()
        } else {
            hidden
        })
    }

    /// Returns the bits of a key of this size that none of these members shows.
    pub fn of_parts<L>(size: usize, parts: &[FieldPlan<L>]) -> Self {
        Self::new(size, |shown| {
            parts
                .iter()
                .for_each(|part| cover(&part.plan, 8 * part.offset, part.bits, shown));
        })
    }

    /// Tells whether at least one of the bits is set in this key.
    pub fn is_set(&self, key: &[u8]) -> bool {
        // Most keys have no such bit: the compiler turns the loop into vector instructions.
        key.iter()
            .zip(&self.0)
            .fold(0, |all, (key, bits)| all | key & bits)
            != 0
    }

    /// Returns the bytes of a key that contain padding, with all other bits cleared.
    pub fn bytes(&self, key: &[u8]) -> Vec<u8> {
        key.iter()
            .zip(&self.0)
            .filter(|(_, bits)| **bits != 0)
            .map(|(key, bits)| key & bits)
            .collect()
    }
}

/// Removes the bits that a member shows, from its first bit on.
fn cover<L>(plan: &Plan<L>, from: usize, bits: Option<Bits>, shown: &mut [u8]) {
    let (first, width) = match (plan, bits) {
        (Plan::Struct(fields), _) => {
            return fields
                .iter()
                .for_each(|field| cover(&field.plan, from + 8 * field.offset, field.bits, shown));
        }
        (
            Plan::Array {
                element,
                stride,
                len,
            },
            _,
        ) => {
            let end = 8 * shown.len();
            // Elements without a size show nothing.
            let places = (from..end)
                .step_by((8 * stride).max(1))
                .take(if *stride == 0 { 1 } else { *len });
            return places.for_each(|from| cover(element, from, None, shown));
        }
        (Plan::Prefix(prefix), _) => {
            for (offset, size) in [prefix.address, prefix.bits] {
                cover(&Plan::<L>::Blob { size }, from + 8 * offset, None, shown);
            }
            return;
        }
        (_, Some(bits)) => (from + bits.shift as usize, bits.width as usize),
        (
            Plan::Scalar { size, .. }
            | Plan::Float { size }
            | Plan::Text { size }
            | Plan::Blob { size },
            _,
        ) => (from, 8 * size),
        (Plan::Ipv4, _) => (from, 32),
        (Plan::Ip, _) => (from, 128),
        (Plan::Mac, _) => (from, 48),
    };
    for bit in first..(first + width).min(8 * shown.len()) {
        shown[bit / 8] |= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Member, Shape};

    use super::*;

    fn member(bit_offset: usize, bitfield: Option<u8>, layout: Layout) -> Member {
        Member {
            name: "padding".into(),
            bit_offset,
            bitfield,
            layout,
        }
    }

    #[test]
    fn bits_that_no_member_has_are_padding() {
        let members = vec![
            member(0, None, Layout::unsigned(1)),
            member(19, Some(4), Layout::unsigned(2)),
        ];
        let layout = Layout {
            size: 4,
            shape: Shape::Struct(members),
            render: None,
        };
        let KeyPlan { padding, label, .. } = KeyPlan::new(&layout, str::to_owned);
        assert_eq!(
            (&padding, &*label),
            (&Padding(vec![0, 0xff, 0x87, 0xff]), "_padding")
        );
        assert!(padding.is_set(&[0, 0, 1, 0]) && !padding.is_set(&[0xff, 0, 0x78, 0]));
        assert_eq!(padding.bytes(&[7, 1, 0x7f, 3]), [1, 7, 3]);
        assert_eq!(
            KeyPlan::new(&Layout::unsigned(4), str::to_owned).padding,
            Padding(vec![])
        );
    }

    #[test]
    fn a_layout_of_any_size_is_covered_soon() {
        let element = Layout {
            size: 1 << 30,
            shape: Shape::Array {
                element: Box::new(Layout::unsigned(1)),
                len: 1 << 30,
            },
            render: None,
        };
        let layout = Layout {
            size: 1 << 40,
            shape: Shape::Array {
                element: Box::new(element),
                len: 1 << 10,
            },
            render: None,
        };
        assert_eq!(
            KeyPlan::new(&layout, str::to_owned).padding,
            Padding(vec![])
        );
    }

    #[test]
    fn members_of_a_union_cover_each_other() {
        let members = vec![
            member(0, None, Layout::unsigned(1)),
            member(0, None, Layout::opaque(4)),
        ];
        let layout = Layout {
            size: 4,
            shape: Shape::Union(members),
            render: None,
        };
        assert!(
            !KeyPlan::new(&layout, str::to_owned)
                .padding
                .is_set(&[0xff; 4])
        );
    }
}
