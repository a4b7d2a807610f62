//! Buffers on the stack whose size or index is not a constant: a pointer beside a buffer counts as
//! shown if the size or the index may reach it.

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::ProgramKind::Tc;

use crate::admit::flow::act::Act;
use crate::admit::tests::addresses::{admitted, load_map, of, refused};
use crate::admit::tests::code::{add, jump_set, load, raw, store, store_number};
use crate::sys::asm::{add_imm, call_helper, mov, mov_imm};

const PERF_EVENT_OUTPUT: i32 = 25;
const SKB_LOAD_BYTES: i32 = 26;
/// The comparisons of an unsigned and of a signed number of 64 bits, and of 32 bits, with a
/// constant: less or equal.
const AT_MOST: u8 = 0xb5;
const AT_MOST_SIGNED: u8 = 0xd5;
const AT_MOST_LOW: u8 = 0xb6;
const AT_MOST_LOW_SIGNED: u8 = 0xd6;
/// A load of 32 bits that extends the sign.
const LOAD_SIGNED: u8 = 0x81;

/// Puts the address of a buffer of 40 bytes into `register`. A pointer comes after the buffer.
fn buffer(register: u8) -> [bpf_insn; 3] {
    [
        store(8, 10, -24, 6),
        mov(register, 10),
        add_imm(register, -64),
    ]
}

/// Shows the buffer, with the size that `size` leaves in R5.
fn shown(size: &[bpf_insn]) -> Vec<bpf_insn> {
    let call = [
        &[mov(1, 6)][..],
        &load_map(2, 0),
        &[mov_imm(3, 0), call_helper(PERF_EVENT_OUTPUT)],
    ]
    .concat();
    [&buffer(4)[..], size, &call].concat()
}

/// A size from a map, and its limit.
fn limited(load: bpf_insn, comparison: u8, most: i32) -> Vec<bpf_insn> {
    shown(&[load, raw(comparison, 5, 0, 1, most), mov_imm(5, most)])
}

#[test]
fn a_size_counts_with_its_limit() {
    let shows = Act::ShowsAddress("bpf_perf_event_output".into());
    let (low, wide) = (load(4, 5, 9, 0), load(8, 5, 9, 0));
    admitted(&limited(low, AT_MOST, 40));
    admitted(&limited(wide, AT_MOST, 40));
    admitted(&limited(low, AT_MOST_LOW, 40));
    admitted(&limited(low, AT_MOST_SIGNED, 40));
    admitted(&shown(&[wide, raw(0x57, 5, 0, 0, 31)]));
    admitted(&shown(&[load(1, 5, 9, 0), raw(0x77, 5, 0, 0, 3)]));
    refused(&limited(low, AT_MOST, 41), &shows);
    refused(&shown(&[wide, raw(0x57, 5, 0, 0, 63)]), &shows);
    refused(&shown(&[load(1, 5, 9, 0)]), &shows);
    // The smaller one of two numbers: R3 is at most 40.
    let smaller = |before: bpf_insn, code: u8| {
        let three = [load(4, 3, 9, 0), raw(AT_MOST, 3, 0, 1, 40), mov_imm(3, 40)];
        shown(&[&[before][..], &three, &[raw(code, 3, 5, 1, 0), mov(5, 3)]].concat())
    };
    // R3 is greater than R5, or else takes the value of R5.
    admitted(&smaller(low, 0x2d));
    admitted(&smaller(wide, 0x2d));
    admitted(&smaller(low, 0x2e));
    admitted(&smaller(low, 0x6d));
    refused(&smaller(wide, 0x2e), &shows);
    refused(&smaller(wide, 0x6d), &shows);
    refused(&smaller(low, 0xad), &shows);
    // A comparison of 32 bits, or with a sign, limits only numbers that can't be larger.
    refused(&limited(wide, AT_MOST_LOW, 40), &shows);
    refused(&limited(low, AT_MOST_LOW_SIGNED, 40), &shows);
    refused(&limited(wide, AT_MOST_SIGNED, 40), &shows);
    refused(
        &limited(raw(LOAD_SIGNED, 5, 9, 0, 0), AT_MOST_SIGNED, 40),
        &shows,
    );
    // The program has compared the size before it adds to it.
    refused(
        &shown(&[
            low,
            raw(AT_MOST, 5, 0, 1, 40),
            mov_imm(5, 40),
            add_imm(5, 8),
        ]),
        &shows,
    );
    // The number comes from a pointer.
    refused(
        &shown(&[
            raw(0xbc, 5, 6, 0, 0),
            raw(AT_MOST, 5, 0, 1, 40),
            mov_imm(5, 40),
        ]),
        &shows,
    );
}

