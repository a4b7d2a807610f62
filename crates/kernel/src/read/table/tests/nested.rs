//! Maps of maps, and variables.

use aya_obj::generated::BPF_F_MMAPABLE;

use super::*;
use crate::read::variable::Variable;
use crate::sys::map as sys_map;
use crate::sys::mapping::{Mapping, MappingAccess as Memory};

pub struct Outer {
    pub table: MapTable,
    pub inner: Vec<(Vec<u8>, MapTable)>,
}

/// An outer map with three inner maps, in slots 0, 2 and 5.
pub fn outer(
    kind: MapKind,
    inner_kind: MapKind,
    access: MapAccess,
    inner_access: MapAccess,
) -> Outer {
    let inner: Vec<(Vec<u8>, MapTable)> = [0_u32, 2, 5]
        .map(|slot| {
            (
                slot.to_ne_bytes().to_vec(),
                table(inner_kind, (4, 8), 100, inner_access, 64),
            )
        })
        .into();
    let fd = sys_map::map_create(&MapCreate {
        map_type: kind.bpf_type().unwrap(),
        key_size: 4,
        value_size: 4,
        max_entries: 7,
        inner: Some(inner[0].1.fd()),
        ..MapCreate::default()
    })
    .unwrap();
    for (key, inner) in &inner {
        let number = std::os::fd::AsRawFd::as_raw_fd(&inner.fd);
        sys_map::map_update(fd.as_fd(), key, &number.to_ne_bytes()).unwrap();
    }
    let layout = TableLayout {
        inner: Some(layout(inner_kind, 4, 8)),
        ..TableLayout::clone(&layout(kind, 4, 4))
    };
    let table = MapTable::new(fd, "outer", Arc::new(layout), 7, [access, inner_access]);
    Outer { table, inner }
}

fn read_outer(outer: &Outer, after: AfterRead) -> BTreeMap<Vec<u8>, Rows> {
    let layout = Arc::clone(&outer.table.layout);
    let mut found = BTreeMap::new();
    let mut sink = |chunk: &mut RawTable| {
        for (index, (key, _)) in chunk.entries(&layout).enumerate() {
            let mut rows = Rows::new();
            collect(
                &mut rows,
                layout.inner.as_ref().unwrap(),
                &chunk.inner[index],
            );
            assert!(found.insert(key.to_vec(), rows).is_none(), "{key:?} twice");
        }
        ControlFlow::Continue(())
    };
    assert!(
        outer
            .table
            .read_chunks(after, &mut sink)
            .unwrap()
            .is_continue()
    );
    found
}

#[test]
fn the_maps_in_maps_are_read_and_emptied() {
    for kind in [MapKind::HashOfMaps, MapKind::ArrayOfMaps] {
        for inner_kind in [MapKind::Hash, MapKind::Array, MapKind::PercpuHash] {
            for access in accesses(kind) {
                for inner_access in accesses(inner_kind) {
                    let outer = outer(kind, inner_kind, access, inner_access);
                    let expected: BTreeMap<Vec<u8>, Rows> = (outer.inner.iter().zip([100, 3, 50]))
                        .map(|((key, inner), count)| (key.clone(), fill(inner, count)))
                        .collect();
                    let same = |found: BTreeMap<Vec<u8>, Rows>| {
                        assert_eq!(found.len(), expected.len());
                        for (key, rows) in &expected {
                            let written = |(key, _): &(Vec<u8>, Vec<u8>)| rows.contains_key(key);
                            assert_eq!(
                                found[key]
                                    .clone()
                                    .into_iter()
                                    .filter(written)
                                    .collect::<Rows>(),
                                *rows
                            );
                        }
                    };
                    same(read_outer(&outer, AfterRead::Keep));
                    same(read_outer(&outer, AfterRead::Reset));
                    let left = read_outer(&outer, AfterRead::Keep);
                    assert_eq!(left.len(), 3, "the outer map keeps its maps");
                    for (key, rows) in left {
                        assert_eq!(rows, emptied(&outer.inner[0].1, &rows), "{key:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn variables_are_read_and_reset_without_their_neighbours() {
    let len = 100_usize;
    let fd = create(MapKind::Array, 4, len as u32, 1, BPF_F_MMAPABLE);
    let content: Vec<u8> = (0..len as u8).collect();
    let memory = Arc::new(Mapping::new(fd.as_fd(), 0, len, Memory::ReadWrite).unwrap());
    for (offset, size) in [
        (0, 1),
        (1, 8),
        (8, 8),
        (3, 13),
        (4, 4),
        (96, 4),
        (99, 1),
        (0, 100),
        (7, 24),
    ] {
        sys_map::map_update(fd.as_fd(), &[0; 4], &content).unwrap();
        let initial: Box<[u8]> = vec![0xee; size].into();
        let layout = layout(MapKind::Global, 0, size as u32);
        let (memory, of_variable) = (Arc::clone(&memory), Arc::clone(&layout));
        let variable = MetricMap::Variable(Variable {
            memory,
            layout: of_variable,
            offset,
            initial,
        });
        let read = |after| {
            let out = variable.read(after).unwrap();
            assert_eq!(out.len(&layout), 1);
            out.values
        };
        assert_eq!(read(AfterRead::Keep), content[offset..offset + size]);
        assert_eq!(read(AfterRead::Reset), content[offset..offset + size]);
        let mut expected = content.clone();
        expected[offset..offset + size].fill(0xee);
        let mut now = vec![0; len.next_multiple_of(8)];
        sys_map::map_lookup(fd.as_fd(), &[0; 4], &mut now).unwrap();
        assert_eq!(now[..len], expected, "{offset} {size}");
    }
}
