//! References to maps and functions that a source has written itself. The kernel would take such a
//! number for a descriptor of the daemon, which has the maps of all probes open.

use aya_obj::Function;
use aya_obj::generated::bpf_insn;

use crate::admit::instruction::{InstructionIndex, LOAD_64, Unknown, decode};

/// Returns the instructions of a function that refer to a map or a function before the relocation.
/// A compiler writes no such reference: it leaves all references to relocations.
pub fn written(function: &Function) -> impl Iterator<Item = (InstructionIndex, Unknown)> {
    let program = &function.instructions;
    starts(program).filter_map(|at| match program[at].code {
        LOAD_64 if program[at].src_reg() != 0 => Some((at, Unknown::Foreign)),
        _ => decode(program, at)
            .err()
            .filter(|unknown| *unknown == Unknown::KernelFunction)
            .map(|unknown| (at, unknown)),
    })
}

/// Returns the relocated program's instructions that this analysis does not understand, reachable
/// or not.
pub fn unknown(program: &[bpf_insn]) -> impl Iterator<Item = (InstructionIndex, Unknown)> {
    starts(program).filter_map(|at| decode(program, at).err().map(|unknown| (at, unknown)))
}

/// Returns the index of each instruction: one that loads 64 bits takes two places.
fn starts(program: &[bpf_insn]) -> impl Iterator<Item = InstructionIndex> {
    let next = |at: &InstructionIndex| {
        Some(
            at + if program.get(*at)?.code == LOAD_64 {
                2
            } else {
                1
            },
        )
    };
    std::iter::successors(Some(0), next).take_while(|at| *at < program.len())
}
