//! The numbers inside a value, for whoever computes with values: aggregation over CPUs, adding up windows.
//!
//! Addresses, names and blobs are no leaves: nothing can be computed with them, they are copied as part of
//! the value they belong to. Where members overlap (unions), each bit belongs to one leaf at most.

use twinprobe_ebpf_common::Layout;

use crate::decode::bits::{Bits, load, load_bits, sign_extend, store_bits};
use crate::decode::plan::{Field, Plan, Scalar};

/// A number in a value.
#[derive(Clone, Debug)]
pub struct Leaf<T> {
    pub kind: LeafKind,
    /// What the owner of the leaves wants to remember about this one.
    pub tag: T,
    pub offset: usize,
    pub size: usize,
    pub bits: Option<Bits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafKind {
    Number { signed: bool, swapped: bool },
    Bool,
    Float,
}

impl LeafKind {
    pub const fn of(scalar: &Scalar) -> (Self, Meaning) {
        let signed = matches!(scalar, Scalar::Signed | Scalar::Enum { signed: true, .. });
        let swapped = matches!(scalar, Scalar::Swapped);
        match scalar {
            Scalar::Unsigned | Scalar::Signed | Scalar::Swapped | Scalar::Ktime => {
                (Self::Number { signed, swapped }, Meaning::Quantity)
            }
            Scalar::Bool => (Self::Bool, Meaning::Quantity),
            Scalar::Enum { .. } | Scalar::Hex | Scalar::Ifindex => {
                (Self::Number { signed, swapped }, Meaning::Identity)
            }
        }
    }
}

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It can be added and compared.
    Quantity,
    /// It names something (an enum, an interface, flags): computing with it needs a wish to do so.
    Identity,
}

/// All leaves of a layout.
#[derive(Clone, Debug)]
pub struct Leaves<T>(Vec<Node<T>>);

#[derive(Clone, Debug)]
enum Node<T> {
    Leaf(Leaf<T>),
    /// An array: its nodes lie `len` times in a row.
    Repeat {
        stride: usize,
        len: usize,
        nodes: Vec<Self>,
    },
}

impl<T> Leaves<T> {
    /// `tag` is asked about each leaf, by its path (member names joined by dots, arrays not counting), and
    /// may leave it out.
    pub fn new(layout: &Layout, tag: &mut impl FnMut(&str, Meaning) -> Option<T>) -> Self {
        let mut nodes = Vec::new();
        collect(&Plan::new(layout, str::to_owned), 0, &mut String::new(), tag, &mut nodes);
        Self(nodes)
    }

    /// Calls `visit` with each leaf and the offset its array elements add to it.
    pub fn for_each(&self, mut visit: impl FnMut(&Leaf<T>, usize)) {
        walk(&self.0, 0, &mut visit);
    }
}

fn walk<T>(nodes: &[Node<T>], base: usize, visit: &mut impl FnMut(&Leaf<T>, usize)) {
    for node in nodes {
        match node {
            Node::Leaf(leaf) => visit(leaf, base),
            Node::Repeat { stride, len, nodes } => {
                for index in 0..*len {
                    walk(nodes, base + index * stride, visit);
                }
            }
        }
    }
}

fn collect<T>(
    plan: &Plan<String>,
    offset: usize,
    path: &mut String,
    tag: &mut impl FnMut(&str, Meaning) -> Option<T>,
    nodes: &mut Vec<Node<T>>,
) {
    match plan {
        Plan::Scalar { kind, size } => nodes.extend(leaf(kind, offset, *size, None, path, tag)),
        Plan::Float { size } => {
            nodes.extend(
                tag(path, Meaning::Quantity).map(|tag| {
                    Node::Leaf(Leaf { kind: LeafKind::Float, tag, offset, size: *size, bits: None })
                }),
            );
        }
        Plan::Struct(fields) => {
            for field in disjoint(fields) {
                let parent = path.len();
                if parent > 0 {
                    path.push('.');
                }
                path.push_str(&field.label);
                let offset = offset + field.offset;
                match (&field.plan, field.bits) {
                    (Plan::Scalar { kind, .. }, bits @ Some(_)) => {
                        nodes.extend(leaf(kind, offset, field.size, bits, path, tag));
                    }
                    (plan, _) => collect(plan, offset, path, tag, nodes),
                }
                path.truncate(parent);
            }
        }
        Plan::Array { element, stride, len } => {
            let mut inner = Vec::new();
            collect(element, offset, path, tag, &mut inner);
            if !inner.is_empty() {
                nodes.push(Node::Repeat { stride: *stride, len: *len, nodes: inner });
            }
        }
        Plan::Text { .. } | Plan::Blob { .. } | Plan::Ipv4 | Plan::Ipv6 | Plan::Mac => {}
    }
}

