//! Commands for maps and their single entries.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::generated::{BPF_NOEXIST, bpf_cmd, bpf_map_info, bpf_map_type};

use crate::sys::call::{address, address_mut, bpf, bpf_fd, found, object_name};
use crate::sys::object::fill_info;

pub const BPF_MAP_TYPE_ARRAY: u32 = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
pub const BPF_MAP_TYPE_PROG_ARRAY: u32 = bpf_map_type::BPF_MAP_TYPE_PROG_ARRAY as u32;

/// The arguments of `BPF_MAP_CREATE`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapCreate<'a> {
    pub name: &'a str,
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub flags: u32,
    pub extra: u64,
    pub inner: Option<BorrowedFd<'a>>,
    /// The object's BTF, and the type ids of key and value in it.
    pub btf: Option<(BorrowedFd<'a>, u32, u32)>,
}

impl<'a> MapCreate<'a> {
    /// An array of `max_entries` values of `value_size` bytes.
    pub fn array(name: &'a str, value_size: usize, max_entries: u32) -> Self {
        let map_type = BPF_MAP_TYPE_ARRAY;
        Self {
            name,
            map_type,
            key_size: 4,
            value_size: value_size as u32,
            max_entries,
            ..Self::default()
        }
    }
}

/// Creates a map by `BPF_MAP_CREATE`.
pub fn map_create(map: &MapCreate<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct MapAttr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        map_name: [u8; 16],
        map_ifindex: u32,
        btf_fd: u32,
        btf_key_type_id: u32,
        btf_value_type_id: u32,
        btf_vmlinux_value_type_id: u32,
        map_extra: u64,
    }
    let mut attr = MapAttr {
        map_type: map.map_type,
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.max_entries,
        map_flags: map.flags,
        inner_map_fd: map.inner.map_or(0, |fd| fd.as_raw_fd() as u32),
        map_name: object_name(map.name),
        map_extra: map.extra,
        ..MapAttr::default()
    };
    if let Some((fd, key, value)) = map.btf {
        attr.btf_fd = fd.as_raw_fd() as u32;
        attr.btf_key_type_id = key;
        attr.btf_value_type_id = value;
    }
    bpf_fd(bpf_cmd::BPF_MAP_CREATE, &mut attr)
}

#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    /// Padding that is written out, because the kernel wants zeros in the bytes that a command does
    /// not use.
    padding: u32,
    key: u64,
    /// The value, or the next key.
    value: u64,
    flags: u64,
}

fn element(cmd: bpf_cmd, map: BorrowedFd<'_>, key: u64, value: u64) -> io::Result<()> {
    bpf(
        cmd,
        &mut ElementAttr {
            map_fd: map.as_raw_fd() as u32,
            padding: 0,
            key,
            value,
            flags: 0,
        },
    )
    .map(drop)
}

/// Runs a command as [`element`] does. Returns false if the entry does not exist.
fn find(cmd: bpf_cmd, map: BorrowedFd<'_>, key: u64, value: u64) -> io::Result<bool> {
    Ok(found(element(cmd, map, key, value))?.is_some())
}

/// Reads the value at `key`. Returns false if the key does not exist. `value` must have the size of
/// a value; for PERCPU types, the size of the values of all possible CPUs, each padded to a
/// multiple of 8 bytes.
pub fn map_lookup(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    find(
        bpf_cmd::BPF_MAP_LOOKUP_ELEM,
        map,
        address(key),
        address_mut(value),
    )
}

/// Pops from a QUEUE or STACK (empty `key`), or takes an entry out of a hash (Linux 5.14). Returns
/// false if there is no entry.
pub fn map_lookup_and_delete(
    map: BorrowedFd<'_>,
    key: &[u8],
    value: &mut [u8],
) -> io::Result<bool> {
    find(
        bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM,
        map,
        address(key),
        address_mut(value),
    )
}

/// Writes an entry, whether or not the key exists. On a QUEUE or STACK (empty `key`), pushes a
/// value.
pub fn map_update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    element(
        bpf_cmd::BPF_MAP_UPDATE_ELEM,
        map,
        address(key),
        address(value),
    )
}

/// Writes a new entry. Returns false if the key already exists.
pub fn map_insert(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<bool> {
    let (map_fd, key, value) = (map.as_raw_fd() as u32, address(key), address(value));
    let mut attr = ElementAttr {
        map_fd,
        padding: 0,
        key,
        value,
        flags: BPF_NOEXIST.into(),
    };
    match bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        result => result.map(|_| true),
    }
}

/// Deletes an entry. Returns false if the key does not exist.
pub fn map_delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<bool> {
    find(bpf_cmd::BPF_MAP_DELETE_ELEM, map, address(key), 0)
}

/// Reads the key after `key`, or the first key. Returns false at the end.
pub fn map_next_key(map: BorrowedFd<'_>, key: Option<&[u8]>, next: &mut [u8]) -> io::Result<bool> {
    find(
        bpf_cmd::BPF_MAP_GET_NEXT_KEY,
        map,
        key.map_or(0, address),
        address_mut(next),
    )
}

/// Freezes a map by `BPF_MAP_FREEZE`: no process can write to it any more, and a read-only array
/// becomes constant to the verifier.
pub fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_FREEZE, map, 0, 0)
}

pub fn map_info(map: BorrowedFd<'_>) -> io::Result<bpf_map_info> {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut info: bpf_map_info = unsafe { std::mem::zeroed() };
    fill_info(map, &mut info)?;
    Ok(info)
}

pub fn map_id(map: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(map_info(map)?.id)
}
