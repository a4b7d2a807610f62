//! HASH_OF_MAPS and ARRAY_OF_MAPS: the values are maps. Programs can't change which, so the outer map is only
//! read; the maps in it are read and, if asked for, emptied.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{MapKind, RawTable};

use crate::read::table::{ReadResult, Sink, Table, Taken};
use crate::read::{array, hash};
use crate::sys::call::KernelError;
use crate::sys::map;

/// Leaves out the first `done` entries. `partial` is what was taken out of the one that follows.
pub fn read(
    map: &Table,
    after: AfterRead,
    done: usize,
    partial: &mut RawTable,
    sink: &mut Sink<'_>,
) -> ReadResult {
    for (key, id) in entries(map)?.entries(&map.layout).skip(done) {
        let content = std::mem::take(partial);
        let content = inner(map, id, after, content).map_err(|(error, content)| {
            *partial = content;
            error
        })?;
        if let Some(content) = content {
            let row = RawTable { keys: key.to_vec(), values: id.to_vec(), inner: vec![content] };
            if sink(&row).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Key and map id of each entry.
fn entries(map: &Table) -> Result<RawTable, KernelError> {
    let mut entries = RawTable::default();
    let mut collect = |chunk: &RawTable| {
        entries.append(chunk);
        ControlFlow::Continue(())
    };
    let read = match map.layout.kind {
        MapKind::ArrayOfMaps => array::read(map, AfterRead::Keep, 0, &mut collect),
        _ => hash::read(map, AfterRead::Keep, &mut collect),
    };
    read.map(|_| entries)
}

/// Opens the inner map with this id; `None` if the map is gone.
fn member(map: &Table, id: u32) -> io::Result<Option<OwnedFd>> {
    if let Some((_, fd)) = map.members.iter().find(|(member, _)| *member == id) {
        return fd.try_clone().map(Some);
    }
    // Somebody else has put the map there.
    map::map_fd_by_id(id).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => io::Error::other(format!(
            "map id {id} is none of the probe's own, and opening it takes CAP_SYS_ADMIN; take it out of {}",
            map.name
        )),
        _ => error,
    })
}

/// Adds the content of the map `id` to `content`; `None`: the map is gone. An error comes with what was taken.
fn inner(
    map: &Table,
    id: &[u8],
    after: AfterRead,
    mut content: RawTable,
) -> Result<Option<RawTable>, (KernelError, RawTable)> {
    let Some(layout) = &map.layout.inner else { return Ok(None) };
    let open = || {
        let id = u32::from_ne_bytes(id.try_into().unwrap_or_default());
        let Some(fd) = member(map, id)? else { return Ok(None) };
        let entries = map::map_info(fd.as_fd())?.max_entries;
        let inner = Table::new(fd, &map.name, layout.clone(), entries, [map.inner; 2]);
        Ok(Some(Table { chunk_bytes: map.chunk_bytes, ..inner }))
    };
    let table = match open() {
        Ok(Some(table)) => table,
        Ok(None) => return Ok(None),
        Err(error) => return Err((map.error("opening an inner map", error), content)),
    };
    let mut taken = Taken { rows: content.len(layout), ..Taken::default() };
    let mut append = |chunk: &RawTable| {
        content.append(chunk);
        ControlFlow::Continue(())
    };
    match table.read_chunks(after, &mut taken, &mut append) {
        Ok(_) => Ok(Some(content)),
        Err(error) => Err((error, content)),
    }
}
