//! `bpf(2)`: one function per command, kernel structures in, owned descriptors out.

mod batch;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya_obj::generated::{bpf_cmd, bpf_insn, bpf_map_info, bpf_prog_info};

pub use self::batch::{BatchCursor, map_delete_batch, map_lookup_batch, map_update_batch};

/// A system call that failed, and on what.
#[derive(Debug, thiserror::Error)]
#[error("{call} of {object} failed")]
pub struct KernelError {
    pub call: &'static str,
    pub object: String,
    #[source]
    pub source: io::Error,
}

impl KernelError {
    pub fn new(call: &'static str, object: impl Into<String>, source: io::Error) -> Self {
        Self { call, object: object.into(), source }
    }

    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// Runs `cmd` with `attr`, one of the `#[repr(C)]` views of `union bpf_attr` below. The kernel takes any
/// length and treats what is missing as zero.
fn bpf<T>(cmd: bpf_cmd, attr: &mut T) -> io::Result<u32> {
    // SAFETY: `attr` is a live, fully initialised `#[repr(C)]` structure of the length that is passed; the
    // pointers inside it are taken by the callers from slices that outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, cmd as libc::c_long, attr, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(u32::try_from(result).unwrap_or(0)) }
}

fn bpf_fd<T>(cmd: bpf_cmd, attr: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(cmd, attr)?;
    // SAFETY: the command returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn address<T>(slice: &[T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_ptr() as u64 }
}

fn address_mut<T>(slice: &mut [T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_mut_ptr() as u64 }
}

/// `BPF_OBJ_NAME_LEN` bytes: what is longer is cut, what the kernel refuses becomes `_`.
fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().zip(name.bytes()).take(15) {
        *to = if from.is_ascii_alphanumeric() || from == b'_' || from == b'.' { from } else { b'_' };
    }
    out
}

/// What `BPF_MAP_CREATE` needs.
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
    /// The object's BTF and the ids of the key's and value's types in it.
    pub btf: Option<(BorrowedFd<'a>, u32, u32)>,
}

pub fn map_create(map: &MapCreate<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
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
    let mut attr = Attr {
        map_type: map.map_type,
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.max_entries,
        map_flags: map.flags,
        inner_map_fd: map.inner.map_or(0, |fd| fd.as_raw_fd() as u32),
        map_name: object_name(map.name),
        map_extra: map.extra,
        ..Attr::default()
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
    /// Explicit, because the kernel insists on zero where a command uses nothing.
    padding: u32,
    key: u64,
    /// The value, or the next key.
    value: u64,
    flags: u64,
}

fn element(cmd: bpf_cmd, map: BorrowedFd<'_>, key: u64, value: u64) -> io::Result<()> {
    bpf(cmd, &mut ElementAttr { map_fd: map.as_raw_fd() as u32, padding: 0, key, value, flags: 0 }).map(drop)
}

/// `Ok(false)`: no such entry.
fn found(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// `value` must hold one value, of every possible CPU for PERCPU types.
pub fn map_lookup(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    found(element(bpf_cmd::BPF_MAP_LOOKUP_ELEM, map, address(key), address_mut(value)))
}

/// Pops from a QUEUE or STACK (empty `key`), or takes an entry out of a hash.
pub fn map_lookup_and_delete(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    found(element(bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM, map, address(key), address_mut(value)))
}

pub fn map_update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_UPDATE_ELEM, map, address(key), address(value))
}

pub fn map_delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<bool> {
    found(element(bpf_cmd::BPF_MAP_DELETE_ELEM, map, address(key), 0))
}

/// The key after `key`, or the first; `Ok(false)` at the end.
pub fn map_next_key(map: BorrowedFd<'_>, key: Option<&[u8]>, next: &mut [u8]) -> io::Result<bool> {
    found(element(bpf_cmd::BPF_MAP_GET_NEXT_KEY, map, key.map_or(0, address), address_mut(next)))
}

/// Makes an array map's content constant to the verifier.
pub fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_FREEZE, map, 0, 0)
}

/// `ENOTSUPP` (524, from inside the kernel), `EOPNOTSUPP`, or `EINVAL` of kernels that lack the command.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(524 | libc::EOPNOTSUPP | libc::EINVAL))
}

pub fn btf_load(blob: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        btf: u64,
        log_buf: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        log_true_size: u32,
    }
    let mut attr = Attr { btf: address(blob), size: blob.len() as u32, ..Attr::default() };
    bpf_fd(bpf_cmd::BPF_BTF_LOAD, &mut attr)
}

/// Fixed-size records of BTF debug information: `record_size` bytes each.
#[derive(Clone, Copy, Debug, Default)]
pub struct InfoRecords<'a> {
    pub bytes: &'a [u8],
    pub record_size: u32,
    pub count: u32,
}

/// What `BPF_PROG_LOAD` needs.
#[derive(Clone, Copy, Debug)]
pub struct ProgLoad<'a> {
    pub name: &'a str,
    pub prog_type: u32,
    pub expected_attach_type: u32,
    pub flags: u32,
    pub license: &'a CStr,
    pub instructions: &'a [bpf_insn],
    pub btf: Option<BorrowedFd<'a>>,
    pub func_info: InfoRecords<'a>,
    pub line_info: InfoRecords<'a>,
}

