//! The few eBPF instructions that the daemon's generated programs consist of
//! (`Documentation/bpf/standardization/instruction-set.rst` of the kernel).

use std::os::fd::{AsRawFd, BorrowedFd};

use aya_obj::generated::bpf_insn;

/// A register, `R0`..`R10`.
pub type Reg = u8;

const BPF_PSEUDO_MAP_FD: Reg = 1;
const BPF_PSEUDO_MAP_VALUE: Reg = 2;
const BPF_PSEUDO_CALL: Reg = 1;
pub const HELPER_MAP_LOOKUP: i32 = 1;
pub const HELPER_PRANDOM_U32: i32 = 7;
pub const HELPER_TAIL_CALL: i32 = 12;

/// The distance of a jump, in instructions from the next one.
pub type JumpOffset = i16;

fn insn(code: u8, dst: Reg, src: Reg, off: JumpOffset, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(dst, src),
        off,
        imm,
    }
}

/// `dst = src`
pub fn mov(dst: Reg, src: Reg) -> bpf_insn {
    insn(0xbf, dst, src, 0, 0)
}

/// `dst = value`, sign-extended
pub fn mov_imm(dst: Reg, value: i32) -> bpf_insn {
    insn(0xb7, dst, 0, 0, value)
}

/// `dst &= value` `dst = value` in 32 bits; the upper bits are 0.
pub fn mov_imm32(dst: Reg, value: i32) -> bpf_insn {
    insn(0xb4, dst, 0, 0, value)
}

pub fn and_imm(dst: Reg, value: i32) -> bpf_insn {
    insn(0x57, dst, 0, 0, value)
}

/// `dst += value`, 32 bits
pub fn add_imm32(dst: Reg, value: i32) -> bpf_insn {
    insn(0x04, dst, 0, 0, value)
}

/// `if dst > value goto +off`, comparing 32 bits, unsigned
pub fn jump_gt32(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0x26, dst, 0, off, value)
}

/// `if dst <= value goto +off`, comparing 32 bits, unsigned
pub fn jump_le32(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0xb6, dst, 0, off, value)
}

/// `if dst & value goto +off`, of 32 bits
pub fn jump_set32(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0x46, dst, 0, off, value)
}

/// `dst = *(u32 *)(src + off)`
pub fn load_u32(dst: Reg, src: Reg, off: JumpOffset) -> bpf_insn {
    insn(0x61, dst, src, off, 0)
}

/// `dst = *(u64 *)(src + off)`
pub fn load_u64(dst: Reg, src: Reg, off: JumpOffset) -> bpf_insn {
    insn(0x79, dst, src, off, 0)
}

/// `dst = *(src + off)`, of 1, 4 or 8 bytes, zero-extended
pub fn load_width(width: usize, dst: Reg, src: Reg, off: JumpOffset) -> bpf_insn {
    insn(0x61 | size_code(width), dst, src, off, 0)
}

/// `*(dst + off) = src`, of 1, 4 or 8 bytes
pub fn store_width(width: usize, dst: Reg, off: JumpOffset, src: Reg) -> bpf_insn {
    insn(0x63 | size_code(width), dst, src, off, 0)
}

/// `if *(dst + off) == R0 then *(dst + off) = src`, atomically, for 4 or 8 bytes; R0 gets the old
/// value (Linux 5.12)
pub fn atomic_exchange(width: usize, dst: Reg, off: JumpOffset, src: Reg) -> bpf_insn {
    insn(0xc3 | size_code(width), dst, src, off, 0xf1)
}

const fn size_code(width: usize) -> u8 {
    match width {
        8 => 0x18,
        1 => 0x10,
        _ => 0,
    }
}

/// `dst &= src`
pub fn and(dst: Reg, src: Reg) -> bpf_insn {
    insn(0x5f, dst, src, 0, 0)
}

/// `dst |= src`
pub fn or(dst: Reg, src: Reg) -> bpf_insn {
    insn(0x4f, dst, src, 0, 0)
}

/// `dst ^= value`, sign-extended
pub fn xor_imm(dst: Reg, value: i32) -> bpf_insn {
    insn(0xa7, dst, 0, 0, value)
}

/// `if dst != src goto +off`
pub fn jump_other(dst: Reg, src: Reg, off: JumpOffset) -> bpf_insn {
    insn(0x5d, dst, src, off, 0)
}

