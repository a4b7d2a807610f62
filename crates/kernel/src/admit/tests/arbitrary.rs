//! Any bytes can be judged: the analysis ends and does not panic.

use aya_obj::generated::bpf_insn;
use proptest::prelude::*;
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::admit::flow::act::Act;
use crate::admit::flow::conduct;
use crate::admit::maps::MapFacts;
use crate::admit::references;
use crate::admit::tests::code::{load, load_function, raw, store, store_number};
use crate::admit::work::work;
use crate::sys::asm::{add_imm, call_helper, exit, jump_eq, mov, mov_imm};

/// Any instruction, or more often one with an opcode that exists and with operands that lead to
/// places nearby.
fn instruction() -> impl Strategy<Value = bpf_insn> {
    let any = (any::<u8>(), 0..16_u8, 0..16_u8, any::<i16>(), any::<i32>())
        .prop_map(|(code, dst, src, off, imm)| raw(code, dst, src, off, imm));
    let codes = vec![
        0x07, 0x0f, 0x1f, 0xb7, 0xbf, 0xbc, 0x61, 0x79, 0x7b, 0x63, 0x62, 0xdb, 0x05, 0x15, 0x2d,
        0x85, 0x95, 0x18, 0x00, 0x06, 0xe5,
    ];
    let numbers = prop::sample::select(vec![0, 1, 2, 3, -1, -8, 12, 26, 164, 170, 181, 189, 225]);
    let likely = (
        prop::sample::select(codes),
        0..11_u8,
        0..11_u8,
        -16..16_i16,
        numbers,
    )
        .prop_map(|(code, dst, src, off, imm)| raw(code, dst, src, off, imm));
    prop_oneof![1 => any, 8 => likely]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_instructions_are_judged(program in prop::collection::vec(instruction(), 0..80)) {
        for kind in [ProgramKind::Xdp, ProgramKind::Tc] {
            conduct(&program, kind, &[]);
        }
        work(&program, &[MapFacts { entries: 1 << 32, ..MapFacts::default() }], 1000);
        references::unknown(&program).for_each(drop);
    }

    /// The analysis finds every reachable store to the packet, after any instructions.
    #[test]
    fn a_store_behind_anything_is_found(
        before in prop::collection::vec(instruction(), 0..30),
        jumps in prop::collection::vec(1..4_i16, 0..10),
    ) {
        let mut program = vec![load(4, 9, 1, 0)];
        let harmless = before.into_iter().filter(|raw| {
            // Instructions that stay in a straight line and leave R9 alone.
            matches!(raw.code & 7, 4 | 7) && raw.dst_reg() != 9
        });
        program.extend(harmless);
        for jump in jumps {
            program.push(jump_eq(0, 7, jump.min(1)));
            program.push(mov(3, 9));
        }
        let known = conduct(&[program.as_slice(), &[exit()]].concat(), ProgramKind::Xdp, &[]).acts;
        let reached = !known.values().any(|act| matches!(act, Act::Unknown(_)));
        let at = program.len();
        program.extend([store_number(1, 9, 0, 1), exit()]);
        let found = conduct(&program, ProgramKind::Xdp, &[]).acts;
        prop_assert_eq!(found.get(&at) == Some(&Act::WritesPacket), reached);
    }
}

/// Programs that would take long to analyse and are as long as the kernel allows. An analysis of
/// each way, or of each pair of instructions, would take years.
#[test]
fn the_analysis_ends() {
    const LONGEST: usize = 1_000_000;
    // Each branch doubles the number of paths through the program.
    let ways = |body: [bpf_insn; 2]| {
        let mut program = vec![mov_imm(0, 0)];
        while program.len() < LONGEST - 4 {
            program.extend([jump_eq(0, 1, 2), body[0], body[1]]);
        }
        program.push(exit());
        program
    };
    conduct(
        &ways([store(8, 10, -8, 1), load(8, 3, 10, -8)]),
        ProgramKind::Xdp,
        &[],
    );
    // Each round of nested loops moves a pointer.
    let mut loops = vec![mov(2, 10)];
    for depth in 1..2000_i16 {
        loops.extend([add_imm(2, -8), store(8, 2, 0, 1), jump_eq(0, 7, -3 * depth)]);
    }
    loops.push(exit());
    conduct(&loops, ProgramKind::Xdp, &[]);
    // Functions that each call the next function twice, with a different argument each time.
    let mut calls = Vec::new();
    for _ in 0..300 {
        calls.extend([
            add_imm(1, 1),
            raw(0x85, 0, 1, 0, 3),
            mov(1, 10),
            raw(0x85, 0, 1, 0, 1),
            exit(),
        ]);
    }
    calls.push(exit());
    conduct(&calls, ProgramKind::Xdp, &[]);
    // A call of `bpf_loop` at the end, and calls of `bpf_loop` in a loop around all of them.
    let callback = [
        &load_function(2, 2)[..],
        &[call_helper(181), exit(), exit()],
    ]
    .concat();
    for mut program in [loops, calls] {
        program.pop();
        program.extend(&callback);
        work(&program, &[], 1000);
    }
    let sites: Vec<bpf_insn> = callback[..3]
        .iter()
        .copied()
        .cycle()
        .take(LONGEST - LONGEST % 3)
        .collect();
    work(
        &[
            &sites[..],
            &[raw(0x06, 0, 0, 0, -(sites.len() as i32) - 1), exit()],
        ]
        .concat(),
        &[],
        1000,
    );
}
