//! Trials of programs.

use std::sync::OnceLock;

use aya_obj::generated::BPF_F_XDP_HAS_FRAGS;
use twinprobe_ebpf_common::hook::{Hook, ProgramKind, XdpKind};

use crate::sys::asm;
use crate::sys::prog::{self, ProgLoad};

/// Returns `program` with the flags and the attach type for this kind. A prog-array can't contain
/// programs of two kinds.
pub fn of_kind(program: ProgLoad<'_>, kind: XdpKind) -> ProgLoad<'_> {
    match kind {
        XdpKind::Single => program,
        XdpKind::Frags => ProgLoad {
            flags: program.flags | BPF_F_XDP_HAS_FRAGS,
            ..program
        },
        XdpKind::Joined => ProgLoad {
            attach_type: 0,
            ..program
        },
    }
}

/// Tells whether this kernel has XDP programs for packets of several buffers (Linux 5.18).
pub fn has_frags() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let pass = asm::pass_program(Hook::Xdp.pass());
        let program = ProgLoad::new("frags_test", ProgramKind::Xdp, &pass);
        prog::prog_load(
            &ProgLoad {
                flags: BPF_F_XDP_HAS_FRAGS,
                ..program
            },
            None,
        )
        .is_ok()
    })
}
