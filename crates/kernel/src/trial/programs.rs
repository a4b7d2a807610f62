//! Trials of programs and of the ways to attach them.

use std::sync::OnceLock;

use twinprobe_ebpf_common::hook::{Hook, ProgramKind};

use crate::sys::prog::{self, InfoRecords, ProgLoad};
use crate::sys::{asm, call, link};

const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// `enum bpf_attach_type`.
const BPF_TCX_INGRESS: u32 = 46;

/// The flags to load a program with. XDP programs accept packets of several buffers if the kernel supports such
/// packets: a prog-array refuses a mix of programs, and native XDP at large MTUs needs the flag.
pub fn load_flags(kind: ProgramKind) -> u32 {
    match kind {
        ProgramKind::Xdp => frags_flag(),
        ProgramKind::Tc => 0,
    }
}

/// Tells whether XDP programs can take packets of several buffers (Linux 5.18).
pub fn has_xdp_frags() -> bool {
    frags_flag() != 0
}

/// Tells whether TC programs can be attached by links (Linux 6.6). The trial queries the loopback interface, whose
/// index is 1 in every namespace.
pub fn has_tcx() -> bool {
    !matches!(link::prog_query(1, BPF_TCX_INGRESS, &mut []), Err(error) if call::is_unsupported(&error))
}

/// Returns `BPF_F_XDP_HAS_FRAGS` if a program with this flag can be loaded (Linux 5.18), else 0.
fn frags_flag() -> u32 {
    static FLAG: OnceLock<u32> = OnceLock::new();
    *FLAG.get_or_init(|| {
        let pass = asm::pass_program(Hook::Xdp.pass());
        let program = ProgLoad {
            name: "frags_test",
            prog_type: ProgramKind::Xdp.prog_type(),
            expected_attach_type: ProgramKind::Xdp.expected_attach_type(),
            flags: BPF_F_XDP_HAS_FRAGS,
            license: c"GPL",
            instructions: &pass,
            btf: None,
            func_info: InfoRecords::default(),
            line_info: InfoRecords::default(),
        };
        if prog::prog_load(&program, None).is_ok() { BPF_F_XDP_HAS_FRAGS } else { 0 }
    })
}
