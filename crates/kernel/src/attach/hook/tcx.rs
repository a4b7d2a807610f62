//! TC by TCX links (Linux 6.6): several owners on one interface, atomic replacement.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use twinprobe_ebpf_common::hook::{Hook, Position};

use crate::attach::hook::target::{AttachError, Target};
use crate::sys::{call, link};

/// Values of `enum bpf_attach_type` (`linux/bpf.h`).
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;

/// `BPF_MPROG_MAX`: the largest number of programs at one hook of an interface.
const MAX_PROGRAMS: usize = 64;

const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_AFTER: u32 = 1 << 4;

/// The word that the status shows, and a part of the pin's name.
pub const MODE: &str = "tcx";

/// A TC program, attached by a TCX link.
#[derive(Debug)]
pub struct TcxLink {
    link: OwnedFd,
}

/// Tells whether the interface reports this program. To be called in the interface's namespace.
pub fn runs(ifindex: u32, hook: Hook, program: u32) -> io::Result<bool> {
    let attach_type = if hook == Hook::TcIngress { BPF_TCX_INGRESS } else { BPF_TCX_EGRESS };
    match link::prog_query(ifindex, attach_type, &mut [0; MAX_PROGRAMS]) {
        // These errors say that there is no such interface.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT)) => Ok(false),
        programs => Ok(programs?.contains(&program)),
    }
}

impl TcxLink {
    /// Attaches `program`. To be called in the interface's namespace.
    pub fn attach(target: &Target<'_>, program: BorrowedFd<'_>) -> Result<Self, AttachError> {
        let attach_type = if target.hook == Hook::TcIngress { BPF_TCX_INGRESS } else { BPF_TCX_EGRESS };
        // Without another program to relate to, the flags mean before or after all programs.
        let flags = match target.position {
            Position::First => BPF_F_BEFORE,
            Position::Last => BPF_F_AFTER,
        };
        match link::link_create(program, target.ifindex, attach_type, flags) {
            Ok(link) => Ok(Self { link }),
            Err(error) if call::is_unsupported(&error) => {
                Err(AttachError::Unsupported("this kernel has no TCX (it came with Linux 6.6)".into()))
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => Err(AttachError::Occupied(format!(
                "as many TCX programs as there can be are attached at {} of {}; detach one first",
                target.hook.direction(),
                target.interface
            ))),
            Err(error) => Err(target.failed(error)),
        }
    }

    pub fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        link::link_update(self.link.as_fd(), program)
    }

    pub fn detach(self) -> io::Result<()> {
        link::link_detach(self.link.as_fd())
    }

    pub const fn adopt(link: OwnedFd) -> Self {
        Self { link }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
