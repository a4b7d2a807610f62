//! Rows that contain the name of the interface whose packets they count. If each interface has maps
//! of its own, the rows of all these maps make one table. The name is the first field of each key.
//! For queues and stacks, which have no keys, it is the first field of each value.

use crate::convert::rows::carries;
use crate::layout::{Layout, Member, Render, Shape};
use crate::map_kind::{MapFamily, MapKind};
use crate::table::{RawTable, TableLayout};

/// The number of bytes of a name, including the NUL at its end (`IFNAMSIZ` of `linux/if.h`).
const NAME: usize = 16;
/// The name of the field that contains the interface.
const FIELD: &str = "interface";

impl TableLayout {
    /// Returns the layout of rows that name their interface. `key` is the name of a key that has no
    /// fields.
    pub fn with_interface(&self, key: &str) -> Self {
        let mut named = self.clone();
        match self.kind.family() {
            MapFamily::Fifo => named.value = with_name(&self.value, "value"),
            MapFamily::Global => {
                named.kind = MapKind::Array;
                named.key = Layout {
                    size: NAME,
                    shape: Shape::Struct(vec![name(FIELD)]),
                    render: None,
                };
            }
            MapFamily::Hash | MapFamily::Array | MapFamily::Trie | MapFamily::Nested => {
                named.key = with_name(&self.key, key);
            }
        }
        named
    }

    /// The number of bytes that name the interface, at the start of each key.
    pub fn interface_bytes(&self) -> usize {
        let has_name = self.kind.family() != MapFamily::Fifo && self.field_behind().is_some();
        if has_name { NAME } else { 0 }
    }

    /// Returns the part of a row that contains the name: the key, or else the value.
    const fn named_part(&self) -> &Layout {
        if matches!(self.kind.family(), MapFamily::Fifo) {
            &self.value
        } else {
            &self.key
        }
    }

    /// Returns the name of the field after the interface, if rows of this layout may name
    /// interfaces.
    fn field_behind(&self) -> Option<&str> {
        let Shape::Struct(members) = &self.named_part().shape else {
            return None;
        };
        let (first, rest) = members.split_first()?;
        let is_name =
            first.layout == name("").layout && first.name.trim_start_matches('_') == FIELD;
        is_name.then(|| rest.first().map_or("", |second| &second.name))
    }
}

impl RawTable {
    /// Returns the rows of `layout` with the name of their interface added.
    pub fn with_interface(&self, layout: &TableLayout, interface: &str) -> Self {
        let mut name = [0; NAME];
        // A name of the kernel always fits. A longer alternative name is cut.
        let room = name.iter_mut().take(NAME - 1);
        room.zip(interface.bytes())
            .for_each(|(slot, byte)| *slot = byte);
        let mut named = Self {
            inner: self.inner.clone(),
            ..Self::default()
        };
        for (key, value) in self.entries(layout) {
            let in_value = layout.kind.family() == MapFamily::Fifo;
            let part = if in_value {
                &mut named.values
            } else {
                &mut named.keys
            };
            part.extend_from_slice(&name);
            named.keys.extend_from_slice(key);
            named.values.extend_from_slice(value);
        }
        named
    }

    /// Converts rows of the layout `from` so that they and their layout can become `to`, if only
    /// one of the two layouts has names of interfaces. Rows without a name get an empty name, and
    /// superfluous names are removed. Returns the rows with their new layout; `None` if the layouts
    /// differ in another way.
    pub fn with_interfaces_of(
        &self,
        from: &TableLayout,
        to: &TableLayout,
    ) -> Option<(Self, TableLayout)> {
        if let Some(key) = to.field_behind() {
            let named = from.with_interface(key);
            if named.kind == to.kind && is_alike(named.named_part(), to.named_part()) {
                return Some((self.with_interface(from, ""), named));
            }
        }
        let named = to.with_interface(from.field_behind()?);
        if named.kind != from.kind || !is_alike(named.named_part(), from.named_part()) {
            return None;
        }
        let mut plain = Self {
            inner: self.inner.clone(),
            ..Self::default()
        };
        let in_value = to.kind.family() == MapFamily::Fifo;
        for (key, value) in self.entries(from) {
            let (key, value) = if in_value {
                (key, &value[NAME..])
            } else {
                (&key[NAME..], value)
            };
            plain.keys.extend_from_slice(key);
            plain.values.extend_from_slice(value);
        }
        let (key, value) = if in_value {
            (&to.key, &to.value)
        } else {
            (&to.key, &from.value)
        };
        let layout = TableLayout {
            kind: to.kind,
            key: key.clone(),
            value: value.clone(),
            ..from.clone()
        };
        Some((plain, layout))
    }
}

/// Tells whether any content of a table can be taken over into the other layout. Only one of the
/// two layouts may have names of interfaces.
pub fn carries_over(from: &TableLayout, to: &TableLayout) -> bool {
    let adapted = || RawTable::default().with_interfaces_of(from, to);
    carries(from, to) || adapted().is_some_and(|(_, layout)| carries(&layout, to))
}

/// Tells whether two parts have the same fields.
fn is_alike(one: &Layout, other: &Layout) -> bool {
    one.size == other.size && one.shape == other.shape
}

