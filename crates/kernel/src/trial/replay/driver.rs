//! The program that passes packets to a probe: one call of `BPF_PROG_TEST_RUN` serves up to
//! [`BATCH`] packets. A call of any program takes about a microsecond, and several runs of an XDP
//! program in one call wait for grace periods.
//!
//! For each record the driver makes its own frame as long as the packet, copies the packet into the
//! frame, and calls the probe by a tail call in a subprogram, from which the probe returns to the
//! driver.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::{Hook, ProgramKind, XdpKind};

use crate::attach::dispatcher::program::DebugInfo;
use crate::sys::asm;
use crate::sys::map::{self, BPF_MAP_TYPE_PROG_ARRAY, MapCreate};
use crate::sys::prog::{self, ProgLoad};
use crate::trial::programs;
use crate::trial::replay::control::{
    BATCH, COUNT, DATA, KIND, LENGTH, LONGEST, NEXT, OFFSET, RECORD, RECORDS, ROOM, SEEN, TAG, TIME,
};

/// Helper functions.
const SKB_STORE_BYTES: i32 = 9;
const SKB_VLAN_PUSH: i32 = 18;
const SKB_CHANGE_TYPE: i32 = 32;
const SKB_CHANGE_TAIL: i32 = 38;
const XDP_ADJUST_TAIL: i32 = 65;
const XDP_GET_BUFF_LEN: i32 = 188;
const XDP_STORE_BYTES: i32 = 190;
/// The flag of `bpf_skb_store_bytes` that forgets the packet's hash.
const INVALIDATE_HASH: i32 = 2;

/// A loaded driver. The probe's program lives as long as the prog-array.
#[derive(Debug)]
pub struct Driver {
    program: OwnedFd,
    _slots: OwnedFd,
}

impl Driver {
    /// Loads a driver for `probe`. Fails if the kernel lacks a feature that a driver needs: XDP
    /// frames that can be written to by a helper (Linux 5.18), tail calls in subprograms.
    pub fn load(
        hook: Hook,
        xdp: XdpKind,
        control: BorrowedFd<'_>,
        probe: BorrowedFd<'_>,
    ) -> io::Result<Self> {
        let slots = map::map_create(&MapCreate {
            map_type: BPF_MAP_TYPE_PROG_ARRAY,
            ..MapCreate::array("tp_replayed", 4, 1)
        })?;
        let (instructions, functions) = build(hook, control, slots.as_fd());
        let debug = DebugInfo::new(&functions);
        let btf = prog::btf_load(&debug.btf)?;
        let program = ProgLoad::new("tp_replay", hook.kind(), &instructions);
        let program = prog::prog_load(
            &programs::of_kind(
                ProgLoad {
                    btf: Some(btf.as_fd()),
                    func_info: debug.records(),
                    ..program
                },
                xdp,
            ),
            None,
        )?;
        map::map_update(
            slots.as_fd(),
            &0_u32.to_ne_bytes(),
            &probe.as_raw_fd().to_ne_bytes(),
        )?;
        Ok(Self {
            program,
            _slots: slots,
        })
    }

    /// Runs the driver on a frame of its own, which begins with `frame`.
    pub fn run(&self, frame: &[u8]) -> io::Result<()> {
        prog::prog_test_run(self.program.as_fd(), frame, &mut [], &mut []).map(drop)
    }
}

/// Returns the instructions, and the indices at which the two functions begin. R6 is the context,
/// and R7 the control memory.
fn build(
    hook: Hook,
    control: BorrowedFd<'_>,
    slots: BorrowedFd<'_>,
) -> (Vec<bpf_insn>, Vec<usize>) {
    let kind = hook.kind();
    let mut main = vec![asm::mov(6, 1)];
    main.extend(asm::load_map_value(7, control, 0));
    if kind.has_skb() {
        main.extend([
            asm::load_u32(2, 7, TAG as i16),
            asm::jump_eq(2, 0, 3),
            asm::mov(1, 6),
            asm::load_u32(3, 7, TAG as i16 + 4),
            asm::call_helper(SKB_VLAN_PUSH),
        ]);
    }
    main.push(asm::load_u32(8, 7, COUNT as i16));
    let mut calls = Vec::new();
    for record in 0..BATCH {
        let end = 3 * (BATCH - record) - 1;
        main.extend([asm::jump_eq(8, record as i32, end as i16), asm::mov(1, 6)]);
        calls.push(main.len());
        main.push(asm::call_subprogram(0));
    }
    main.extend([asm::mov_imm(0, 0), asm::exit()]);
    let start = main.len();
    for call in calls {
        main[call] = asm::call_subprogram((start - call - 1) as i32);
    }
    main.extend(one(kind, control, slots));
    (main, vec![0, start])
}

