//! The macros that tell a source what it is compiled for. `twinprobe.h` reads them.

use twinprobe_ebpf_common::hook::Hook;

/// Returns names and values of the macros for a program at this hook. `frags` tells whether XDP programs get packets of
/// several buffers (Linux 5.18), and with them the helper functions that read such packets.
pub fn target_macros(hook: Hook, frags: bool) -> impl Iterator<Item = (String, String)> {
    let names = match hook {
        Hook::Xdp => ["TWINPROBE_XDP", "TWINPROBE_INGRESS"],
        Hook::TcIngress => ["TWINPROBE_TC", "TWINPROBE_INGRESS"],
        Hook::TcEgress => ["TWINPROBE_TC", "TWINPROBE_EGRESS"],
    };
    let single_buffer = (!frags).then_some("TWINPROBE_SINGLE_BUFFER");
    names.into_iter().chain(single_buffer).map(|name| (name.to_owned(), "1".to_owned()))
}
