//! HASH_OF_MAPS and ARRAY_OF_MAPS, whose values are maps. Programs can't change the slots, so the
//! outer map is only read. The inner maps are read and, if a reset is wanted, emptied.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{MapKind, RawTable};

use crate::read::table::{MapTable, ReadResult, Sink, collect};
use crate::read::{array, hash};
use crate::sys::call::KernelError;
use crate::sys::map;
use crate::sys::object::{self, ObjectKind};

/// Hands on one row for each entry, with the content of the entry's inner map.
pub fn read(map: &MapTable, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
    each(map, sink, &mut |_, inner| {
        collect(|sink| inner.read_flat(after, sink))
    })
}

/// Passes on one row for each entry whose inner map still exists. `content` returns the rows of the
/// inner map with a given id.
pub fn each(
    map: &MapTable,
    sink: &mut Sink<'_>,
    content: &mut dyn FnMut(u32, MapTable) -> Result<RawTable, KernelError>,
) -> ReadResult {
    for (key, value) in entries(map)?.entries(&map.layout) {
        let id = u32::from_ne_bytes(value.try_into().unwrap_or_default());
        let opened = open(map, id).map_err(|error| map.error("opening an inner map", error))?;
        let Some(inner) = opened else { continue };
        let inner = vec![content(id, inner)?];
        let mut row = RawTable {
            keys: key.to_vec(),
            values: value.to_vec(),
            inner,
        };
        if sink(&mut row).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Reads the key and the inner map's id of each entry.
fn entries(map: &MapTable) -> Result<RawTable, KernelError> {
    collect(|sink| match map.layout.kind {
        MapKind::ArrayOfMaps => array::read(map, AfterRead::Keep, sink),
        _ => hash::read(map, AfterRead::Keep, sink),
    })
}

/// Opens the inner map with this id; `None` if the map was freed.
fn open(map: &MapTable, id: u32) -> io::Result<Option<MapTable>> {
    let Some(layout) = &map.layout.inner else {
        return Ok(None);
    };
    let Some(fd) = descriptor(map, id)? else {
        return Ok(None);
    };
    let entries = map::map_info(fd.as_fd())?.max_entries;
    let inner = MapTable::new(fd, &map.name, layout.clone(), entries, [map.inner; 2]);
    Ok(Some(MapTable {
        chunk_bytes: map.chunk_bytes,
        ..inner
    }))
}

fn descriptor(map: &MapTable, id: u32) -> io::Result<Option<OwnedFd>> {
    if let Some((_, fd)) = map.members.iter().find(|(member, _)| *member == id) {
        return fd.try_clone().map(Some);
    }
    // The inner map is not one of the probe's own: another process has put it into the slot.
    object::fd_by_id(ObjectKind::Map, id).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => io::Error::other(format!(
            "map id {id} is not one of the probe's own, and opening it needs CAP_SYS_ADMIN; take it out of \
                {}",
            map.name
        )),
        _ => error,
    })
}
