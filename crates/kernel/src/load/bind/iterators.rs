//! Iterators over numbers (`bpf_for`, `bpf_repeat` of libbpf). The kernel has them from Linux 6.4
//! on, but its verifier does not follow their loops to the end, so that a program may run for
//! hours. Here the calls of iterators become instructions of the program. These run on every
//! kernel, the analysis needs no knowledge of iterators, and the verifier follows each round.
//!
//! The iterator is a number of 64 bits on the stack. Its lower half is the present number, one less
//! than the next number. Its upper half is the end.

use aya_obj::Function;
use aya_obj::generated::bpf_insn;

use crate::load::rewrite::{Rewriting, rewrite};
use crate::plan::elf::externs::{FIRST_NUMBER, NEXT_NUMBER};
use crate::plan::object::ObjectError;
use crate::sys::asm::{
    add_imm32, call_helper, jump, load_u64, mov, mov_imm, or, shift_left, store_u64, store_u64_imm,
};

/// The register with the address of the iterator. A call may change R0 to R5.
const ITERATOR: u8 = 1;
/// `if dst > src goto +off` and `if dst >= src goto +off`, comparing 32 bits with a sign.
const IF_MORE: u8 = 0x6e;
const IF_NOT_LESS: u8 = 0x7e;
/// `dst >>= value`
const SHIFT_RIGHT: u8 = 0x77;

/// Returns a linked program with the instructions of iterators in place of calls.
pub fn inline(function: Function) -> Result<Function, ObjectError> {
    let is_call = |insn: &bpf_insn, number: u32| {
        insn.code == call_helper(0).code && insn.src_reg() == 0 && insn.imm == number as i32
    };
    let of = |insn: &bpf_insn| match insn {
        _ if is_call(insn, FIRST_NUMBER) => Some(first()),
        _ if is_call(insn, NEXT_NUMBER) => Some(next()),
        _ => None,
    };
    if !function.instructions.iter().any(|insn| of(insn).is_some()) {
        return Ok(function);
    }
    let change = |_, insn: &bpf_insn| of(insn).map_or(Rewriting::Keep, Rewriting::Replace);
    let (changed, instructions) =
        rewrite(&function, &function.instructions, change).map_err(|_| ObjectError::LongLoops)?;
    Ok(Function {
        instructions,
        ..changed
    })
}

/// Returns the code for `bpf_iter_num_new(R1, R2, R3)`: the numbers from R2 on that are less than
/// R3.
fn first() -> Vec<bpf_insn> {
    vec![
        mov_imm(0, 0),
        insn(IF_MORE, 2, 3, 5, 0),
        add_imm32(2, -1),
        shift_left(3, 32),
        or(3, 2),
        store_u64(ITERATOR, 0, 3),
        jump(2),
        store_u64_imm(ITERATOR, 0, 0),
        mov_imm(0, -libc::EINVAL),
    ]
}

/// Returns the code for `bpf_iter_num_next(R1)`: the address of the next number, or 0 after the
/// last number.
fn next() -> Vec<bpf_insn> {
    vec![
        load_u64(2, ITERATOR, 0),
        mov(3, 2),
        insn(SHIFT_RIGHT, 3, 0, 0, 32),
        add_imm32(2, 1),
        mov_imm(0, 0),
        insn(IF_NOT_LESS, 2, 3, 5, 0),
        shift_left(3, 32),
        or(3, 2),
        store_u64(ITERATOR, 0, 3),
        mov(0, ITERATOR),
        jump(1),
        store_u64_imm(ITERATOR, 0, 0),
    ]
}

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(dst, src),
        off,
        imm,
    }
}
