//! XDP by `bpf_link`: native (the driver's own hook), else generic (Linux 5.9).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use aya_obj::generated::XDP_FLAGS_SKB_MODE;
use aya_obj::generated::bpf_attach_type::BPF_XDP;
use twinprobe_ebpf_common::hook::XdpMode;

use crate::attach::hook::error::AttachError;
use crate::attach::hook::foreign;
use crate::attach::hook::hook_point::HookPoint;
use crate::net::rtnl::socket::Socket;
use crate::sys::{call, link};

const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

pub const NATIVE: &str = "native";
pub const GENERIC: &str = "generic";

/// Attaches `program` by a link, and returns the link with its mode. To be called in the interface's namespace.
pub fn attach(
    place: &HookPoint,
    mode: XdpMode,
    program: BorrowedFd<'_>,
) -> Result<(OwnedFd, &'static str), AttachError> {
    let with =
        |flags, mode| link::link_create(program, place.ifindex, BPF_XDP, flags).map(|link| (link, mode));
    let native = || with(XDP_FLAGS_DRV_MODE, NATIVE);
    let generic = || with(XDP_FLAGS_SKB_MODE, GENERIC);
    let result = match mode {
        XdpMode::Native => native(),
        XdpMode::Generic => generic(),
        // The kernel allows no generic program beside a native one, so a busy hook is an error.
        XdpMode::Auto => match native() {
            Err(error) if !is_occupied(&error) => generic(),
            result => result,
        },
    };
    result.map_err(|error| {
        let interface = &place.interface;
        if is_occupied(&error) {
            return AttachError::Occupied(foreign::occupied(interface, place.ifindex));
        }
        if mode == XdpMode::Native && call::is_unsupported(&error) {
            return AttachError::Unsupported(format!(
                "native XDP is not supported by the driver of {interface}; use mode generic or auto"
            ));
        }
        place.failed(error)
    })
}

/// Tells whether the interface reports this program. To be called in the interface's namespace.
pub fn runs(ifindex: u32, program: u32) -> io::Result<bool> {
    let device = Socket::here()?.device(ifindex)?;
    Ok(device.is_some_and(|device| device.programs.iter().any(|(_, id)| *id == program)))
}

fn is_occupied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
