//! The target of an attachment, and the reasons why attaching may fail.

use std::io;

use twinprobe_ebpf_common::hook::{Hook, Position, XdpMode};

use crate::sys::call;

/// The method by which TC programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcMethod {
    /// TCX if the kernel has it (Linux 6.6), else clsact.
    Auto,
    Tcx,
    Clsact,
}

impl TcMethod {
    pub const CHOICES: [Self; 3] = [Self::Auto, Self::Tcx, Self::Clsact];

    /// The names by which a method is chosen on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }
}

/// The reason why a program could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("{0}")]
    Occupied(String),
    #[error("{0}")]
    Unsupported(String),
    #[error(transparent)]
    Kernel(#[from] call::KernelError),
    #[error("attaching at {hook} of {interface} failed")]
    Failed {
        hook: &'static str,
        interface: String,
        #[source]
        source: io::Error,
    },
}

/// The place and the manner of an attachment.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub interface: &'a str,
    pub ifindex: u32,
    pub hook: Hook,
    /// The position among other owners' programs; XDP has room for one program only.
    pub position: Position,
    pub xdp_mode: XdpMode,
    pub tc_method: TcMethod,
}

impl Target<'_> {
    /// Makes the error of a system call the error of this attachment.
    pub fn failed(&self, source: io::Error) -> AttachError {
        AttachError::Failed { hook: self.hook.name(), interface: self.interface.to_owned(), source }
    }
}
