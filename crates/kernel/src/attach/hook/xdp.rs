//! XDP by `bpf_link`: native (the driver's own hook), else generic (Linux 5.9).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use twinprobe_ebpf_common::hook::XdpMode;

use crate::attach::hook::foreign;
use crate::attach::hook::target::{AttachError, Target};
use crate::net::rtnl::socket::Socket;
use crate::sys::{call, link};

/// `BPF_XDP` of `enum bpf_attach_type`.
pub const BPF_XDP: u32 = 37;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

pub const NATIVE: &str = "native";
pub const GENERIC: &str = "generic";

/// An XDP program, attached by a link.
#[derive(Debug)]
pub struct XdpLink {
    link: OwnedFd,
    mode: &'static str,
}

impl XdpLink {
    /// Attaches `program`. To be called in the interface's namespace.
    pub fn attach(target: &Target<'_>, program: BorrowedFd<'_>) -> Result<Self, AttachError> {
        let with = |flags, mode| {
            link::link_create(program, target.ifindex, BPF_XDP, flags).map(|link| Self { link, mode })
        };
        let native = || with(XDP_FLAGS_DRV_MODE, NATIVE);
        let generic = || with(XDP_FLAGS_SKB_MODE, GENERIC);
        let result = match target.xdp_mode {
            XdpMode::Native => native(),
            XdpMode::Generic => generic(),
            // The kernel allows no generic program beside a native one, so a busy hook is an error.
            XdpMode::Auto => match native() {
                Err(error) if !is_occupied(&error) => generic(),
                result => result,
            },
        };
        result.map_err(|error| {
            let interface = target.interface;
            if is_occupied(&error) {
                return AttachError::Occupied(foreign::occupied(interface, target.ifindex));
            }
            if target.xdp_mode == XdpMode::Native && call::is_unsupported(&error) {
                return AttachError::Unsupported(format!(
                    "native XDP is not supported by the driver of {interface}; use mode generic or auto"
                ));
            }
            target.failed(error)
        })
    }

    pub fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        link::link_update(self.link.as_fd(), program)
    }

    pub fn detach(self) -> io::Result<()> {
        link::link_detach(self.link.as_fd())
    }

    pub const fn adopt(link: OwnedFd, mode: &'static str) -> Self {
        Self { link, mode }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    pub const fn mode(&self) -> &'static str {
        self.mode
    }
}

/// Tells whether the interface reports this program. To be called in the interface's namespace.
pub fn runs(ifindex: u32, program: u32) -> io::Result<bool> {
    let device = Socket::here()?.device(ifindex)?;
    Ok(device.is_some_and(|device| device.programs.iter().any(|(_, id)| *id == program)))
}

fn is_occupied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
