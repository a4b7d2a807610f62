//! An attached program, for every way to attach. A new way needs a file in this folder and a variant of [`Attachment`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use twinprobe_ebpf_common::hook::Hook;

use crate::attach::hook::target::{AttachError, Target, TcMethod};
use crate::attach::hook::{clsact, tcx, xdp};
use crate::sys::{link, object, prog};

/// An attached program; dropping it detaches unless it is pinned.
#[derive(Debug)]
pub enum Attachment {
    Xdp(xdp::XdpLink),
    Tcx(tcx::TcxLink),
    Clsact(clsact::ClsactFilter),
}

impl Attachment {
    /// Attaches `program` at `target`. To be called in the interface's namespace. `pins` is the dispatcher's directory
    /// of pins.
    pub fn attach(target: &Target<'_>, program: BorrowedFd<'_>, pins: &Path) -> Result<Self, AttachError> {
        match target.hook {
            Hook::Xdp => xdp::XdpLink::attach(target, program).map(Self::Xdp),
            Hook::TcIngress | Hook::TcEgress => match target.tc_method {
                TcMethod::Clsact => clsact::ClsactFilter::attach(target, program, pins).map(Self::Clsact),
                TcMethod::Tcx => tcx::TcxLink::attach(target, program).map(Self::Tcx),
                TcMethod::Auto => match tcx::TcxLink::attach(target, program) {
                    Err(AttachError::Unsupported(_)) => {
                        clsact::ClsactFilter::attach(target, program, pins).map(Self::Clsact)
                    }
                    result => result.map(Self::Tcx),
                },
            },
        }
    }

    /// Puts `program` in the place of the present one, between two packets.
    pub fn replace(&mut self, program: BorrowedFd<'_>, pins: &Path) -> io::Result<()> {
        match self {
            Self::Xdp(link) => link.replace(program),
            Self::Tcx(link) => link.replace(program),
            Self::Clsact(filter) => filter.replace(program, pins),
        }
    }

    /// Adopts the attachment of an earlier daemon whose pins are in `pins`; `None` if there is none. To be called in
    /// the interface's namespace.
    pub fn adopt(ifindex: u32, hook: Hook, pins: &Path) -> io::Result<Option<Self>> {
        match Self::adopt_link(pins)? {
            None => Ok(clsact::ClsactFilter::adopt(ifindex, hook, pins)?.map(Self::Clsact)),
            link => Ok(link),
        }
    }

    /// Adopts as [`Self::adopt`] does, but only links, and from any namespace.
    pub fn adopt_link(pins: &Path) -> io::Result<Option<Self>> {
        for mode in LINK_PINS {
            match object::obj_get(&pins.join(link_pin(mode))) {
                Ok(link) if mode == tcx::MODE => return Ok(Some(Self::Tcx(tcx::TcxLink::adopt(link)))),
                Ok(link) => return Ok(Some(Self::Xdp(xdp::XdpLink::adopt(link, mode)))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Pins the attachment, so that it stays when the daemon ends. A clsact filter stays by itself and has a pin of its
    /// own.
    pub fn pin(&self, pins: &Path) -> io::Result<()> {
        match self {
            Self::Xdp(link) => object::obj_pin(link.fd(), &pins.join(link_pin(link.mode()))),
            Self::Tcx(link) => object::obj_pin(link.fd(), &pins.join(link_pin(tcx::MODE))),
            Self::Clsact(_) => Ok(()),
        }
    }

    /// Returns the id of the program that packets of the interface meet; `None` if nothing of this attachment is there
    /// any more. Fails if the answer is unknown.
    pub fn program_at(&self, ifindex: u32) -> io::Result<Option<u32>> {
        let of = |link| {
            let info = link::link_info(link)?;
            Ok((info.ifindex == ifindex).then_some(info.prog_id))
        };
        match self {
            Self::Xdp(link) => of(link.fd()),
            Self::Tcx(link) => of(link.fd()),
            Self::Clsact(filter) => Ok(filter.program_at(ifindex)?.map(|program| program.id)),
        }
    }

    /// Tells whether the interface itself reports the program of [`Self::program_at`]: a link that went elsewhere with
    /// its interface looks attached here when another interface has got the index. To be called in the interface's
    /// namespace.
    pub fn is_found(&self, ifindex: u32, hook: Hook) -> io::Result<bool> {
        let Some(program) = self.program_at(ifindex)? else { return Ok(false) };
        match self {
            Self::Xdp(_) => xdp::runs(ifindex, program),
            Self::Tcx(_) => tcx::runs(ifindex, hook, program),
            Self::Clsact(_) => Ok(true),
        }
    }

    /// Removes the pins of an attachment that is gone.
    pub fn unpin(pins: &Path) -> io::Result<()> {
        for name in LINK_PINS.map(link_pin).iter().map(String::as_str).chain(clsact::PINS) {
            match std::fs::remove_file(pins.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the tag of the program that packets of the interface meet; `None` if the program is unknown.
    pub fn program_tag(&self, ifindex: u32) -> Option<[u8; 8]> {
        if let Self::Clsact(filter) = self {
            return filter.program_at(ifindex).ok()?.map(|program| program.tag);
        }
        let program = prog::prog_fd_by_id(self.program_at(ifindex).ok()??).ok()??;
        Some(prog::prog_identity(program.as_fd()).ok()?.tag)
    }

    /// The word that the status shows: the mode for XDP, the method for TC.
    pub const fn mode(&self) -> &'static str {
        match self {
            Self::Xdp(link) => link.mode(),
            Self::Tcx(_) => tcx::MODE,
            Self::Clsact(_) => "clsact",
        }
    }

    /// Detaches now, although a pin may still hold the link.
    pub fn detach(self) -> io::Result<()> {
        match self {
            Self::Xdp(link) => link.detach(),
            Self::Tcx(link) => link.detach(),
            Self::Clsact(filter) => filter.detach(),
        }
    }
}

/// The modes of attachments by a link, in the order in which their pins are looked for.
const LINK_PINS: [&str; 3] = [xdp::NATIVE, xdp::GENERIC, tcx::MODE];

/// Returns the name of a link's pin. The name keeps the mode, because the kernel does not report how a link was made.
fn link_pin(mode: &str) -> String {
    format!("link_{mode}")
}
