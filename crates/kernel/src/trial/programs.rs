//! Trials of programs and of the ways to attach them.

use std::sync::OnceLock;

use aya_obj::generated::{BPF_F_XDP_HAS_FRAGS, bpf_attach_type};
use twinprobe_ebpf_common::hook::{Hook, ProgramKind};

use crate::sys::prog::{self, ProgLoad};
use crate::sys::{asm, call, link};

/// The flags to load a program with. XDP programs accept packets of several buffers if the kernel supports such
/// packets: a prog-array refuses a mix of programs, and native XDP at large MTUs needs the flag.
pub fn load_flags(kind: ProgramKind) -> u32 {
    match kind {
        ProgramKind::Xdp => frags_flag(),
        ProgramKind::Tc => 0,
    }
}

/// Tells whether TC programs can be attached by links (Linux 6.6). The trial queries the loopback interface, whose
/// index is 1 in every namespace.
pub fn has_tcx() -> bool {
    let asked = link::prog_query(1, bpf_attach_type::BPF_TCX_INGRESS, &mut []);
    !asked.is_err_and(|error| call::is_unsupported(&error))
}

/// Returns `BPF_F_XDP_HAS_FRAGS` if a program with this flag can be loaded (Linux 5.18), else 0.
fn frags_flag() -> u32 {
    static FLAG: OnceLock<u32> = OnceLock::new();
    *FLAG.get_or_init(|| {
        let pass = asm::pass_program(Hook::Xdp.pass());
        let program = ProgLoad::new("frags_test", ProgramKind::Xdp, &pass);
        let program = ProgLoad { flags: BPF_F_XDP_HAS_FRAGS, ..program };
        if prog::prog_load(&program, None).is_ok() { BPF_F_XDP_HAS_FRAGS } else { 0 }
    })
}
