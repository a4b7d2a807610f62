//! The content of one map after its reading: bytes that the exporter decodes.

pub mod changes;
pub mod interface;
pub mod known;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::layout::{Layout, Render};
use crate::map_kind::MapKind;

/// The facts about a map that do not change: its kind, and the meaning of its keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableLayout {
    /// The type of the map.
    pub kind: MapKind,
    /// The meaning of a key; its size is 0 if the kind has no keys.
    pub key: Layout,
    /// The meaning of one value. For a PERCPU kind, this is the value of one CPU.
    pub value: Layout,
    /// The number of values in an entry: the number of possible CPUs for PERCPU kinds, and 1 for
    /// other kinds.
    pub slots: usize,
    /// The layout of the inner maps of a map of maps, which all its inner maps share.
    pub inner: Option<Arc<TableLayout>>,
}

impl TableLayout {
    /// Returns the number of bytes from one CPU's value to the next. The kernel rounds the size of
    /// PERCPU values up to a multiple of 8.
    pub const fn slot_stride(&self) -> usize {
        if self.kind.is_percpu() {
            self.value.size.next_multiple_of(8)
        } else {
            self.value.size
        }
    }

    /// Tells whether a key or a value asks for this rendering.
    pub fn renders(&self, render: Render) -> bool {
        let here = self.key.renders(render) || self.value.renders(render);
        here || self
            .inner
            .as_ref()
            .is_some_and(|inner| inner.renders(render))
    }

    /// Returns the number of bytes that one entry has in [`RawTable::values`].
    pub const fn value_stride(&self) -> usize {
        self.slot_stride() * self.slots
    }
}

/// The entries of a map in the kernel's order. Entry `i` is `key.size` bytes of `keys`, and
/// [`TableLayout::value_stride`] bytes of `values`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawTable {
    /// The bytes of all keys, in the order of the rows.
    pub keys: Vec<u8>,
    /// The values, one after the other; for PERCPU kinds, all slots of an entry.
    pub values: Vec<u8>,
    /// The content of each entry's inner map, for maps of maps. `values` holds the ids of the inner
    /// maps.
    pub inner: Vec<RawTable>,
}

/// One entry of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableRow<'a> {
    /// The bytes of the key; empty if the kind has no keys.
    pub key: &'a [u8],
    /// The bytes of the value: [`TableLayout::value_stride`] bytes.
    pub value: &'a [u8],
    /// The content of the inner map, for a map of maps.
    pub inner: Option<&'a RawTable>,
}

impl RawTable {
    /// Tells whether the table has no entries.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.values.is_empty()
    }

    /// Removes all entries, but keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.inner.clear();
    }

    /// Appends the entries of `other`, which is of the same layout.
    pub fn append(&mut self, other: &Self) {
        self.keys.extend_from_slice(&other.keys);
        self.values.extend_from_slice(&other.values);
        self.inner.extend_from_slice(&other.inner);
    }

    /// Returns a copy of the entries `from..to`, as far as they exist.
    pub fn slice(&self, from: usize, to: usize, layout: &TableLayout) -> Self {
        fn part<T: Clone>(all: &[T], from: usize, to: usize, size: usize) -> Vec<T> {
            let end = (to * size).min(all.len());
            all[(from * size).min(end)..end].to_vec()
        }
        Self {
            keys: part(&self.keys, from, to, layout.key.size),
            values: part(&self.values, from, to, layout.value_stride()),
            inner: part(&self.inner, from, to, 1),
        }
    }

    /// Removes all entries except the first `len`.
    pub fn truncate(&mut self, len: usize, layout: &TableLayout) {
        self.keys.truncate(len * layout.key.size);
        self.values.truncate(len * layout.value_stride());
        self.inner.truncate(len);
    }

    /// Returns the number of complete entries.
    pub fn len(&self, layout: &TableLayout) -> usize {
        let values = self
            .values
            .len()
            .checked_div(layout.value_stride())
            .unwrap_or(0);
        let keys = if layout.kind.has_keys() {
            self.keys.len().checked_div(layout.key.size)
        } else {
            None
        };
        keys.map_or(values, |keys| keys.min(values))
    }

    /// Returns the bytes of each entry's key and value; the key is empty if the kind has no keys.
    pub fn entries<'a>(
        &'a self,
        layout: &'a TableLayout,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.rows(layout).map(|row| (row.key, row.value))
    }

    /// Does the same as [`Self::entries`], with the content of inner maps.
    pub fn rows<'a>(
        &'a self,
        layout: &TableLayout,
    ) -> impl Iterator<Item = TableRow<'a>> + use<'a> {
        let key = if layout.kind.has_keys() {
            layout.key.size
        } else {
            0
        };
        let stride = layout.value_stride();
        (0..self.len(layout)).map(move |i| TableRow {
            key: &self.keys[i * key..(i + 1) * key],
            value: &self.values[i * stride..(i + 1) * stride],
            inner: self.inner.get(i),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(kind: MapKind, key: usize, value: usize, slots: usize) -> TableLayout {
        TableLayout {
            kind,
            key: Layout::opaque(key),
            value: Layout::opaque(value),
            slots,
            inner: None,
        }
    }

    fn table(keys: &[u8], values: &[u8]) -> RawTable {
        RawTable {
            keys: keys.to_vec(),
            values: values.to_vec(),
            ..RawTable::default()
        }
    }

    #[test]
    fn values_of_cpus_are_eight_bytes_apart() {
        assert_eq!(layout(MapKind::PercpuHash, 4, 5, 3).value_stride(), 24);
        assert_eq!(layout(MapKind::Hash, 4, 5, 1).value_stride(), 5);
    }

    #[test]
    fn an_entry_that_is_cut_off_does_not_count() {
        let layout = layout(MapKind::Hash, 1, 2, 1);
        assert_eq!(table(&[1, 2], &[0; 5]).len(&layout), 2);
        assert_eq!(table(&[1, 2], &[0; 3]).len(&layout), 1);
        assert_eq!(table(&[1], &[0; 5]).len(&layout), 1);
    }

    #[test]
    fn some_rows_are_those_that_are_there() {
        let layout = layout(MapKind::Hash, 1, 1, 1);
        let table = table(&[1, 2, 3], &[10, 20, 30]);
        let keys = |from, to| table.slice(from, to, &layout).keys;
        assert_eq!(keys(1, 9), [2, 3]);
        assert_eq!(keys(0, 2), [1, 2]);
        assert_eq!(keys(3, 4), [0_u8; 0]);
        assert_eq!(
            table.slice(1, 9, &layout),
            RawTable {
                keys: vec![2, 3],
                values: vec![20, 30],
                ..RawTable::default()
            }
        );
    }

    #[test]
    fn queues_have_values_and_no_keys() {
        let layout = layout(MapKind::Queue, 0, 2, 1);
        let rows = table(&[], &[1, 2, 3, 4]);
        let entries: Vec<_> = rows.entries(&layout).collect();
        assert_eq!(entries, [(&[][..], &[1, 2][..]), (&[], &[3, 4])]);
    }
}
