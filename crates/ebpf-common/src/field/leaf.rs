//! The numbers inside a value, for aggregation over CPUs, for adding up windows, for replacements
//! and for samples.
//!
//! Addresses, text and blobs are not leaves: no arithmetic applies to them, and they are copied as
//! part of their value. Where members overlap (unions), each bit belongs to one leaf at most.

use std::mem;

use crate::layout::Layout;

use super::bits::{Bits, load, load_bits, sign_extend, store_bits};
use super::kind::LeafKind;
use super::meaning::Meaning;
use super::plan::{FieldPlan, Plan};

/// A number in a value.
#[derive(Clone, Debug)]
pub struct Leaf<T> {
    pub kind: LeafKind,
    /// The tag that the caller of [`Leaves::new`] gave the leaf. For the addition of windows, the
    /// tag is the leaf's rule.
    pub tag: T,
    /// The offset from the start of the value, or of the array element, in bytes.
    pub offset: usize,
    /// The number of bytes to read.
    pub size: usize,
    /// The position of the number in these bytes, if it is a bitfield.
    pub bits: Option<Bits>,
}

/// All leaves of a layout.
#[derive(Clone, Debug)]
pub struct Leaves<T>(Vec<LeafNode<T>>);

#[derive(Clone, Debug)]
enum LeafNode<T> {
    Leaf(Leaf<T>),
    /// An array: the nodes of its element, repeated `len` times at distances of `stride` bytes.
    Repeat {
        stride: usize,
        len: usize,
        nodes: Vec<Self>,
    },
}

impl<T> Leaves<T> {
    /// Returns the leaves of a layout. `tag` is called with the path of each leaf (member names
    /// joined by dots; arrays add nothing). It returns the leaf's tag, or `None` to leave the leaf
    /// out.
    pub fn new(layout: &Layout, tag: &mut impl FnMut(&str, Meaning) -> Option<T>) -> Self {
        let (plan, mut nodes) = (Plan::new(layout, str::to_owned), Vec::new());
        let mut walk = LeafWalk {
            path: String::new(),
            is_item: false,
            tag,
        };
        walk.collect(&plan, 0, layout.size, None, &mut nodes);
        Self(nodes)
    }

    /// Calls `visit` with each leaf, once for each element of the arrays around it. The second
    /// argument is the offset in bytes that the element adds to the leaf's own.
    pub fn for_each(&self, mut visit: impl FnMut(&Leaf<T>, usize)) {
        walk(&self.0, 0, &mut visit);
    }
}

fn walk<T>(nodes: &[LeafNode<T>], base: usize, visit: &mut impl FnMut(&Leaf<T>, usize)) {
    for node in nodes {
        match node {
            LeafNode::Leaf(leaf) => visit(leaf, base),
            LeafNode::Repeat { stride, len, nodes } => {
                for index in 0..*len {
                    walk(nodes, base + index * stride, visit);
                }
            }
        }
    }
}

struct LeafWalk<'a, F> {
    path: String,
    /// True if the plan is for the items of an array. The members of items have separate names.
    is_item: bool,
    tag: &'a mut F,
}

impl<F> LeafWalk<'_, F> {
    fn collect<T>(
        &mut self,
        plan: &Plan<String>,
        offset: usize,
        size: usize,
        bits: Option<Bits>,
        nodes: &mut Vec<LeafNode<T>>,
    ) where
        F: FnMut(&str, Meaning) -> Option<T>,
    {
        let (scalar, kind) = match plan {
            Plan::Scalar { kind, .. } => (Some(kind), LeafKind::of(kind)),
            Plan::Float { .. } => (None, LeafKind::Float),
            Plan::Struct(fields) => return self.members(fields, offset, nodes),
            Plan::Array {
                element,
                stride,
                len,
            } => {
                let mut inner = Vec::new();
                let outer = mem::replace(&mut self.is_item, true);
                self.collect(element, offset, *stride, None, &mut inner);
                self.is_item = outer;
                if !inner.is_empty() {
                    nodes.push(LeafNode::Repeat {
                        stride: *stride,
                        len: *len,
                        nodes: inner,
                    });
                }
                return;
            }
            Plan::Text { .. }
            | Plan::Blob { .. }
            | Plan::Ipv4
            | Plan::Ip
            | Plan::Mac
            | Plan::Prefix(_) => {
                return;
            }
        };
        let width = bits.map_or(8 * size as u32, |bits| bits.width);
        let meaning = Meaning::of(scalar, &self.path, width, self.is_item);
        let tag = (self.tag)(&self.path, meaning);
        nodes.extend(tag.map(|tag| {
            LeafNode::Leaf(Leaf {
                kind,
                tag,
                offset,
                size,
                bits,
            })
        }));
    }

    /// Adds the leaves of the members of a struct at this offset.
    fn members<T>(
        &mut self,
        fields: &[FieldPlan<String>],
        offset: usize,
        nodes: &mut Vec<LeafNode<T>>,
    ) where
        F: FnMut(&str, Meaning) -> Option<T>,
    {
        let outer = mem::replace(&mut self.is_item, false);
        for field in disjoint(fields) {
            let parent = self.path.len();
            if parent > 0 {
                self.path.push('.');
            }
            self.path.push_str(&field.label);
            self.collect(
                &field.plan,
                offset + field.offset,
                field.size,
                field.bits,
                nodes,
            );
            self.path.truncate(parent);
        }
        self.is_item = outer;
    }
}

