//! The layouts of sums. Summed numbers have 64 bits, for fields of any width, or 128 bits if 64 do
//! not suffice. Times are those of the wall clock, which does not begin again with a boot.

use std::collections::HashSet;

use super::leaf::Leaves;
use super::meaning::Meaning;
use super::plan::{self, Plan, Scalar};
use crate::convert::rows::{convert, convert_slots};
use crate::layout::{Layout, Member, Render, Shape};
use crate::map_kind::MapFamily;
use crate::metric::MergeRule;
use crate::metric::MergeRules;
use crate::table::{RawTable, TableLayout};

/// The width of the numbers of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumWidth {
    /// 64 bits, which nearly all sums fit into.
    Usual,
    /// 128 bits, shown as numbers.
    Widest,
}

impl SumWidth {
    const fn bytes(self) -> usize {
        match self {
            Self::Usual => 8,
            Self::Widest => 16,
        }
    }

    /// Returns the layout of the sum of an integer that is shown by `render`.
    fn number(self, kind: &Scalar, render: Option<Render>) -> Layout {
        let signed = matches!(kind, Scalar::Signed);
        let render = match (self, render) {
            (Self::Usual, render) | (Self::Widest, render @ Some(Render::Histogram)) => render,
            (Self::Widest, _) => Some(Render::Decimal),
        };
        Layout {
            size: self.bytes(),
            shape: Shape::Int { signed },
            render,
        }
    }
}

/// Returns the layout of the sum of tables with this layout. Values of queues and stacks are not
/// added up.
pub fn sums(layout: &TableLayout, rules: &MergeRules, width: SumWidth) -> TableLayout {
    let adds = |path: &str, meaning| rules.join(path, meaning).rule == MergeRule::Sum;
    let value = clocked(&layout.value);
    let value = if layout.kind.family() == MapFamily::Fifo {
        value
    } else {
        widened(&value, width, &adds)
    };
    TableLayout {
        value,
        ..layout.clone()
    }
}

/// Returns the layout in which each summed number gets the width for its path and meaning. The
/// members of unions, which share bits, stay unchanged.
pub fn widened(layout: &Layout, width: SumWidth, adds: &dyn Fn(&str, Meaning) -> bool) -> Layout {
    Widening { width, adds }.layout(layout, None, "", false)
}

/// Tells whether the layout has numbers as wide as the widest sums.
pub fn is_widest(layout: &Layout) -> bool {
    match &layout.shape {
        Shape::Int { .. } => {
            layout.size == SumWidth::Widest.bytes()
                && matches!(layout.render, Some(Render::Decimal | Render::Histogram))
        }
        Shape::Array { element, .. } => is_widest(element),
        Shape::Struct(members) => members.iter().any(|member| is_widest(&member.layout)),
        _ => false,
    }
}

struct Widening<'a> {
    width: SumWidth,
    adds: &'a dyn Fn(&str, Meaning) -> bool,
}

impl Widening<'_> {
    fn layout(
        &self,
        layout: &Layout,
        inherited: Option<Render>,
        path: &str,
        is_item: bool,
    ) -> Layout {
        let size = layout.size;
        match (plan::compile(layout, inherited, |_| ()), &layout.shape) {
            (Plan::Scalar { kind, .. }, _) if self.widens(&kind, path, 8 * size, is_item) => {
                self.width.number(&kind, layout.render)
            }
            (Plan::Struct(_), Shape::Struct(members)) => self.record(layout, members, path),
            (Plan::Array { .. }, Shape::Array { element, len }) => {
                let element = self.layout(element, inherited.or(layout.render), path, true);
                let size = if element.size * len > size {
                    element.size * len
                } else {
                    size
                };
                Layout {
                    size,
                    shape: Shape::Array {
                        element: Box::new(element),
                        len: *len,
                    },
                    ..layout.clone()
                }
            }
            _ => layout.clone(),
        }
    }

    fn widens(&self, kind: &Scalar, path: &str, width: usize, is_item: bool) -> bool {
        width < 8 * self.width.bytes()
            && matches!(kind, Scalar::Unsigned | Scalar::Signed)
            && (self.adds)(path, Meaning::of(Some(kind), path, width as u32, is_item))
    }

    fn record(&self, layout: &Layout, members: &[Member], path: &str) -> Layout {
        let mut wider = members.to_vec();
        for member in &mut wider {
            let path = if path.is_empty() {
                member.name.clone()
            } else {
                format!("{path}.{}", member.name)
            };
            match member.bitfield.map(usize::from) {
                None => member.layout = self.layout(&member.layout, None, &path, false),
                Some(width) => {
                    if let Some(Plan::Scalar { kind, .. }) =
                        plan::bitfield::<()>(&member.layout, width)
                        && self.widens(&kind, &path, width, false)
                    {
                        (member.layout, member.bitfield) = (self.width.number(&kind, None), None);
                    }
                }
            }
        }
        if wider == members {
            return layout.clone();
        }
        let size = place(members, &mut wider);
        Layout {
            size,
            shape: Shape::Struct(wider),
            ..layout.clone()
        }
    }
}

