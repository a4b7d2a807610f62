//! The clock of a replayed program. Each call of a helper function that reads a clock of the kernel is replaced by a load
//! of the word that holds the time of the packet.

use std::os::fd::BorrowedFd;

use aya_obj::Function;
use aya_obj::generated::{bpf_func_id as Id, bpf_insn};

use crate::sys::asm;

/// Sends a packet at once, while the program runs.
const CLONE_REDIRECT: i32 = Id::BPF_FUNC_clone_redirect as i32;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_64: u8 = 0x18;
/// A jump whose distance is in `imm`.
const LONG_JUMP: u8 = 0x06;
/// The classes of jumps, in the lowest bits of an operation.
const CLASS: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
/// The sources of a call of a subprogram, and of a load of a subprogram's address.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNC: u8 = 4;
/// Helper functions that read a clock. The capture has one clock for all of them.
const CLOCKS: [Id; 4] = [
    Id::BPF_FUNC_ktime_get_ns,
    Id::BPF_FUNC_ktime_get_boot_ns,
    Id::BPF_FUNC_ktime_get_coarse_ns,
    Id::BPF_FUNC_ktime_get_tai_ns,
];

/// The reason why a program can't be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayed {
    /// A jump is too far once the loads are in between.
    #[error("the program is too long to be given the clock of a capture; make it smaller")]
    TooLong,
    #[error("bpf_clone_redirect would send packets of the capture, and a replay sends none; leave it out")]
    Sends,
}

/// Returns `function` with the bound `instructions`, reading the clock from the beginning of the array map `time`.
pub fn follow(
    function: &Function,
    instructions: &[bpf_insn],
    time: BorrowedFd<'_>,
) -> Result<(Function, Vec<bpf_insn>), NotReplayed> {
    let reads_clock = |insn: &bpf_insn| {
        let is_helper = insn.code == CALL && insn.src_reg() == 0;
        is_helper && CLOCKS.iter().any(|clock| *clock as i32 == insn.imm)
    };
    let sends = |insn: &bpf_insn| (insn.code, insn.src_reg(), insn.imm) == (CALL, 0, CLONE_REDIRECT);
    if instructions.iter().any(sends) {
        return Err(NotReplayed::Sends);
    }
    let [first, second] = asm::load_map_value(0, time, 0);
    let load = [first, second, asm::load_u64(0, 0, 0)];
    // The place of each old instruction, and the end.
    let mut places = Vec::with_capacity(instructions.len() + 1);
    let mut end = 0;
    for insn in instructions {
        places.push(end);
        end += if reads_clock(insn) { load.len() } else { 1 };
    }
    places.push(end);
    let mut out = Vec::with_capacity(end);
    let mut halves = false;
    for (at, insn) in instructions.iter().enumerate() {
        // The second half of a load of 64 bits is no instruction.
        if std::mem::take(&mut halves) {
            out.push(*insn);
            continue;
        }
        halves = insn.code == LOAD_64;
        if reads_clock(insn) {
            out.extend(load);
            continue;
        }
        let moved = |distance: i64| -> Result<i64, NotReplayed> {
            let target = usize::try_from(at as i64 + 1 + distance).map_err(|_| NotReplayed::TooLong)?;
            let target = *places.get(target).ok_or(NotReplayed::TooLong)?;
            Ok(target as i64 - places[at] as i64 - 1)
        };
        let mut insn = *insn;
        match (insn.code, insn.src_reg()) {
            (CALL, PSEUDO_CALL) | (LOAD_64, PSEUDO_FUNC) | (LONG_JUMP, _) => {
                insn.imm = i32::try_from(moved(insn.imm.into())?).map_err(|_| NotReplayed::TooLong)?;
            }
            (CALL | EXIT, _) => {}
            (code, _) if matches!(code & CLASS, JUMP | JUMP_32) => {
                insn.off = i16::try_from(moved(insn.off.into())?).map_err(|_| NotReplayed::TooLong)?;
            }
            _ => {}
        }
        out.push(insn);
    }
    let mut function = function.clone();
    let moved = |offset: &mut u32| *offset = places.get(*offset as usize).map_or(*offset, |to| *to as u32);
    function.func_info.func_info.iter_mut().for_each(|record| moved(&mut record.insn_off));
    function.line_info.line_info.iter_mut().for_each(|record| moved(&mut record.insn_off));
    Ok((function, out))
}