/// `if dst == src goto +off`
pub fn jump_same(dst: Reg, src: Reg, off: JumpOffset) -> bpf_insn {
    insn(0x1d, dst, src, off, 0)
}

/// `*(u8 *)(dst + off) = value`
pub fn store_u8(dst: Reg, off: JumpOffset, value: i32) -> bpf_insn {
    insn(0x72, dst, 0, off, value)
}

/// `*(u32 *)(dst + off) = src`
pub fn store_u32(dst: Reg, off: JumpOffset, src: Reg) -> bpf_insn {
    insn(0x63, dst, src, off, 0)
}

/// `*(u64 *)(dst + off) = value`
pub fn store_u64_imm(dst: Reg, off: JumpOffset, value: i32) -> bpf_insn {
    insn(0x7a, dst, 0, off, value)
}

/// `*(u64 *)(dst + off) = src`
pub fn store_u64(dst: Reg, off: JumpOffset, src: Reg) -> bpf_insn {
    insn(0x7b, dst, src, off, 0)
}

/// `lock *(u64 *)(dst + off) += src`
pub fn atomic_add_u64(dst: Reg, off: JumpOffset, src: Reg) -> bpf_insn {
    insn(0xdb, dst, src, off, 0)
}

/// `lock *(u32 *)(dst + off) += src`
pub fn atomic_add_u32(dst: Reg, off: JumpOffset, src: Reg) -> bpf_insn {
    insn(0xc3, dst, src, off, 0)
}

/// `dst += value`
pub fn add_imm(dst: Reg, value: i32) -> bpf_insn {
    insn(0x07, dst, 0, 0, value)
}

/// `dst += src`
pub fn add(dst: Reg, src: Reg) -> bpf_insn {
    insn(0x0f, dst, src, 0, 0)
}

/// `dst -= src`
pub fn sub(dst: Reg, src: Reg) -> bpf_insn {
    insn(0x1f, dst, src, 0, 0)
}

/// `dst <<= bits`
pub fn shift_left(dst: Reg, bits: i32) -> bpf_insn {
    insn(0x67, dst, 0, 0, bits)
}

/// `if dst > value goto +off`, unsigned
pub fn jump_gt_imm(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0x25, dst, 0, off, value)
}

/// `if dst < value goto +off`, unsigned
pub fn jump_lt_imm(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0xa5, dst, 0, off, value)
}

/// `if dst != value goto +off`
pub fn jump_ne(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0x55, dst, 0, off, value)
}

/// `if dst > src goto +off`, unsigned
pub fn jump_gt(dst: Reg, src: Reg, off: JumpOffset) -> bpf_insn {
    insn(0x2d, dst, src, off, 0)
}

/// `if dst == value goto +off`, comparing 32 bits
pub fn jump_eq32(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0x16, dst, 0, off, value)
}

/// `if dst != value goto +off`, comparing 32 bits
pub fn jump_ne32(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0x56, dst, 0, off, value)
}

/// `if dst == value goto +off`
pub fn jump_eq(dst: Reg, value: i32, off: JumpOffset) -> bpf_insn {
    insn(0x15, dst, 0, off, value)
}

/// `goto +off`
pub fn jump(off: JumpOffset) -> bpf_insn {
    insn(0x05, 0, 0, off, 0)
}

pub fn call_helper(number: i32) -> bpf_insn {
    insn(0x85, 0, 0, 0, number)
}

/// Calls the subprogram `off` instructions after the next one.
pub fn call_subprogram(off: i32) -> bpf_insn {
    insn(0x85, 0, BPF_PSEUDO_CALL, 0, off)
}

pub fn exit() -> bpf_insn {
    insn(0x95, 0, 0, 0, 0)
}

/// `dst = map`
pub fn load_map(dst: Reg, map: BorrowedFd<'_>) -> [bpf_insn; 2] {
    [
        insn(0x18, dst, BPF_PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        insn(0, 0, 0, 0, 0),
    ]
}

/// `dst = &map[0] + offset`, for array maps of one entry
pub fn load_map_value(dst: Reg, map: BorrowedFd<'_>, offset: i32) -> [bpf_insn; 2] {
    [
        insn(0x18, dst, BPF_PSEUDO_MAP_VALUE, 0, map.as_raw_fd()),
        insn(0, 0, 0, 0, offset),
    ]
}

/// Returns a program that does nothing but return `verdict`.
pub fn pass_program(verdict: i32) -> [bpf_insn; 2] {
    [mov_imm(0, verdict), exit()]
}