fn name(field: &str) -> Member {
    let character = Layout {
        size: 1,
        shape: Shape::Char,
        render: None,
    };
    let shape = Shape::Array {
        element: Box::new(character),
        len: NAME,
    };
    let layout = Layout {
        size: NAME,
        shape,
        render: Some(Render::String),
    };
    Member {
        name: field.to_owned(),
        bit_offset: 0,
        bitfield: None,
        layout,
    }
}

/// Returns the layout of a part with the name of an interface before it. The fields of a struct
/// become siblings of the name.
fn with_name(part: &Layout, field: &str) -> Layout {
    let behind = |member: &Member| Member {
        bit_offset: member.bit_offset + 8 * NAME,
        ..member.clone()
    };
    let members = match &part.shape {
        Shape::Struct(members) if part.render.is_none() => members.iter().map(behind).collect(),
        _ => {
            let (name, layout) = (field.to_owned(), part.clone());
            vec![Member {
                name,
                bit_offset: 8 * NAME,
                bitfield: None,
                layout,
            }]
        }
    };
    let mut own = FIELD.to_owned();
    while members.iter().any(|member| member.name == own) {
        own.insert(0, '_');
    }
    let members = std::iter::once(name(&own)).chain(members).collect();
    Layout {
        size: NAME + part.size,
        shape: Shape::Struct(members),
        render: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(kind: MapKind, key: Layout, value: Layout) -> TableLayout {
        TableLayout {
            kind,
            key,
            value,
            slots: 1,
            inner: None,
        }
    }

    fn fields(layout: &Layout) -> Vec<(&str, usize)> {
        let Shape::Struct(members) = &layout.shape else {
            panic!("{layout:?}")
        };
        members
            .iter()
            .map(|member| (&*member.name, member.bit_offset))
            .collect()
    }

    fn pair(name: &str) -> Layout {
        let member = |name: &str, bit_offset| Member {
            name: name.into(),
            bit_offset,
            bitfield: None,
            layout: Layout::unsigned(2),
        };
        Layout {
            size: 4,
            shape: Shape::Struct(vec![member(name, 0), member("port", 16)]),
            render: None,
        }
    }

    #[test]
    fn the_name_stands_before_the_key() {
        let scalar =
            layout(MapKind::Hash, Layout::unsigned(4), Layout::unsigned(8)).with_interface("vlan");
        assert_eq!(
            (fields(&scalar.key), scalar.key.size),
            (vec![("interface", 0), ("vlan", 128)], 20)
        );
        let fields_beside =
            layout(MapKind::Hash, pair("interface"), Layout::unsigned(8)).with_interface("key");
        assert_eq!(
            fields(&fields_beside.key),
            [("_interface", 0), ("interface", 128), ("port", 144)],
            "the program has a field of that name"
        );
        let global =
            layout(MapKind::Global, Layout::opaque(0), Layout::unsigned(8)).with_interface("key");
        assert_eq!(
            (global.kind, fields(&global.key)),
            (MapKind::Array, vec![("interface", 0)])
        );
        let queue =
            layout(MapKind::Queue, Layout::opaque(0), Layout::unsigned(8)).with_interface("key");
        assert_eq!(fields(&queue.value), [("interface", 0), ("value", 128)]);
    }

    #[test]
    fn rows_of_two_interfaces_differ() {
        let plain = layout(MapKind::Hash, Layout::unsigned(1), Layout::unsigned(1));
        let rows = RawTable {
            keys: vec![7],
            values: vec![9],
            ..RawTable::default()
        };
        let [one, other] = ["eth0", "eth1"].map(|name| rows.with_interface(&plain, name));
        assert_eq!(one.keys, *b"eth0\0\0\0\0\0\0\0\0\0\0\0\0\x07");
        assert_eq!(
            (one.values == other.values, one.keys == other.keys),
            (true, false)
        );
        let long = rows.with_interface(&plain, "an-alternative-name");
        assert_eq!(long.keys, *b"an-alternative-\0\x07");
    }

    #[test]
    fn names_come_and_go_with_their_rows() {
        for (kind, key) in [
            (MapKind::Hash, Layout::unsigned(1)),
            (MapKind::Hash, pair("address")),
            (MapKind::Global, Layout::opaque(0)),
            (MapKind::Queue, Layout::opaque(0)),
        ] {
            let plain = layout(kind, key.clone(), Layout::unsigned(1));
            let named = plain.with_interface("key");
            let rows = RawTable {
                keys: vec![5; key.size],
                values: vec![9],
                ..RawTable::default()
            };
            let (with, of) = rows
                .with_interfaces_of(&plain, &named)
                .expect("only the name is new");
            assert_eq!(
                (&with, &of),
                (&rows.with_interface(&plain, ""), &named),
                "{kind:?}"
            );
            let (without, of) = with
                .with_interfaces_of(&named, &plain)
                .expect("only the name goes");
            assert_eq!((without, of), (rows, plain.clone()), "{kind:?}");
            assert!(
                carries_over(&plain, &named) && carries_over(&named, &plain),
                "{kind:?}"
            );
        }
        let plain = layout(MapKind::Hash, Layout::unsigned(1), Layout::unsigned(1));
        let other =
            layout(MapKind::Hash, Layout::unsigned(4), Layout::unsigned(1)).with_interface("key");
        assert!(!carries_over(&plain, &other), "another key");
    }
}
