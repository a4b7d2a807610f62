//! XDP by `bpf_link`: native mode (the driver's own hook), or else generic mode (Linux 5.9).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use aya_obj::generated::XDP_FLAGS_SKB_MODE;
use aya_obj::generated::bpf_attach_type::BPF_XDP;
use twinprobe_ebpf_common::hook::{XdpKind, XdpMode};

use crate::attach::hook::error::AttachError;
use crate::attach::hook::foreign;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::hook::xdp_request::{GENERIC, NATIVE, XdpRequest};
use crate::net::rtnl::socket::NetlinkSocket;
use crate::sys::{call, link};
use crate::trial::programs;

const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The MTU in bytes above which drivers may refuse programs for packets of a single buffer; and the
/// MTU of the loopback interface, which has no native XDP.
const USUAL_MTU: u32 = 1500;
const LOOPBACK_MTU: u32 = 65_536;

/// The outcome of an attachment.
#[derive(Debug)]
pub struct XdpLink {
    pub link: OwnedFd,
    pub mode: &'static str,
    /// The reason why the native mode was not possible, if a change of the program would allow it.
    pub fallback: Option<String>,
}

/// Attaches `program` by a link. Call this in the interface's namespace.
pub fn attach(
    place: &HookPoint,
    request: XdpRequest,
    program: BorrowedFd<'_>,
) -> Result<XdpLink, AttachError> {
    let with = |flags, mode, fallback| {
        let link = link::link_create(program, place.ifindex, BPF_XDP, flags)?;
        Ok(XdpLink {
            link,
            mode,
            fallback,
        })
    };
    let native = || with(XDP_FLAGS_DRV_MODE, NATIVE, None);
    let generic = |fallback| with(XDP_FLAGS_SKB_MODE, GENERIC, fallback);
    let cure = |error: &io::Error| {
        if request.kind == XdpKind::Frags {
            None
        } else {
            single_buffer(place, error)
        }
    };
    let result = match request.mode {
        XdpMode::Native => native(),
        XdpMode::Generic => generic(None),
        // The kernel allows no generic program beside a native one, so a busy hook is an error.
        XdpMode::Auto => match native() {
            Err(error) if !is_occupied(&error) => generic(cure(&error)),
            result => result,
        },
    };
    result.map_err(|error| {
        let interface = &place.interface;
        if is_occupied(&error) {
            return AttachError::Occupied(foreign::occupied(interface, place.ifindex));
        }
        if request.mode == XdpMode::Native
            && let Some(reason) = cure(&error)
        {
            return AttachError::Unsupported(format!("{reason}, or use mode generic"));
        }
        if request.mode == XdpMode::Native && call::is_unsupported(&error) {
            return AttachError::Unsupported(format!(
                "native XDP is not supported by the driver of {interface}; use mode generic or auto"
            ));
        }
        place.failed(error)
    })
}

/// Returns the reason why a driver refuses a program for packets of a single buffer with this
/// error, and what to do; `None` if the MTU of the interface is not the reason. Call this in the
/// interface's namespace.
pub fn single_buffer(place: &HookPoint, error: &io::Error) -> Option<String> {
    let mtu = NetlinkSocket::here().ok()?.device(place.ifindex).ok()??.mtu;
    if !programs::has_frags() || mtu <= USUAL_MTU || mtu >= LOOPBACK_MTU {
        return None;
    }
    let interface = &place.interface;
    Some(format!(
        "the driver of {interface} takes no native program in SEC(\"xdp\") at an MTU of {mtu} ({error}); lower the MTU, write \
         SEC(\"xdp.frags\") and take lengths from bpf_xdp_get_buff_len"
    ))
}

/// Tells whether the interface reports this program. Call this in the interface's namespace.
pub fn runs(ifindex: u32, program: u32) -> io::Result<bool> {
    let device = NetlinkSocket::here()?.device(ifindex)?;
    Ok(device.is_some_and(|device| device.programs.iter().any(|(_, id)| *id == program)))
}

fn is_occupied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