/// Returns the members to which arithmetic applies. If members share bits, only some of them count:
/// a member that covers all bits of the others, or else the first members that do not overlap.
fn disjoint(fields: &[FieldPlan<String>]) -> Vec<&FieldPlan<String>> {
    let mut spans: Vec<_> = fields.iter().map(|field| (span(field), field)).collect();
    spans.retain(|((start, end), _)| start < end);
    // The sort is stable, so that members that start at the same bit stay in the order of
    // declaration.
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

/// Returns the first bit of a member and the bit after its last one.
fn span(field: &FieldPlan<String>) -> (usize, usize) {
    let start = 8 * field.offset;
    match field.bits {
        Some(bits) => (
            start + bits.shift as usize,
            start + (bits.shift + bits.width) as usize,
        ),
        None => (start, start + 8 * field.size),
    }
}

impl<T> Leaf<T> {
    /// Returns the width of the number in bits.
    pub fn width(&self) -> u32 {
        self.bits.map_or(8 * self.size as u32, |bits| bits.width)
    }

    /// Returns the bits of the leaf in a value: integers extended to 128 bits (with their sign if
    /// they have one), booleans as 0 or 1, floats as the bits of an `f64`. `base` is the offset
    /// that [`Leaves::for_each`] passes.
    #[inline]
    pub fn load(&self, value: &[u8], base: usize) -> u128 {
        let bytes = &value[base + self.offset..][..self.size];
        let raw = self
            .bits
            .map_or_else(|| load(bytes), |bits| load_bits(bytes, bits));
        let width = self.width();
        match self.kind {
            LeafKind::Number { swapped: true, .. } => (raw << (128 - width)).swap_bytes(),
            LeafKind::Number { signed: true, .. } => sign_extend(raw, width).cast_unsigned(),
            LeafKind::Number { .. } => raw,
            LeafKind::Bool => u128::from(raw != 0),
            LeafKind::Float if self.size == 4 => {
                f64::from(f32::from_bits(raw as u32)).to_bits().into()
            }
            LeafKind::Float => raw,
        }
    }

    /// Returns `size` bytes in which the bits of the leaf are set.
    pub fn covered(&self, base: usize, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let leaf = &mut bytes[base + self.offset..][..self.size];
        match self.bits {
            Some(bits) => store_bits(leaf, bits, u128::MAX),
            None => leaf.fill(0xff),
        }
        bytes
    }

    /// Writes the bits that [`Self::load`] returns into a value; a number is cut to the width of
    /// the leaf.
    pub fn store(&self, value: &mut [u8], base: usize, number: u128) {
        let bytes = &mut value[base + self.offset..][..self.size];
        if let Some(bits) = self.bits {
            return store_bits(bytes, bits, number);
        }
        let raw = match self.kind {
            LeafKind::Number { swapped: true, .. } => number.swap_bytes() >> (128 - 8 * self.size),
            LeafKind::Float if self.size == 4 => {
                u128::from((f64::from_bits(number as u64) as f32).to_bits())
            }
            _ => number,
        };
        bytes.copy_from_slice(&raw.to_le_bytes()[..self.size]);
    }
}

#[cfg(test)]
mod tests;