fn leaf<T>(
    kind: &Scalar,
    offset: usize,
    size: usize,
    bits: Option<Bits>,
    path: &str,
    tag: &mut impl FnMut(&str, Meaning) -> Option<T>,
) -> Option<Node<T>> {
    let (kind, meaning) = LeafKind::of(kind);
    Some(Node::Leaf(Leaf { kind, tag: tag(path, meaning)?, offset, size, bits }))
}

/// The members to compute with. Of members that share bits, the first that covers all of what they share
/// stands for them; if none does, the first ones that don't overlap.
fn disjoint(fields: &[Field<String>]) -> Vec<&Field<String>> {
    let mut spans: Vec<_> = fields.iter().map(|field| (span(field), field)).collect();
    spans.retain(|((start, end), _)| start < end);
    // Stable: members that start at one place stay in declaration order.
    spans.sort_by_key(|((start, _), _)| *start);
    let mut chosen = Vec::new();
    let mut rest = &spans[..];
    while let Some(&((start, mut end), _)) = rest.first() {
        let mut count = 1;
        while let Some(((_, more), _)) = rest.get(count).filter(|((next, _), _)| *next < end) {
            end = end.max(*more);
            count += 1;
        }
        let (group, tail) = rest.split_at(count);
        rest = tail;
        if let Some((_, field)) = group.iter().find(|(span, _)| *span == (start, end)) {
            chosen.push(*field);
            continue;
        }
        let mut free = start;
        for ((start, end), field) in group {
            if *start >= free {
                chosen.push(*field);
                free = *end;
            }
        }
    }
    chosen
}

/// First bit and the one after the last.
fn span(field: &Field<String>) -> (usize, usize) {
    let start = 8 * field.offset;
    match field.bits {
        Some(bits) => (start + bits.shift as usize, start + (bits.shift + bits.width) as usize),
        None => (start, start + 8 * field.size),
    }
}

impl<T> Leaf<T> {
    /// The leaf's bits: numbers extended to 128 by their sign, booleans 0 or 1, floats as `f64`.
    pub fn load(&self, value: &[u8], base: usize) -> u128 {
        let bytes = &value[base + self.offset..][..self.size];
        let (raw, width) = match self.bits {
            Some(bits) => (load_bits(bytes, bits), bits.width),
            None => (load(bytes), 8 * self.size as u32),
        };
        match self.kind {
            LeafKind::Number { swapped: true, .. } => (raw << (128 - width)).swap_bytes(),
            LeafKind::Number { signed: true, .. } => sign_extend(raw, width).cast_unsigned(),
            LeafKind::Number { .. } => raw,
            LeafKind::Bool => u128::from(raw != 0),
            LeafKind::Float if self.size == 4 => f64::from(f32::from_bits(raw as u32)).to_bits().into(),
            LeafKind::Float => raw,
        }
    }

    /// The reverse of [`Self::load`]; a number is cut to the width of the leaf.
    pub fn store(&self, value: &mut [u8], base: usize, number: u128) {
        let bytes = &mut value[base + self.offset..][..self.size];
        if let Some(bits) = self.bits {
            return store_bits(bytes, bits, number);
        }
        let raw = match self.kind {
            LeafKind::Number { swapped: true, .. } => number.swap_bytes() >> (128 - 8 * self.size),
            LeafKind::Float if self.size == 4 => u128::from((f64::from_bits(number as u64) as f32).to_bits()),
            _ => number,
        };
        bytes.copy_from_slice(&raw.to_le_bytes()[..self.size]);
    }
}

/// Makes the bits of numbers comparable as unsigned ones.
pub const fn order(bits: u128, signed: bool) -> u128 {
    if signed { bits ^ (1 << 127) } else { bits }
}