/// Loads a program; with `log`, the verifier writes into it.
pub fn prog_load(program: &ProgLoad<'_>, log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        line_info_rec_size: u32,
        line_info: u64,
        line_info_cnt: u32,
        attach_btf_id: u32,
    }
    let mut attr = Attr {
        prog_type: program.prog_type,
        insn_cnt: program.instructions.len() as u32,
        insns: address(program.instructions),
        license: program.license.as_ptr() as u64,
        prog_flags: program.flags,
        prog_name: object_name(program.name),
        expected_attach_type: program.expected_attach_type,
        ..Attr::default()
    };
    if let Some(btf) = program.btf {
        attr.prog_btf_fd = btf.as_raw_fd() as u32;
        attr.func_info_rec_size = program.func_info.record_size;
        attr.func_info = address(program.func_info.bytes);
        attr.func_info_cnt = program.func_info.count;
        attr.line_info_rec_size = program.line_info.record_size;
        attr.line_info = address(program.line_info.bytes);
        attr.line_info_cnt = program.line_info.count;
    }
    if let Some(log) = log {
        attr.log_level = 1;
        attr.log_size = log.len() as u32;
        attr.log_buf = address_mut(log);
    }
    bpf_fd(bpf_cmd::BPF_PROG_LOAD, &mut attr)
}

/// Attaches `prog` by a BPF link; `flags` are XDP's or TCX's.
pub fn link_create(prog: BorrowedFd<'_>, ifindex: u32, attach_type: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
        /// `tcx.relative_fd` and `tcx.expected_revision`: none.
        rest: [u64; 4],
    }
    let mut attr = Attr {
        prog_fd: prog.as_raw_fd() as u32,
        target_ifindex: ifindex,
        attach_type,
        flags,
        ..Attr::default()
    };
    bpf_fd(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// Puts `prog` behind `link` in one step: every packet sees the old program or the new one.
pub fn link_update(link: BorrowedFd<'_>, prog: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        link_fd: u32,
        new_prog_fd: u32,
        flags: u32,
        old_prog_fd: u32,
    }
    let mut attr =
        Attr { link_fd: link.as_raw_fd() as u32, new_prog_fd: prog.as_raw_fd() as u32, ..Attr::default() };
    bpf(bpf_cmd::BPF_LINK_UPDATE, &mut attr).map(drop)
}

/// Takes the program off its interface now, whoever else holds the link.
pub fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut link_fd = link.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_LINK_DETACH, &mut link_fd).map(drop)
}

#[repr(C)]
struct PinAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// Keeps `object` alive in bpffs under `path`.
pub fn obj_pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let bpf_fd = object.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_OBJ_PIN, &mut PinAttr { pathname: path.as_ptr() as u64, bpf_fd, file_flags: 0 })
        .map(drop)
}

/// The object pinned at `path`.
pub fn obj_get(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    bpf_fd(bpf_cmd::BPF_OBJ_GET, &mut PinAttr { pathname: path.as_ptr() as u64, bpf_fd: 0, file_flags: 0 })
}

/// `BPF_OBJ_GET_INFO_BY_FD` into `info`.
fn fill_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut attr = Attr {
        bpf_fd: object.as_raw_fd() as u32,
        info_len: size_of::<T>() as u32,
        info: std::ptr::from_mut(info) as u64,
    };
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr).map(drop)
}

/// What the kernel says of a map.
pub fn map_info(map: BorrowedFd<'_>) -> io::Result<bpf_map_info> {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut info: bpf_map_info = unsafe { std::mem::zeroed() };
    fill_info(map, &mut info)?;
    Ok(info)
}

pub fn map_id(map: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(map_info(map)?.id)
}

/// A descriptor of the map with this id, which is what a lookup in a map of maps gives. `None`: it is gone.
pub fn map_fd_by_id(id: u32) -> io::Result<Option<OwnedFd>> {
    #[repr(C)]
    struct Attr {
        id: u32,
        next_id: u32,
        open_flags: u32,
    }
    match bpf_fd(bpf_cmd::BPF_MAP_GET_FD_BY_ID, &mut Attr { id, next_id: 0, open_flags: 0 }) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        result => result.map(Some),
    }
}

/// Asks which programs are attached to an interface, to learn whether the kernel knows the attach type.
pub fn prog_query(ifindex: u32, attach_type: u32) -> io::Result<()> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        target_ifindex: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        /// Arrays that are not asked for, and a count of zero.
        rest: [u64; 6],
    }
    let mut attr = Attr { target_ifindex: ifindex, attach_type, ..Attr::default() };
    bpf(bpf_cmd::BPF_PROG_QUERY, &mut attr).map(drop)
}

/// A program's id and those of the maps it uses.
pub fn prog_ids(prog: BorrowedFd<'_>) -> io::Result<(u32, Vec<u32>)> {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    fill_info(prog, &mut info)?;
    let mut maps = vec![0_u32; info.nr_map_ids as usize];
    // SAFETY: as above.
    let mut with_maps: bpf_prog_info = unsafe { std::mem::zeroed() };
    with_maps.nr_map_ids = maps.len() as u32;
    with_maps.map_ids = address_mut(&mut maps);
    fill_info(prog, &mut with_maps)?;
    Ok((info.id, maps))
}

/// What has ids of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Program,
    Map,
}

/// Whether the kernel still has the object with this id. Looks without opening it: a descriptor would
/// itself keep the object alive.
pub fn exists(kind: ObjectKind, id: u32) -> io::Result<bool> {
    #[repr(C)]
    struct Attr {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let cmd = match kind {
        ObjectKind::Program => bpf_cmd::BPF_PROG_GET_NEXT_ID,
        ObjectKind::Map => bpf_cmd::BPF_MAP_GET_NEXT_ID,
    };
    let mut attr = Attr { start_id: id.saturating_sub(1), next_id: 0, open_flags: 0 };
    Ok(found(bpf(cmd, &mut attr).map(drop))? && attr.next_id == id)
}
