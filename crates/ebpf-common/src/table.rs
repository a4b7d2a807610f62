//! The content of one map as it was read: bytes only, decoded by the exporter.

use crate::{Layout, MapKind};

/// What is constant about a map: its kind and what its keys and values mean.
#[derive(Clone, Debug)]
pub struct TableLayout {
    pub kind: MapKind,
    /// Size 0 where the kind has no keys.
    pub key: Layout,
    /// One value, of one CPU.
    pub value: Layout,
    /// Values per entry: the number of possible CPUs for PERCPU kinds, else 1.
    pub slots: usize,
}

impl TableLayout {
    /// Bytes from one CPU's value to the next: the kernel rounds PERCPU values up to 8.
    pub const fn slot_stride(&self) -> usize {
        if self.kind.is_percpu() { self.value.size.next_multiple_of(8) } else { self.value.size }
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
}

impl RawTable {
    /// Complete entries.
    pub fn len(&self, layout: &TableLayout) -> usize {
        let values = self.values.len().checked_div(layout.value_stride()).unwrap_or(0);
        let keys = if layout.kind.has_keys() { self.keys.len().checked_div(layout.key.size) } else { None };
        keys.map_or(values, |keys| keys.min(values))
    }

    /// The `(key, value)` bytes of each entry; the key is empty where the kind has none.
    pub fn entries<'a>(&'a self, layout: &'a TableLayout) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (key, stride) = (layout.key.size, layout.value_stride());
        (0..self.len(layout)).map(move |i| {
            let key = if layout.kind.has_keys() { &self.keys[i * key..(i + 1) * key] } else { &[][..] };
            (key, &self.values[i * stride..(i + 1) * stride])
        })
    }
}
