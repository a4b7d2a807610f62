//! The counters in a value: numbers that a value of the same layout can be added to, one by one.

use crate::layout::{Layout, Shape};

/// Offset and size in bytes of every counter: an aligned integer of 4 or 8 bytes in the machine's own byte order.
/// Bitfields, unions and numbers that a rendering gives another meaning are none.
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
