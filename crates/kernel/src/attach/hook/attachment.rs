//! An attached program, for every way to attach. A new way needs a file in this folder and a
//! variant of [`Attachment`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::hook::{Hook, ProgramKind};

use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::hook::libxdp::Membership;
use crate::attach::hook::xdp::XdpLink;
use crate::attach::hook::xdp_request::{GENERIC, NATIVE, XdpRequest};
use crate::attach::hook::{clsact, tcx, xdp};
use crate::sys::call::found;
use crate::sys::object::ObjectKind;
use crate::sys::{link, object, prog};

/// The method by which TC programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcMethod {
    /// TCX if the kernel has it (Linux 6.6), or else clsact.
    Auto,
    Tcx,
    Clsact,
}

impl TcMethod {
    pub const CHOICES: [Self; 3] = [Self::Auto, Self::Tcx, Self::Clsact];

    /// Returns the name of the method on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }
}

/// Returns the ids of the programs of all owners at the two TC hooks of an interface, in the order
/// in which they run: all TCX programs run before the filters of clsact. Call this in the
/// interface's namespace.
pub fn tc_programs(ifindex: u32) -> io::Result<[(Direction, Vec<u32>); 2]> {
    let has_tcx = tcx::is_supported();
    let at = |hook| {
        let mut programs = if has_tcx {
            tcx::programs(ifindex, hook)?
        } else {
            Vec::new()
        };
        programs.extend(clsact::programs(ifindex, hook)?);
        io::Result::Ok((Direction::from(hook), programs))
    };
    Ok([at(Hook::TcIngress)?, at(Hook::TcEgress)?])
}

/// An attached program. A drop detaches the program unless it is pinned.
#[derive(Debug)]
pub enum Attachment {
    /// A link, for XDP or TCX, and its mode.
    Link(OwnedFd, &'static str),
    Clsact(clsact::ClsactFilter),
    /// A place among the programs of libxdp's dispatcher.
    Libxdp(Membership),
}

impl Attachment {
    /// Attaches `program` at `place`. Call this in the interface's namespace. `pins` is the
    /// dispatcher's directory of pins. Returns also why XDP is not native, if the program can be
    /// changed so that it is.
    pub fn attach(
        place: &HookPoint,
        xdp: XdpRequest,
        tc_method: TcMethod,
        program: BorrowedFd<'_>,
        pins: &Path,
    ) -> Result<(Self, Option<String>), AttachError> {
        let tcx = || tcx::attach(place, program).map(|link| Self::Link(link, tcx::MODE));
        let clsact = || clsact::ClsactFilter::attach(place, program, pins).map(Self::Clsact);
        let attached = match (place.hook, tc_method) {
            (Hook::Xdp, _) => {
                if let Some(membership) = Membership::join(place, xdp, program, pins)? {
                    return Ok((Self::Libxdp(membership), None));
                }
                let XdpLink {
                    link,
                    mode,
                    fallback,
                } = xdp::attach(place, xdp, program)?;
                return Ok((Self::Link(link, mode), fallback));
            }
            (_, TcMethod::Tcx) => tcx(),
            (_, TcMethod::Clsact) => clsact(),
            (_, TcMethod::Auto) => match tcx() {
                Err(AttachError::Unsupported(_)) => clsact(),
                result => result,
            },
        };
        Ok((attached?, None))
    }

    /// Replaces the present program with `program`, between two packets.
    pub fn replace(&mut self, program: BorrowedFd<'_>, pins: &Path) -> io::Result<()> {
        match self {
            Self::Link(link, _) => link::link_update(link.as_fd(), program),
            Self::Clsact(filter) => filter.replace(program, pins),
            Self::Libxdp(membership) => membership.replace(program),
        }
    }

    /// Adopts an earlier daemon's attachment from `pins`; `None` if there is no attachment. Call
    /// this in the interface's namespace.
    pub fn adopt(ifindex: u32, hook: Hook, pins: &Path) -> io::Result<Option<Self>> {
        if let Some(link) = Self::adopt_link(pins)? {
            return Ok(Some(link));
        }
        match hook.kind() {
            ProgramKind::Xdp => Ok(Membership::adopt(ifindex, pins)?.map(Self::Libxdp)),
            ProgramKind::Tc => {
                Ok(clsact::ClsactFilter::adopt(ifindex, hook, pins)?.map(Self::Clsact))
            }
        }
    }