/// Returns the subprogram for one packet. R9 is the record, and R8 the length of the packet.
fn one(kind: ProgramKind, control: BorrowedFd<'_>, slots: BorrowedFd<'_>) -> Vec<bpf_insn> {
    let mut out = vec![asm::mov(6, 1)];
    out.extend(asm::load_map_value(7, control, 0));
    out.extend([
        asm::load_u32(9, 7, NEXT as i16),
        asm::mov(1, 9),
        asm::add_imm(1, 1),
        asm::store_u32(7, NEXT as i16, 1),
        asm::and_imm(9, BATCH as i32 - 1),
        asm::shift_left(9, RECORD.trailing_zeros() as i32),
        asm::add(9, 7),
        asm::add_imm(9, RECORDS as i32),
        asm::load_u64(1, 9, TIME as i16),
        asm::store_u64(7, 0, 1),
        asm::load_u32(8, 9, LENGTH as i16),
    ]);
    let mut failures = Vec::new();
    let mut fail_if = |out: &mut Vec<bpf_insn>, jump: fn(i16) -> bpf_insn| {
        failures.push((out.len(), jump));
        out.push(jump(0));
    };
    fail_if(&mut out, |off| asm::jump_gt_imm(8, LONGEST as i32, off));
    fail_if(&mut out, |off| asm::jump_lt_imm(8, 14, off));
    out.extend(resize(kind));
    fail_if(&mut out, |off| asm::jump_ne(0, 0, off));
    out.extend([
        asm::load_u32(3, 9, OFFSET as i16),
        asm::and_imm(3, ROOM as i32 - 1),
    ]);
    out.extend([asm::add(3, 7), asm::add_imm(3, DATA as i32)]);
    out.extend([asm::mov(1, 6), asm::mov_imm(2, 0), asm::mov(4, 8)]);
    match kind {
        ProgramKind::Xdp => out.push(asm::call_helper(XDP_STORE_BYTES)),
        ProgramKind::Tc => out.extend([
            asm::mov_imm(5, INVALIDATE_HASH),
            asm::call_helper(SKB_STORE_BYTES),
        ]),
    }
    fail_if(&mut out, |off| asm::jump_ne(0, 0, off));
    out.extend([
        asm::mov_imm(1, 1),
        asm::store_u32(9, SEEN as i16, 1),
        asm::mov(1, 6),
    ]);
    out.extend(asm::load_map(2, slots));
    out.extend([asm::mov_imm(3, 0), asm::call_helper(asm::HELPER_TAIL_CALL)]);
    // The driver did not call the program, because the slot was empty.
    out.extend([asm::mov_imm(1, 0), asm::store_u32(9, SEEN as i16, 1)]);
    let end = out.len();
    out.extend([asm::mov_imm(0, 0), asm::exit()]);
    for (at, jump) in failures {
        out[at] = jump((end - at - 1) as i16);
    }
    out
}

/// Returns the instructions that make the frame as long as the packet. R0 is 0 after success.
fn resize(kind: ProgramKind) -> Vec<bpf_insn> {
    match kind {
        ProgramKind::Xdp => vec![
            asm::mov(1, 6),
            asm::call_helper(XDP_GET_BUFF_LEN),
            asm::mov(2, 8),
            asm::sub(2, 0),
            asm::mov_imm(0, 0),
            asm::jump_eq(2, 0, 2),
            asm::mov(1, 6),
            asm::call_helper(XDP_ADJUST_TAIL),
        ],
        ProgramKind::Tc => vec![
            asm::mov(1, 6),
            asm::load_u32(2, 9, KIND as i16),
            asm::call_helper(SKB_CHANGE_TYPE),
            // Offset 0 of `struct __sk_buff` is the length.
            asm::load_u32(0, 6, 0),
            asm::mov(2, 8),
            asm::sub(0, 2),
            asm::jump_eq(0, 0, 3),
            asm::mov(1, 6),
            asm::mov_imm(3, 0),
            asm::call_helper(SKB_CHANGE_TAIL),
        ],
    }
}
