//! The rows of a table in another layout.

use super::value::{Conversion, is_same};
use crate::table::{RawTable, TableLayout};

/// Returns the rows of a table in another layout, in which new fields are zero. `None` if the two
/// layouts are of different kinds, have different keys or different numbers of CPUs, or are those
/// of maps of maps.
pub fn convert(table: &RawTable, from: &TableLayout, to: &TableLayout) -> Option<RawTable> {
    convert_onto(&vec![0; to.value.size], table, from, to)
}

/// Does the same as [`convert`], also between machines with different numbers of CPUs. The returned
/// tables must be added up: the last table has a column for each present CPU, with zeros for new
/// CPUs. Before it comes one table for each removed CPU, with its values in the column of the first
/// CPU.
pub fn convert_slots(
    table: &RawTable,
    from: &TableLayout,
    to: &TableLayout,
) -> Option<Vec<RawTable>> {
    if !from.kind.is_percpu() || from.slots == to.slots {
        return Some(vec![convert(table, from, to)?]);
    }
    let one = |layout: &TableLayout| TableLayout {
        slots: 1,
        ..layout.clone()
    };
    let stride = to.slot_stride();
    // The values of one CPU.
    let of_cpu = |slot: usize| {
        let values = table.entries(from).flat_map(|(_, value)| {
            value[slot * from.slot_stride()..][..from.slot_stride()]
                .iter()
                .copied()
        });
        let own = RawTable {
            keys: table.keys.clone(),
            values: values.collect(),
            ..RawTable::default()
        };
        convert(&own, &one(from), &one(to)).map(|own| own.values)
    };
    let spread = |columns: &[Vec<u8>]| {
        let mut values = vec![0; table.len(from) * to.value_stride()];
        for (row, value) in values
            .chunks_exact_mut(to.value_stride().max(1))
            .enumerate()
        {
            for (slot, column) in value.chunks_exact_mut(stride.max(1)).zip(columns) {
                slot.copy_from_slice(&column[row * stride..][..stride]);
            }
        }
        RawTable {
            keys: table.keys.clone(),
            values,
            ..RawTable::default()
        }
    };
    let mut columns = (0..from.slots).map(of_cpu).collect::<Option<Vec<_>>>()?;
    let gone = columns.split_off(to.slots.min(columns.len()));
    Some(
        gone.into_iter()
            .map(|column| spread(&[column]))
            .chain([spread(&columns)])
            .collect(),
    )
}

/// Tells whether any content of a table in one layout has a counterpart in the other layout.
pub fn carries(from: &TableLayout, to: &TableLayout) -> bool {
    !Conversion::new(&from.value, &to.value).is_empty()
        && convert(
            &RawTable::default(),
            &TableLayout {
                slots: to.slots,
                ..from.clone()
            },
            to,
        )
        .is_some()
}

/// Does the same as [`convert`], but new fields have their content in `blank`, which is one value
/// of the new layout.
pub fn convert_onto(
    blank: &[u8],
    table: &RawTable,
    from: &TableLayout,
    to: &TableLayout,
) -> Option<RawTable> {
    if from.kind != to.kind
        || from.slots != to.slots
        || from.kind.is_nested()
        || !is_same(&from.key, &to.key)
    {
        return None;
    }
    let conversion = Conversion::new(&from.value, &to.value);
    let mut out = RawTable {
        keys: table.keys.clone(),
        ..RawTable::default()
    };
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
