//! A request for an attachment at XDP, and the names of its modes.

use twinprobe_ebpf_common::hook::{XdpKind, XdpMode};

pub const NATIVE: &str = "native";
pub const GENERIC: &str = "generic";

/// The request for an attachment.
#[derive(Clone, Copy, Debug)]
pub struct XdpRequest {
    pub mode: XdpMode,
    /// The kind of the program.
    pub kind: XdpKind,
}