/// Compilers often compare a copy of the size.
#[test]
fn a_limit_of_a_copy_is_one_of_the_size() {
    let shows = Act::ShowsAddress("bpf_perf_event_output".into());
    let (low, wide) = (load(4, 5, 9, 0), load(8, 5, 9, 0));
    let compared = |before: &[bpf_insn]| {
        shown(&[before, &[raw(AT_MOST, 3, 0, 1, 40), mov_imm(5, 40)]].concat())
    };
    let (copy, half) = (mov(3, 5), raw(0xbc, 3, 5, 0, 0));
    admitted(&compared(&[low, copy]));
    admitted(&compared(&[wide, copy]));
    admitted(&compared(&[low, half]));
    // The size is a copy of a copy, and the first copy has changed since.
    admitted(&compared(&[wide, mov(2, 5), mov(3, 2), mov_imm(2, 0)]));
    // A copy of 32 bits, with or without its sign, is not a copy of the number.
    refused(&compared(&[wide, half]), &shows);
    refused(&compared(&[wide, raw(0xbf, 3, 5, 32, 0)]), &shows);
    // The size or its copy has changed, or the copy was made on only one path.
    refused(&compared(&[low, copy, add_imm(5, 8)]), &shows);
    refused(&compared(&[low, copy, add_imm(3, 8)]), &shows);
    refused(&compared(&[low, copy, load(4, 5, 9, 8)]), &shows);
    refused(
        &compared(&[low, load(4, 3, 9, 8), jump_set(5, 1, 1), copy]),
        &shows,
    );
    // The number is the address in a pointer.
    refused(&compared(&[raw(0xbc, 5, 6, 0, 0), copy]), &shows);
}

#[test]
fn an_index_counts_with_its_limit() {
    let read = |index: &[bpf_insn]| {
        [
            &buffer(4)[..],
            index,
            &[add(4, 3), load(1, 5, 4, 0), store(1, 9, 0, 5)],
        ]
        .concat()
    };
    let number = load(8, 3, 9, 0);
    admitted(&read(&[number, raw(0x57, 3, 0, 0, 31)]));
    refused(
        &read(&[number, raw(0x57, 3, 0, 0, 63)]),
        &Act::StoresAddress,
    );
    refused(&read(&[number]), &Act::StoresAddress);
    // The index grows in a loop.
    let turns = |most: i32| {
        let read = [
            mov(4, 10),
            add_imm(4, -64),
            add(4, 3),
            load(1, 5, 4, 0),
            store(1, 9, 0, 5),
        ];
        let turn = [
            &[raw(0x35, 3, 0, 7, most)][..],
            &read,
            &[add_imm(3, 1), raw(0x05, 0, 0, -8, 0)],
        ]
        .concat();
        [&buffer(4)[..], &[mov_imm(3, 0)], &turn].concat()
    };
    admitted(&turns(40));
    refused(&turns(41), &Act::StoresAddress);
}

/// A call may write fewer bytes than the limit: the other bytes stay as they were.
#[test]
fn a_limit_is_not_a_size() {
    let load_bytes = |size: &[bpf_insn]| {
        let before = [
            store(8, 10, -64, 6),
            store_number(8, 10, -56, 0),
            mov(3, 10),
            add_imm(3, -64),
        ];
        let call = [
            mov(1, 6),
            mov_imm(2, 0),
            call_helper(SKB_LOAD_BYTES),
            load(1, 5, 10, -64),
            store(1, 9, 0, 5),
        ];
        of(Tc, &[&before[..], size, &call].concat())
    };
    assert_eq!(load_bytes(&[mov_imm(4, 16)]), []);
    let limited = [load(4, 4, 9, 0), raw(AT_MOST, 4, 0, 1, 16), mov_imm(4, 16)];
    assert_eq!(load_bytes(&limited), [Act::StoresAddress]);
}
