//! Commands for BPF links, and for the programs at an interface.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::generated::{bpf_attach_type, bpf_cmd};

use crate::sys::call::{address_mut, bpf, bpf_fd};
use crate::sys::object::fill_info;

/// The kernel's description of a link, `struct bpf_link_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkInfo {
    kind: u32,
    id: u32,
    /// The id of the attached program.
    pub prog_id: u32,
    pad: u32,
    /// The index of the interface, for XDP and TCX; 0 once the interface was removed.
    pub ifindex: u32,
    rest: [u32; 11],
}

pub fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut info = LinkInfo::default();
    fill_info(link, &mut info)?;
    Ok(info)
}

/// Attaches `prog` by a BPF link. `flags` are those of XDP or TCX. Call this in the interface's
/// namespace.
pub fn link_create(
    prog: BorrowedFd<'_>,
    ifindex: u32,
    attach_type: bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct LinkCreateAttr {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
        /// Fields for `tcx.relative_fd` and `tcx.expected_revision`, which stay zero.
        rest: [u64; 4],
    }
    let mut attr = LinkCreateAttr {
        prog_fd: prog.as_raw_fd() as u32,
        target_ifindex: ifindex,
        attach_type: attach_type as u32,
        flags,
        ..LinkCreateAttr::default()
    };
    bpf_fd(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// Replaces the program of `link` by `prog` in one step: every packet sees the old program or the
/// new one.
pub fn link_update(link: BorrowedFd<'_>, prog: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    #[derive(Default)]
    struct LinkUpdateAttr {
        link_fd: u32,
        new_prog_fd: u32,
        flags: u32,
        old_prog_fd: u32,
    }
    let mut attr = LinkUpdateAttr {
        link_fd: link.as_raw_fd() as u32,
        new_prog_fd: prog.as_raw_fd() as u32,
        ..LinkUpdateAttr::default()
    };
    bpf(bpf_cmd::BPF_LINK_UPDATE, &mut attr).map(drop)
}

/// Detaches the program from its interface now, although others may hold the link.
pub fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut link_fd = link.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_LINK_DETACH, &mut link_fd).map(drop)
}

/// Returns the ids of the programs that are attached to an interface, as many as `ids` has room
/// for. Call this in the interface's namespace.
pub fn prog_query(
    ifindex: u32,
    attach_type: bpf_attach_type,
    ids: &mut [u32],
) -> io::Result<Vec<u32>> {
    #[repr(C)]
    #[derive(Default)]
    struct QueryAttr {
        target_ifindex: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        count: u32,
        pad: u32,
        /// Fields for unused arrays, and for a revision; they stay zero.
        rest: [u64; 4],
    }
    let (attach_type, prog_ids, count) = (attach_type as u32, address_mut(ids), ids.len() as u32);
    let mut attr = QueryAttr {
        target_ifindex: ifindex,
        attach_type,
        prog_ids,
        count,
        ..QueryAttr::default()
    };
    bpf(bpf_cmd::BPF_PROG_QUERY, &mut attr)?;
    Ok(ids.iter().copied().take(attr.count as usize).collect())
}
