//! The difference between a table and the next one: removed entries, changed values, and new
//! entries at the end. A table and its differences give all later tables, identical to the byte.

use crate::table::{RawTable, TableLayout};

/// The changes that convert one table into the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// The places of the removed entries in the first table.
    pub gone: Vec<usize>,
    /// The places of the entries whose values have changed, counted without the removed entries.
    pub changed: Vec<usize>,
    /// The keys of the new entries; and the values of the changed entries, followed by the values
    /// of the new entries.
    pub rows: RawTable,
}

impl TableChanges {
    /// Returns the stored size in bytes.
    pub fn size(&self) -> usize {
        let places = self.places();
        self.rows.keys.len() + self.rows.values.len() + places.keys.len() + places.values.len()
    }

    /// Returns the places as bytes: the places of removed entries as keys, and those of changed
    /// entries as values. Most places are close together, so that the distances between them take
    /// one byte each.
    pub fn places(&self) -> RawTable {
        RawTable {
            keys: distances(&self.gone),
            values: distances(&self.changed),
            ..RawTable::default()
        }
    }

    /// Makes the changes from `rows` and from the result of [`Self::places`]; `None` if that result
    /// is incomplete.
    pub fn of_parts(rows: RawTable, places: &RawTable) -> Option<Self> {
        Some(Self {
            gone: places_of(&places.keys)?,
            changed: places_of(&places.values)?,
            rows,
        })
    }

    /// Applies the changes to `table`. If entries have ages, notes `seq` as the age of changed and
    /// new entries. Returns false if the changes do not fit this table.
    pub fn apply(
        &self,
        table: &mut RawTable,
        ages: &mut Vec<u64>,
        seq: u64,
        layout: &TableLayout,
    ) -> bool {
        if !self.remove_gone(table, ages, layout) {
            return false;
        }
        let stride = layout.value_stride();
        let Some((changed, new)) = self
            .rows
            .values
            .split_at_checked(self.changed.len() * stride)
        else {
            return false;
        };
        for (&place, value) in self.changed.iter().zip(changed.chunks_exact(stride.max(1))) {
            let Some(slot) = table.values.get_mut(place * stride..(place + 1) * stride) else {
                return false;
            };
            slot.copy_from_slice(value);
            ages.get_mut(place).into_iter().for_each(|age| *age = seq);
        }
        let before = table.len(layout);
        table.keys.extend_from_slice(&self.rows.keys);
        table.values.extend_from_slice(new);
        let after = table.len(layout);
        if layout.kind.comes_and_goes() {
            ages.resize(after, seq);
        }
        let keys = if layout.kind.has_keys() {
            layout.key.size
        } else {
            0
        };
        after >= before && table.values.len() == after * stride && table.keys.len() == after * keys
    }

    fn remove_gone(&self, table: &mut RawTable, ages: &mut Vec<u64>, layout: &TableLayout) -> bool {
        if self.gone.is_empty() {
            return true;
        }
        let len = table.len(layout);
        let mut goes = vec![false; len];
        for &place in &self.gone {
            let Some(goes) = goes.get_mut(place) else {
                return false;
            };
            *goes = true;
        }
        let mut left = RawTable::default();
        for ((key, value), _) in table.entries(layout).zip(&goes).filter(|(_, goes)| !**goes) {
            left.keys.extend_from_slice(key);
            left.values.extend_from_slice(value);
        }
        *table = left;
        let mut goes = goes.into_iter();
        ages.retain(|_| !goes.next().unwrap_or_default());
        true
    }
}

/// Writes ascending places as distances, each in as many groups of 7 bits as it needs.
fn distances(places: &[usize]) -> Vec<u8> {
    let (mut bytes, mut next) = (Vec::with_capacity(places.len()), 0);
    for &place in places {
        let mut distance = place - next;
        while distance >= 0x80 {
            bytes.push(distance as u8 | 0x80);
            distance >>= 7;
        }
        bytes.push(distance as u8);
        next = place + 1;
    }
    bytes
}

/// Reads the places that [`distances`] has written; `None` if the bytes are incomplete or a number
/// is too large.
fn places_of(bytes: &[u8]) -> Option<Vec<usize>> {
    let mut places = Vec::with_capacity(bytes.len());
    let (mut next, mut distance, mut shift) = (0_usize, 0_usize, 0_u32);
    for byte in bytes {
        distance |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            let place = next.checked_add(distance)?;
            places.push(place);
            (next, distance, shift) = (place.checked_add(1)?, 0, 0);
        }
    }
    (shift == 0).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::map_kind::MapKind;

    fn layout(kind: MapKind) -> TableLayout {
        TableLayout {
            kind,
            key: Layout::unsigned(1),
            value: Layout::unsigned(2),
            slots: 1,
            inner: None,
        }
    }

    fn raw(keys: &[u8], values: &[u8]) -> RawTable {
        RawTable {
            keys: keys.to_vec(),
            values: values.to_vec(),
            ..RawTable::default()
        }
    }

    #[test]
    fn entries_go_change_and_come() {
        let changes = TableChanges {
            gone: vec![0, 2],
            changed: vec![1],
            rows: raw(&[9], &[44, 0, 90, 0]),
        };
        let (mut table, mut ages) = (
            raw(&[1, 2, 3, 4], &[1, 0, 2, 0, 3, 0, 4, 0]),
            vec![1, 2, 3, 4],
        );
        assert!(changes.apply(&mut table, &mut ages, 7, &layout(MapKind::Hash)));
        assert_eq!(
            (table, ages),
            (raw(&[2, 4, 9], &[2, 0, 44, 0, 90, 0]), vec![2, 7, 7])
        );
    }

    #[test]
    fn changes_of_another_table_are_refused() {
        let of = |gone: &[usize], changed: &[usize], rows| TableChanges {
            gone: gone.to_vec(),
            changed: changed.to_vec(),
            rows,
        };
        for changes in [
            of(&[3], &[], RawTable::default()),
            of(&[], &[2], raw(&[], &[1, 1])),
            of(&[], &[0, 1], raw(&[], &[1, 1])),
            of(&[], &[], raw(&[5], &[])),
            of(&[], &[], raw(&[], &[5, 5])),
        ] {
            let (mut table, mut ages) = (raw(&[1, 2], &[1, 0, 2, 0]), vec![1, 2]);
            assert!(
                !changes.apply(&mut table, &mut ages, 7, &layout(MapKind::Hash)),
                "{changes:?}"
            );
        }
    }

    #[test]
    fn places_are_read_as_they_were_written() {
        let places = [0, 1, 5, 132, 133, 20_000, 3_000_000, usize::MAX - 1];
        let bytes = distances(&places);
        assert_eq!(places_of(&bytes), Some(places.to_vec()));
        assert_eq!(places_of(&bytes[..bytes.len() - 1]), None, "cut off");
        assert_eq!(places_of(&[0xff; 12]), None, "too large");
        assert_eq!(
            distances(&(0..100).collect::<Vec<_>>()).len(),
            100,
            "a byte each"
        );
    }
}
