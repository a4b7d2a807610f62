//! TC by TCX links (Linux 6.6): several owners on one interface, atomic replacement.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::{AttachError, Hook, Target};
use crate::kernel::sys;

/// `enum bpf_attach_type`.
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;

#[derive(Debug)]
pub struct TcxLink {
    link: OwnedFd,
}

/// Asks what is attached to the loopback interface, whose index is 1 in every namespace.
pub(super) fn is_known() -> bool {
    !matches!(sys::prog_query(1, BPF_TCX_INGRESS), Err(error) if sys::is_unsupported(&error))
}

impl TcxLink {
    pub(super) fn attach(target: &Target<'_>, program: BorrowedFd<'_>) -> Result<Self, AttachError> {
        let attach_type = if target.hook == Hook::TcIngress { BPF_TCX_INGRESS } else { BPF_TCX_EGRESS };
        match sys::link_create(program, target.ifindex, attach_type, 0) {
            Ok(link) => Ok(Self { link }),
            Err(error) if sys::is_unsupported(&error) => {
                Err(AttachError::Unsupported("this kernel has no TCX (it came with Linux 6.6)".into()))
            }
            Err(error) => Err(target.failed(error)),
        }
    }

    pub(super) fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        sys::link_update(self.link.as_fd(), program)
    }

    pub(super) fn detach(self) -> io::Result<()> {
        sys::link_detach(self.link.as_fd())
    }

    pub(super) fn pin(&self, path: &Path) -> io::Result<()> {
        sys::obj_pin(self.link.as_fd(), path)
    }
}
