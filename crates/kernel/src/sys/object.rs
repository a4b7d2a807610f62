//! Commands for all kinds of kernel objects: pins, ids and descriptions.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya_obj::generated::bpf_cmd;

use crate::sys::call::{bpf, bpf_fd, found};

#[repr(C)]
struct PinAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

#[repr(C)]
struct IdAttr {
    /// The id of an object, or the id after which a search for the next one starts.
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// Pins `object` in bpffs at `path`, which keeps it alive.
pub fn obj_pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let bpf_fd = object.as_raw_fd() as u32;
    bpf(
        bpf_cmd::BPF_OBJ_PIN,
        &mut PinAttr {
            pathname: path.as_ptr() as u64,
            bpf_fd,
            file_flags: 0,
        },
    )
    .map(drop)
}

/// Opens the object pinned at `path`. Fails with `NotFound` if there is none.
pub fn obj_get(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    bpf_fd(
        bpf_cmd::BPF_OBJ_GET,
        &mut PinAttr {
            pathname: path.as_ptr() as u64,
            bpf_fd: 0,
            file_flags: 0,
        },
    )
}

/// Fills `info` by `BPF_OBJ_GET_INFO_BY_FD`. `T` must be the kernel's structure for this kind of
/// object.
pub fn fill_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct InfoAttr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut attr = InfoAttr {
        bpf_fd: object.as_raw_fd() as u32,
        info_len: size_of::<T>() as u32,
        info: std::ptr::from_mut(info) as u64,
    };
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr).map(drop)
}

/// A kind of object that has ids of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Program,
    Map,
}

/// Tells whether the kernel still has the object with this id. The check does not open the object:
/// a descriptor would itself keep it alive. Needs CAP_SYS_ADMIN.
pub fn exists(kind: ObjectKind, id: u32) -> io::Result<bool> {
    let cmd = match kind {
        ObjectKind::Program => bpf_cmd::BPF_PROG_GET_NEXT_ID,
        ObjectKind::Map => bpf_cmd::BPF_MAP_GET_NEXT_ID,
    };
    let mut attr = IdAttr {
        id: id.saturating_sub(1),
        next_id: 0,
        open_flags: 0,
    };
    Ok(found(bpf(cmd, &mut attr))?.is_some() && attr.next_id == id)
}

/// Opens the object with this id, which a lookup in a map of maps returns; `None` if it was freed.
pub fn fd_by_id(kind: ObjectKind, id: u32) -> io::Result<Option<OwnedFd>> {
    let cmd = match kind {
        ObjectKind::Program => bpf_cmd::BPF_PROG_GET_FD_BY_ID,
        ObjectKind::Map => bpf_cmd::BPF_MAP_GET_FD_BY_ID,
    };
    found(bpf_fd(
        cmd,
        &mut IdAttr {
            id,
            next_id: 0,
            open_flags: 0,
        },
    ))
}
