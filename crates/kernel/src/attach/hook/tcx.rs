//! TC by TCX links (Linux 6.6): several owners on one interface, atomic replacement.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use aya_obj::generated::bpf_attach_type::{self, BPF_TCX_EGRESS, BPF_TCX_INGRESS};
use aya_obj::generated::{BPF_F_AFTER, BPF_F_BEFORE};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::hook::{Hook, Position};

use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::sys::{call, link};

/// `BPF_MPROG_MAX`: the largest number of programs at one hook of an interface.
const MAX_PROGRAMS: usize = 64;

/// The word that the status shows. It is also a part of the pin's name.
pub const MODE: &str = "tcx";

fn attach_type(hook: Hook) -> bpf_attach_type {
    match Direction::from(hook) {
        Direction::Ingress => BPF_TCX_INGRESS,
        Direction::Egress => BPF_TCX_EGRESS,
    }
}

/// Tells whether the kernel has TCX. The trial queries the loopback interface, whose index is 1 in
/// every namespace.
pub fn is_supported() -> bool {
    let asked = link::prog_query(1, BPF_TCX_INGRESS, &mut []);
    !asked.is_err_and(|error| call::is_unsupported(&error))
}

/// Tells whether the interface reports this program. Call this in the interface's namespace.
pub fn runs(ifindex: u32, hook: Hook, program: u32) -> io::Result<bool> {
    Ok(programs(ifindex, hook)?.contains(&program))
}

/// Returns the ids of the programs at a hook, in the order in which they run; empty without such an
/// interface. Call this in the interface's namespace.
pub fn programs(ifindex: u32, hook: Hook) -> io::Result<Vec<u32>> {
    match link::prog_query(ifindex, attach_type(hook), &mut [0; MAX_PROGRAMS]) {
        // The errors that say that the interface does not exist.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT)) => {
            Ok(Vec::new())
        }
        programs => programs,
    }
}

/// Attaches `program` by a TCX link. Call this in the interface's namespace.
pub fn attach(place: &HookPoint, program: BorrowedFd<'_>) -> Result<OwnedFd, AttachError> {
    // If no other program is named, the flags mean before or after all.
    let flags = match place.position {
        Position::First => BPF_F_BEFORE,
        Position::Last => BPF_F_AFTER,
    };
    link::link_create(program, place.ifindex, attach_type(place.hook), flags).map_err(|error| {
        if call::is_unsupported(&error) {
            AttachError::Unsupported("this kernel has no TCX (it came with Linux 6.6)".into())
        } else if error.raw_os_error() == Some(libc::ERANGE) {
            AttachError::Occupied(format!(
                "the most TCX programs are attached at {} of {}; detach one first",
                place.hook.direction(),
                place.interface
            ))
        } else {
            place.failed(error)
        }
    })
}