    /// Does the same as [`Self::adopt`] for links alone, from any namespace.
    pub fn adopt_link(pins: &Path) -> io::Result<Option<Self>> {
        for mode in LINK_PINS {
            if let Some(link) = found(object::obj_get(&pins.join(link_pin(mode))))? {
                return Ok(Some(Self::Link(link, mode)));
            }
        }
        Ok(None)
    }

    /// Pins the attachment, so that it stays when the daemon ends. Attachments other than links
    /// stay without this call, and have pins of their own.
    pub fn pin(&self, pins: &Path) -> io::Result<()> {
        match self {
            Self::Link(link, mode) => object::obj_pin(link.as_fd(), &pins.join(link_pin(mode))),
            Self::Clsact(_) | Self::Libxdp(_) => Ok(()),
        }
    }

    /// Returns the id of the program that packets of the interface meet; `None` if nothing of this
    /// attachment exists any more. Fails if the answer is unknown.
    pub fn program_at(&self, ifindex: u32) -> io::Result<Option<u32>> {
        match self {
            Self::Link(link, _) => {
                let info = link::link_info(link.as_fd())?;
                Ok((info.ifindex == ifindex).then_some(info.prog_id))
            }
            Self::Clsact(filter) => Ok(filter.program_at(ifindex)?.map(|program| program.id)),
            Self::Libxdp(membership) => membership.program_at(ifindex),
        }
    }

    /// Tells whether the interface reports the program of [`Self::program_at`]. Call this in the
    /// interface's namespace. A link that was removed with its interface looks attached here if
    /// another interface has got the index.
    pub fn is_found(&self, ifindex: u32, hook: Hook) -> io::Result<bool> {
        let Some(program) = self.program_at(ifindex)? else {
            return Ok(false);
        };
        match self {
            Self::Link(..) => match hook.kind() {
                ProgramKind::Xdp => xdp::runs(ifindex, program),
                ProgramKind::Tc => tcx::runs(ifindex, hook, program),
            },
            Self::Clsact(_) | Self::Libxdp(_) => Ok(true),
        }
    }

    /// Removes the pins of an attachment that has ended.
    pub fn unpin(pins: &Path) -> io::Result<()> {
        for name in LINK_PINS
            .map(link_pin)
            .iter()
            .map(String::as_str)
            .chain(clsact::PINS)
        {
            found(std::fs::remove_file(pins.join(name)))?;
        }
        Membership::unpin(pins)
    }

    /// Opens the program that packets of the interface meet; `None` if the program is unknown. A
    /// program without a pin can be opened with CAP_SYS_ADMIN only.
    pub fn program(&self, ifindex: u32, pins: &Path) -> Option<OwnedFd> {
        let id = self.program_at(ifindex).ok()??;
        let program = match self {
            Self::Link(..) | Self::Libxdp(_) => {
                object::fd_by_id(ObjectKind::Program, id).ok()??
            }
            Self::Clsact(_) => object::obj_get(&pins.join(clsact::PIN)).ok()?,
        };
        (prog::prog_identity(program.as_fd()).ok()?.id == id).then_some(program)
    }

    /// Returns the word that the status shows: the mode for XDP, the method for TC.
    pub const fn mode(&self) -> &'static str {
        match self {
            Self::Link(_, mode) => mode,
            Self::Clsact(_) => "clsact",
            Self::Libxdp(membership) => membership.mode,
        }
    }

    /// Detaches now, although a pin may still hold the link. Call this in the interface's
    /// namespace.
    pub fn detach(self) -> io::Result<()> {
        match self {
            Self::Link(link, _) => link::link_detach(link.as_fd()),
            Self::Clsact(filter) => filter.detach(),
            Self::Libxdp(membership) => membership.detach(),
        }
    }
}

/// The modes of attachments by a link, in the order in which their pins are searched.
const LINK_PINS: [&str; 3] = [NATIVE, GENERIC, tcx::MODE];

/// Returns the name of a link's pin. The name contains the mode, because the kernel does not report
/// how a link was made.
fn link_pin(mode: &str) -> String {
    format!("link_{mode}")
}