/// Gives each member a separate place, in the order of the old places. Members that share bits stay
/// together and keep their layouts. Returns the total size in bytes.
fn place(members: &[Member], wider: &mut [Member]) -> usize {
    let span = |member: &Member| {
        let width = member.bitfield.map_or(8 * member.layout.size, usize::from);
        (member.bit_offset, member.bit_offset + width)
    };
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&index| span(&members[index]).0);
    let (mut at, mut rest) = (0, &order[..]);
    while let Some(&first) = rest.first() {
        let (start, mut end) = span(&members[first]);
        let mut count = 1;
        while let Some(&next) = rest
            .get(count)
            .filter(|next| span(&members[**next]).0 < end)
        {
            end = end.max(span(&members[next]).1);
            count += 1;
        }
        let (group, others) = rest.split_at(count);
        rest = others;
        let base = start / 8;
        let mut bytes = end.div_ceil(8) - base;
        if let [one] = group {
            let member = &mut wider[*one];
            let is_whole = member.bitfield.is_none();
            member.bit_offset = 8 * at + if is_whole { 0 } else { start % 8 };
            bytes = if is_whole { member.layout.size } else { bytes };
        } else {
            for &index in group {
                wider[index] = members[index].clone();
                wider[index].bit_offset = members[index].bit_offset - 8 * base + 8 * at;
            }
        }
        at += bytes.next_multiple_of(8);
    }
    at
}

/// Returns the layout with times of the wall clock in place of times since the boot.
fn clocked(layout: &Layout) -> Layout {
    let members = |members: &[Member]| -> Vec<Member> {
        let clocked = |member: &Member| match member.bitfield {
            Some(_) => member.clone(),
            None => Member {
                layout: clocked(&member.layout),
                ..member.clone()
            },
        };
        members.iter().map(clocked).collect()
    };
    let shape = match &layout.shape {
        Shape::Array { element, len } => Shape::Array {
            element: Box::new(clocked(element)),
            len: *len,
        },
        Shape::Struct(all) => Shape::Struct(members(all)),
        Shape::Union(all) => Shape::Union(members(all)),
        shape => shape.clone(),
    };
    let render = if layout.render == Some(Render::Ktime) {
        Some(Render::Time)
    } else {
        layout.render
    };
    Layout {
        shape,
        render,
        ..layout.clone()
    }
}

/// Does the same as [`convert_slots`] for two layouts of which one may have times since a boot and
/// the other times of the wall clock. `boot_time_ns` is the time of the boot by the wall clock.
pub fn convert_times(
    table: &RawTable,
    from: &TableLayout,
    to: &TableLayout,
    boot_time_ns: i128,
) -> Option<Vec<RawTable>> {
    let mut tables = convert_slots(table, from, to)?;
    tables
        .iter_mut()
        .for_each(|table| set_clock(table, from, to, boot_time_ns));
    Some(tables)
}

/// Converts the rows of a sum to rows of the original map. Numbers that do not fit become the
/// largest numbers that fit.
pub fn narrowed(
    table: &RawTable,
    from: &TableLayout,
    to: &TableLayout,
    boot_time_ns: i128,
) -> Option<RawTable> {
    let mut table = convert(table, from, to)?;
    set_clock(&mut table, from, to, boot_time_ns);
    Some(table)
}

/// Converts the times in a table to the clock of its layout, which was changed before.
fn set_clock(table: &mut RawTable, from: &TableLayout, to: &TableLayout, boot_time_ns: i128) {
    if from.renders(Render::Ktime) == to.renders(Render::Ktime) {
        return;
    }
    let own = |layout: &Layout, clock: bool| {
        let mut paths = HashSet::new();
        Leaves::new(layout, &mut |path: &str, meaning| {
            let is_own = matches!(meaning, Meaning::Time { since_boot, .. } if since_boot == clock);
            is_own.then(|| paths.insert(path.to_owned())).map(drop)
        });
        paths
    };
    for (to_boot, by) in [(false, boot_time_ns), (true, -boot_time_ns)] {
        let before = own(&from.value, !to_boot);
        let leaves = Leaves::new(&to.value, &mut |path: &str, meaning| {
            let now = matches!(meaning, Meaning::Time { since_boot, .. } if since_boot == to_boot);
            (now && before.contains(path)).then_some(())
        });
        for slot in table.values.chunks_exact_mut(to.slot_stride().max(1)) {
            leaves.for_each(|leaf, base| {
                let time = leaf.load(slot, base);
                // Zero means "never", so a time before the boot becomes 1, the earliest one.
                if time != 0 {
                    let moved = time.cast_signed().saturating_add(by).max(1);
                    leaf.store(slot, base, moved.cast_unsigned());
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
