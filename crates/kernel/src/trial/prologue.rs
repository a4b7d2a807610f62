//! The kernel's own finding about whether a TC program writes to packets. Before the first
//! instruction of a program that writes, the verifier puts a prologue that makes the packet
//! writable (`bpf_unclone_prologue` in `net/core/filter.c`). The translated instructions of a
//! program show the prologue. A small program that writes shows how the prologue of this kernel
//! looks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::sys::asm;
use crate::sys::prog::{self, ProgLoad};

/// The most instructions in which the end of the prologue is searched. In Linux 6.18 it has 10
/// instructions.
const MOST: usize = 64;
/// The first instruction of the program that writes: `r0 = MARK`.
const MARK: i32 = 0x7eb1;

/// Tells whether the kernel has found that a TC program writes to packets. Returns false if the
/// kernel shows no translated instructions.
pub fn writes(program: BorrowedFd<'_>) -> io::Result<bool> {
    static PROLOGUE: OnceLock<Vec<[u8; 8]>> = OnceLock::new();
    let prologue = PROLOGUE.get_or_init(|| {
        find().unwrap_or_else(|error| {
            tracing::warn!(%error, "the kernel does not show how it translates programs that write to packets");
            Vec::new()
        })
    });
    Ok(!prologue.is_empty() && prog::prog_translated(program, prologue.len())? == *prologue)
}

/// Loads a program that writes, and returns the instructions that the verifier puts before its
/// first one.
fn find() -> io::Result<Vec<[u8; 8]>> {
    let program = prog::prog_load(
        &ProgLoad::new("tp_writer", ProgramKind::Tc, &program(true)),
        None,
    )?;
    let mut translated = prog::prog_translated(program.as_fd(), MOST)?;
    let [a, b, c, d] = MARK.to_le_bytes();
    let mark = [0xb7, 0, 0, 0, a, b, c, d];
    let end = translated
        .iter()
        .position(|instruction| *instruction == mark);
    translated.truncate(end.unwrap_or(0));
    Ok(translated)
}

/// Returns a program that writes to the first byte of its packet, or only reads it. Its first
/// instruction is `r0 = MARK`.
fn program(writes: bool) -> [bpf_insn; 8] {
    // Offsets of `data` and `data_end` in `struct __sk_buff`.
    const DATA: i16 = 76;
    const DATA_END: i16 = 80;
    [
        asm::mov_imm(0, MARK),
        asm::load_u32(2, 1, DATA),
        asm::load_u32(3, 1, DATA_END),
        asm::mov(4, 2),
        asm::add_imm(4, 4),
        asm::jump_gt(4, 3, 1),
        if writes {
            asm::store_u8(2, 0, 0)
        } else {
            asm::load_u32(5, 2, 0)
        },
        asm::exit(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_writers_from_readers() {
        for (first, writer) in [(MARK, true), (MARK, false), (0, true), (0, false)] {
            let mut instructions = program(writer);
            instructions[0] = asm::mov_imm(0, first);
            let program = prog::prog_load(
                &ProgLoad::new("tp_test", ProgramKind::Tc, &instructions),
                None,
            );
            assert_eq!(writes(program.unwrap().as_fd()).unwrap(), writer, "{first}");
        }
    }
}
