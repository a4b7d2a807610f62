//! The clock of a replayed program. Each call of a helper function that reads a clock of the kernel
//! is replaced by a load of the word that holds the time of the packet.

use std::os::fd::BorrowedFd;

use aya_obj::Function;
use aya_obj::generated::{bpf_func_id as Id, bpf_insn};

use crate::load::rewrite::{Rewriting, TooLong, rewrite};
use crate::sys::asm;

/// The number of `bpf_clone_redirect`, which sends a packet immediately, while the program runs.
const CLONE_REDIRECT: i32 = Id::BPF_FUNC_clone_redirect as i32;
const CALL: u8 = 0x85;
/// Helper functions that read a clock. In a replay, all of them read the one clock of the capture.
const CLOCKS: [Id; 4] = [
    Id::BPF_FUNC_ktime_get_ns,
    Id::BPF_FUNC_ktime_get_boot_ns,
    Id::BPF_FUNC_ktime_get_coarse_ns,
    Id::BPF_FUNC_ktime_get_tai_ns,
];

/// The reason why a program can't be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayed {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(
        "bpf_clone_redirect would send packets of the capture, and a replay sends none; leave it out"
    )]
    Sends,
}

/// Returns `function` with the bound `instructions`, changed to read the clock from the beginning
/// of the array map `time`.
pub fn follow(
    function: &Function,
    instructions: &[bpf_insn],
    time: BorrowedFd<'_>,
) -> Result<(Function, Vec<bpf_insn>), NotReplayed> {
    let reads_clock = |insn: &bpf_insn| {
        let is_helper = insn.code == CALL && insn.src_reg() == 0;
        is_helper && CLOCKS.iter().any(|clock| *clock as i32 == insn.imm)
    };
    let sends =
        |insn: &bpf_insn| (insn.code, insn.src_reg(), insn.imm) == (CALL, 0, CLONE_REDIRECT);
    if instructions.iter().any(sends) {
        return Err(NotReplayed::Sends);
    }
    let [first, second] = asm::load_map_value(0, time, 0);
    let load = [first, second, asm::load_u64(0, 0, 0)];
    let change = |_, insn: &bpf_insn| {
        if reads_clock(insn) {
            Rewriting::Replace(load.to_vec())
        } else {
            Rewriting::Keep
        }
    };
    Ok(rewrite(function, instructions, change)?)
}
