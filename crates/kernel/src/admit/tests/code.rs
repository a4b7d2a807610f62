//! Instructions for programs of these tests, beside those of `sys::asm`.

use aya_obj::generated::{BPF_PSEUDO_FUNC, bpf_insn};

/// The code of a store or load of this many bytes, without its class.
fn size(bytes: i64) -> u8 {
    match bytes {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

pub fn raw(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(dst, src),
        off,
        imm,
    }
}

/// `dst = *(uN *)(src + off)`
pub fn load(bytes: i64, dst: u8, src: u8, off: i16) -> bpf_insn {
    raw(0x61 | size(bytes), dst, src, off, 0)
}

/// `*(uN *)(dst + off) = src`
pub fn store(bytes: i64, dst: u8, off: i16, src: u8) -> bpf_insn {
    raw(0x63 | size(bytes), dst, src, off, 0)
}

/// `*(uN *)(dst + off) = value`
pub fn store_number(bytes: i64, dst: u8, off: i16, value: i32) -> bpf_insn {
    raw(0x62 | size(bytes), dst, 0, off, value)
}

/// `dst += src`
pub fn add(dst: u8, src: u8) -> bpf_insn {
    raw(0x0f, dst, src, 0, 0)
}

/// `dst -= src`
pub fn subtract(dst: u8, src: u8) -> bpf_insn {
    raw(0x1f, dst, src, 0, 0)
}

/// `if dst & value goto +off`
pub fn jump_set(dst: u8, value: i32, off: i16) -> bpf_insn {
    raw(0x45, dst, 0, off, value)
}

/// `dst = function`, which begins `distance` instructions after the next one.
pub fn load_function(dst: u8, distance: i32) -> [bpf_insn; 2] {
    [
        raw(0x18, dst, BPF_PSEUDO_FUNC as u8, 0, distance),
        raw(0, 0, 0, 0, 0),
    ]
}
