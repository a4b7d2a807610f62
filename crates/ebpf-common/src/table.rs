//! The content of one map as it was read: bytes only, decoded by the exporter.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Layout, MapKind, Render};

/// What is constant about a map: its kind and what its keys and values mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableLayout {
    pub kind: MapKind,
    /// Size 0 where the kind has no keys.
    pub key: Layout,
    /// One value, of one CPU.
    pub value: Layout,
    /// Values per entry: the number of possible CPUs for PERCPU kinds, else 1.
    pub slots: usize,
    /// For maps of maps: what the maps in it are, all alike.
    pub inner: Option<Arc<TableLayout>>,
}

impl TableLayout {
    /// Bytes from one CPU's value to the next: the kernel rounds PERCPU values up to 8.
    pub const fn slot_stride(&self) -> usize {
        if self.kind.is_percpu() { self.value.size.next_multiple_of(8) } else { self.value.size }
    }

    /// Whether a key or a value asks for this rendering.
    pub fn renders(&self, render: Render) -> bool {
        let here = self.key.renders(render) || self.value.renders(render);
        here || self.inner.as_ref().is_some_and(|inner| inner.renders(render))
    }

    /// Bytes of one entry in [`RawTable::values`].
    pub const fn value_stride(&self) -> usize {
        self.slot_stride() * self.slots
    }
}

/// Entries in the order the kernel gave them: entry `i` is `key.size` bytes of `keys` and
/// [`TableLayout::value_stride`] bytes of `values`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawTable {
    pub keys: Vec<u8>,
    pub values: Vec<u8>,
    /// For maps of maps: the table that is the value of each entry. `values` holds the ids of these maps.
    pub inner: Vec<RawTable>,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Empty where the kind has none.
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The content of the map that the value stands for.
    pub inner: Option<&'a RawTable>,
}

impl RawTable {
    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.values.is_empty()
    }

    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.inner.clear();
    }

    /// Adds the rows of `other`, which is of the same layout.
    pub fn append(&mut self, other: &Self) {
        self.keys.extend_from_slice(&other.keys);
        self.values.extend_from_slice(&other.values);
        self.inner.extend_from_slice(&other.inner);
    }

    /// A copy of entries `from..to`, or of those there are.
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

    /// The first `len` entries stay.
    pub fn truncate(&mut self, len: usize, layout: &TableLayout) {
        self.keys.truncate(len * layout.key.size);
        self.values.truncate(len * layout.value_stride());
        self.inner.truncate(len);
    }

    /// Complete entries.
    pub fn len(&self, layout: &TableLayout) -> usize {
        let values = self.values.len().checked_div(layout.value_stride()).unwrap_or(0);
        let keys = if layout.kind.has_keys() { self.keys.len().checked_div(layout.key.size) } else { None };
        keys.map_or(values, |keys| keys.min(values))
    }

    /// The `(key, value)` bytes of each entry; the key is empty where the kind has none.
    pub fn entries<'a>(&'a self, layout: &'a TableLayout) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.rows(layout).map(|row| (row.key, row.value))
    }

    /// As [`Self::entries`], with the tables in maps of maps.
    pub fn rows<'a>(&'a self, layout: &'a TableLayout) -> impl Iterator<Item = Row<'a>> {
        let (key, stride) = (layout.key.size, layout.value_stride());
        (0..self.len(layout)).map(move |i| {
            let key = if layout.kind.has_keys() { &self.keys[i * key..(i + 1) * key] } else { &[][..] };
            Row { key, value: &self.values[i * stride..(i + 1) * stride], inner: self.inner.get(i) }
        })
    }
}
