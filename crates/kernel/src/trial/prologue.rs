//! The kernel's own opinion whether a TC program writes to packets. Before the first instruction of such a program the
//! verifier puts a prologue that makes a packet writable (`bpf_unclone_prologue` in `net/core/filter.c`), and the
//! translated instructions show the prologue. The prologue of this kernel is found by a program that writes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use twinprobe_ebpf_common::hook::ProgramKind;

use crate::sys::asm;
use crate::sys::prog::{self, ProgLoad};

/// The most instructions that are looked through for the end of the prologue; Linux 6.18 has 10.
const MOST: usize = 64;
/// The first instruction of the program that writes: `r0 = MARK`.
const MARK: i32 = 0x7eb1;

/// Tells whether the kernel has found that a TC program writes to packets. A kernel that shows no translated
/// instructions has no opinion, which is false.
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

/// Loads a program that writes a byte of its packet, and returns what the verifier puts before its first instruction.
fn find() -> io::Result<Vec<[u8; 8]>> {
    // Offsets of `data` and `data_end` in `struct __sk_buff`.
    const DATA: i16 = 76;
    const DATA_END: i16 = 80;
    let instructions = [
        asm::mov_imm(0, MARK),
        asm::load_u32(2, 1, DATA),
        asm::load_u32(3, 1, DATA_END),
        asm::mov(4, 2),
        asm::add_imm(4, 1),
        asm::jump_gt(4, 3, 1),
        asm::store_u8(2, 0, 0),
        asm::exit(),
    ];
    let program = prog::prog_load(&ProgLoad::new("tp_writer", ProgramKind::Tc, &instructions), None)?;
    let mut translated = prog::prog_translated(program.as_fd(), MOST)?;
    let [a, b, c, d] = MARK.to_le_bytes();
    let mark = [0xb7, 0, 0, 0, a, b, c, d];
    let end = translated.iter().position(|instruction| *instruction == mark);
    translated.truncate(end.unwrap_or(0));
    Ok(translated)
}
