//! Fields of all meanings in values that both the old and the new programs have changed, on real
//! maps: runs as root.

use twinprobe_ebpf_common::{Layout, MapKind, Member, Render, Shape};

use super::*;
use crate::sys::map::{MapCreate, map_create, map_lookup, map_update};

/// Packets, the smallest, the largest, flags, TTL, port, a time, and a small count after the last
/// word.
type Value = (u32, u16, u16, u8, u8, u16, u64, u8);

const SIZE: usize = 21;

fn layout(kind: MapKind, slots: usize) -> TableLayout {
    let rendered = |size, render| Layout {
        render: Some(render),
        ..Layout::unsigned(size)
    };
    let members = [
        ("packets", 0, Layout::unsigned(4)),
        ("min", 4, Layout::unsigned(2)),
        ("max", 6, Layout::unsigned(2)),
        ("flags", 8, Layout::unsigned(1)),
        ("ttl", 9, Layout::unsigned(1)),
        ("port", 10, rendered(2, Render::Be16)),
        ("last", 12, rendered(8, Render::Ktime)),
        ("resets", 20, Layout::unsigned(1)),
    ];
    let member = |(name, offset, layout): (&str, usize, Layout)| Member {
        name: name.into(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout,
    };
    let shape = Shape::Struct(members.map(member).into());
    let value = Layout {
        size: SIZE,
        shape,
        render: None,
    };
    TableLayout {
        kind,
        key: Layout::unsigned(4),
        value,
        slots,
        inner: None,
    }
}

fn bytes(
    (packets, min, max, flags, ttl, port, last, resets): Value,
    layout: &TableLayout,
) -> Vec<u8> {
    let mut slot = [
        &packets.to_ne_bytes()[..],
        &min.to_ne_bytes(),
        &max.to_ne_bytes(),
        &[flags, ttl],
        &port.to_be_bytes(),
        &last.to_ne_bytes(),
        &[resets],
    ]
    .concat();
    slot.resize(layout.slot_stride(), 0);
    slot.repeat(layout.slots)
}

#[test]
fn each_field_joins_by_what_it_means() {
    for kind in [
        MapKind::Hash,
        MapKind::PercpuHash,
        MapKind::Array,
        MapKind::LpmTrie,
    ] {
        let slots = if kind.is_percpu() {
            cpus::possible_cpus().unwrap()
        } else {
            1
        };
        let layout = layout(kind, slots);
        let key_size = if kind == MapKind::LpmTrie { 8 } else { 4 };
        let layout = TableLayout {
            key: Layout::unsigned(key_size),
            ..layout
        };
        let create = MapCreate {
            name: "tp_test",
            map_type: kind.bpf_type().unwrap(),
            key_size: key_size as u32,
            value_size: SIZE as u32,
            max_entries: 8,
            flags: u32::from(kind == MapKind::LpmTrie),
            ..MapCreate::default()
        };
        let map = map_create(&create).unwrap();
        let key = |key: u8| [&[key, 0, 0, 0], &vec![0; key_size - 4][..]].concat();
        let cases: [(Option<Value>, Value, Value, Value); 4] = [
            // The value at the copy, the old programs' value, the new programs' value, and their
            // join.
            (
                Some((9, 60, 100, 0x10, 64, 80, 500, 3)),
                (19, 40, 120, 0x12, 63, 81, 900, 5),
                (10, 50, 200, 0x11, 64, 80, 800, 4),
                (20, 40, 200, 0x13, 63, 81, 900, 6),
            ),
            (
                Some((9, 60, 100, 0x10, 64, 80, 500, 3)),
                (10, 60, 100, 0x10, 60, 443, 501, 3),
                (11, 60, 150, 0x10, 61, 22, 800, 3),
                (12, 60, 150, 0x10, 61, 22, 800, 3),
            ),
            // An entry of another map, which is added; and an existing entry that is not used yet.
            (
                None,
                (3, 40, 90, 0x02, 63, 80, 700, 1),
                (4, 50, 80, 0x10, 64, 80, 600, 1),
                (7, 40, 90, 0x12, 64, 80, 700, 2),
            ),
            (
                None,
                (3, 40, 90, 0x02, 63, 80, 700, 1),
                (0, 0, 0, 0, 0, 0, 0, 0),
                (3, 40, 90, 0x02, 63, 80, 700, 1),
            ),
        ];
        let (mut copied, mut rows) = (HashMap::new(), RawTable::default());
        for (index, (before, old, new, _)) in (0..).zip(cases) {
            let key = key(index);
            if let Some(before) = before {
                copied.insert(key.clone().into(), bytes(before, &layout).into());
            }
            map_update(map.as_fd(), &key, &bytes(new, &layout)).unwrap();
            rows.keys.extend_from_slice(&key);
            rows.values.extend_from_slice(&bytes(old, &layout));
        }
        let left = add_changes(&map, &layout, &copied, &HashSet::new(), &rows).unwrap();
        assert!(left.is_empty());
        for (index, (.., expected)) in (0..).zip(cases) {
            let mut value = vec![0; layout.value_stride()];
            assert!(map_lookup(map.as_fd(), &key(index), &mut value).unwrap());
            assert_eq!(
                value[..SIZE],
                bytes(expected, &layout)[..SIZE],
                "{kind:?}, entry {index}"
            );
        }
    }
}
