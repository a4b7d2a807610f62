//! The work of loops.

use aya_obj::generated::bpf_insn;

use crate::admit::maps::MapFacts;
use crate::admit::tests::code::{load, load_function, raw, store};
use crate::admit::work::{MAX_WORK, work};
use crate::sys::asm::{
    add_imm, and_imm, call_helper, call_subprogram, exit, jump_eq, mov, mov_imm,
};

const BPF_LOOP: i32 = 181;
const FOR_EACH: i32 = 164;
/// The most rounds of one loop.
const ENDLESS: u64 = 1 << 23;

/// The number of instructions that the verifier has followed.
const VERIFIED: u64 = 1000;
/// The work of one round of a loop that calls a function of two instructions.
const ROUND: u64 = 6;
/// The work of a call of a helper function, and of a call of `bpf_loop` with its preparation.
const HELPER: u64 = 48;
const LOOP: u64 = HELPER + 3;

/// Returns the most work of a program whose maps have 3 and 500 entries, and whether that is too
/// much work.
fn of(program: &[bpf_insn]) -> (u64, bool) {
    let map = |entries| MapFacts {
        entries,
        ..MapFacts::default()
    };
    let work = work(program, &[map(3), map(500)], VERIFIED);
    assert_eq!(work.beyond.is_some(), work.most > MAX_WORK, "{work:?}");
    (work.most, work.beyond.is_some())
}

/// A call of `bpf_loop` with a function that begins `distance` instructions after the call. Earlier
/// instructions set R1.
fn call_loop(distance: i32) -> Vec<bpf_insn> {
    [
        &load_function(2, distance + 4)[..],
        &[mov_imm(3, 0), mov_imm(4, 0), call_helper(BPF_LOOP)],
    ]
    .concat()
}

/// Returns the rounds of a loop with the number of rounds that `number` puts into R1.
fn simple(number: &[bpf_insn]) -> (u64, bool) {
    let of = |last: &[bpf_insn]| {
        of(&[
            number,
            last,
            &call_loop(2),
            &[mov_imm(0, 0), exit(), mov_imm(0, 0), exit()],
        ]
        .concat())
    };
    let ((most, is_too_much), (least, _)) = (of(&[raw(0xbf, 6, 1, 0, 0)]), of(&[mov_imm(1, 0)]));
    ((most - least) / ROUND, is_too_much)
}

/// `if dst > number goto +off`, with 32 bits and without a sign, or as `code` says.
fn jump_if(code: u8, dst: u8, number: i32, off: i16) -> bpf_insn {
    raw(code, dst, 0, off, number)
}

#[test]
fn the_number_of_rounds_is_what_the_register_can_be() {
    assert_eq!(simple(&[mov_imm(1, 16)]), (16, false));
    assert_eq!(simple(&[raw(0xb4, 1, 0, 0, 16)]), (16, false));
    assert_eq!(simple(&[load(4, 1, 1, 0), and_imm(1, 63)]), (63, false));
    assert_eq!(simple(&[load(1, 1, 1, 0)]), (255, false));
    assert_eq!(
        simple(&[load(2, 6, 1, 0), mov(1, 6), add_imm(1, 5)]),
        (65_540, false)
    );
    // The number is a remainder, or the result of a shift.
    assert_eq!(
        simple(&[load(4, 1, 1, 0), raw(0x94, 1, 0, 0, 100)]),
        (99, false)
    );
    assert_eq!(
        simple(&[load(2, 1, 1, 0), raw(0x77, 1, 0, 0, 8)]),
        (255, false)
    );
    // A read of 32 bits may give a pointer, which is larger than 32 bits.
    assert_eq!(
        simple(&[load(4, 1, 1, 0), raw(0x77, 1, 0, 0, 40)]),
        (ENDLESS, false)
    );
    // The larger one of two numbers.
    assert_eq!(
        simple(&[mov_imm(1, 7), jump_eq(8, 0, 1), mov_imm(1, 9)]),
        (9, false)
    );
    assert_eq!(
        simple(&[mov_imm(1, 9), jump_eq(8, 0, 1), mov_imm(1, 7)]),
        (9, false)
    );
    // A number that grows in a loop, and a number that stays constant.
    let grows = |number| {
        [
            mov_imm(1, 7),
            mov_imm(6, 0),
            add_imm(6, 1),
            raw(0xa5, 6, 0, -2, 100),
            mov(1, number),
        ]
    };
    assert_eq!(simple(&grows(1)), (7, false));
    assert_eq!(simple(&grows(6)), (ENDLESS, false));
    // A single loop may have as many rounds as the kernel allows.
    let swapped = raw(0xdc, 1, 0, 0, 64);
    for number in [
        &[load(4, 1, 1, 0)][..],
        &[load(8, 1, 1, 0)],
        &[mov_imm(1, -1)],
        &[load(1, 1, 1, 0), swapped],
        &[load(1, 1, 1, 0), add_imm(1, -1)],
    ] {
        assert_eq!(simple(number), (ENDLESS, false), "{number:?}");
    }
}

#[test]
fn a_comparison_tells_how_large_a_number_is() {
    // `if (n > 64) n = 64;` in each form.
    for (code, number) in [
        (0x26, 64),
        (0x25, 64),
        (0x66, 64),
        (0x65, 64),
        (0x36, 65),
        (0x35, 65),
        (0x75, 65),
    ] {
        let clamp = [
            load(4, 1, 1, 0),
            and_imm(1, 0xfff),
            jump_if(code, 1, number, 1),
            jump_if(0x05, 0, 0, 1),
        ];
        let clamp = [&clamp[..], &[mov_imm(1, 64)]].concat();
        assert_eq!(simple(&clamp), (64, false), "{code:#x}");
    }
    for (code, number) in [
        (0xa6, 65),
        (0xa5, 65),
        (0xc6, 65),
        (0xc5, 65),
        (0xb6, 64),
        (0xb5, 64),
        (0xd5, 64),
    ] {
        let clamp = [
            load(4, 1, 1, 0),
            and_imm(1, 0xfff),
            jump_if(code, 1, number, 1),
            mov_imm(1, 64),
        ];
        assert_eq!(simple(&clamp), (64, false), "{code:#x}");
    }
    // The smaller one of two numbers, and a number that is smaller than a value which may be a
    // pointer.
    let below = [
        load(4, 6, 1, 0),
        load(8, 1, 1, 8),
        raw(0xad, 1, 6, 1, 0),
        mov_imm(1, 0),
        raw(0x77, 1, 0, 0, 20),
    ];
    assert_eq!(
        simple(&[
            load(1, 6, 1, 8),
            load(8, 1, 1, 0),
            raw(0x2d, 6, 1, 1, 0),
            mov(1, 6)
        ]),
        (255, false)
    );
    assert_eq!(simple(&below), (ENDLESS, false));
    // A comparison with a sign, or of 32 bits, lets a large number pass.
    for (bytes, code) in [(4, 0x66), (8, 0x65), (8, 0x26)] {
        let clamp = [
            load(bytes, 1, 1, 0),
            jump_if(code, 1, 64, 1),
            jump_if(0x05, 0, 0, 1),
            mov_imm(1, 64),
        ];
        assert_eq!(simple(&clamp), (ENDLESS, false), "{code:#x}");
    }
}

#[test]
fn rounds_of_loops_in_loops_multiply() {
    let nested = |outer: &[bpf_insn], inner: &[bpf_insn]| {
        let second = [
            inner,
            &call_loop(2),
            &[mov_imm(0, 0), exit(), mov_imm(0, 0), exit()],
        ]
        .concat();
        of(&[outer, &call_loop(2), &[mov_imm(0, 0), exit()], &second].concat())
    };
    let (constant, any) = ([mov_imm(1, 1000)], [load(8, 1, 10, -8)]);
    // The called function has a loop, an instruction before the loop and two after it.
    let function = |rounds: u64, each: u64| LOOP + 3 + rounds * each;
    let both = |outer, inner| function(outer, function(inner, ROUND) + ROUND - 2);
    assert_eq!(nested(&constant, &constant), (both(1000, 1000), false));
    assert_eq!(nested(&any, &[mov_imm(1, 4)]), (both(ENDLESS, 4), false));
    assert_eq!(nested(&any, &any), (both(ENDLESS, ENDLESS), true));
    assert_eq!(nested(&constant, &any), (both(1000, ENDLESS), true));
    // Both calls of a function count.
    let inner = [
        &any[..],
        &call_loop(2),
        &[mov_imm(0, 0), exit(), mov_imm(0, 0), exit()],
    ]
    .concat();
    let twice = [
        &[call_subprogram(2), call_subprogram(1), exit()][..],
        &inner,
    ]
    .concat();
    assert_eq!(of(&twice), (3 + 2 * function(ENDLESS, ROUND), false));
    // The call is in a loop that the verifier follows.
    let around = |number: i32| {
        let body = [&[mov_imm(6, 5), mov_imm(1, number)][..], &call_loop(4)].concat();
        let back = raw(0x55, 6, 0, -(body.len() as i16 + 1), 0);
        let end = [
            add_imm(6, -1),
            back,
            mov_imm(0, 0),
            exit(),
            mov_imm(0, 0),
            exit(),
        ];
        of(&[&body[..], &end].concat())
    };
    let straight = LOOP + 6;
    assert_eq!(
        around(100),
        (straight + VERIFIED * (HELPER + 100 * ROUND), false)
    );
    assert!(around(1 << 20).1);
}

#[test]
fn loops_of_each_kind_count() {
    let for_each = |map: &[bpf_insn]| {
        let call = [
            &load_function(2, 6)[..],
            &[mov_imm(3, 0), mov_imm(4, 0), call_helper(FOR_EACH)],
        ]
        .concat();
        of(&[map, &call, &[mov_imm(0, 0), exit(), mov_imm(0, 0), exit()]].concat())
    };
    for (map, entries) in [(0, 3), (1, 500)] {
        let found = for_each(&[raw(0x18, 1, 1, 0, map), raw(0, 0, 0, 0, 0)]);
        assert_eq!(found, (LOOP + 3 + entries * ROUND, false));
    }
    // The map is in a map of maps.
    assert_eq!(
        for_each(&[call_helper(1), mov(1, 0)]),
        (HELPER + LOOP + 3 + 500 * ROUND, false)
    );
    // A loop with `may_goto`, and a loop within such a loop.
    let may_goto = raw(0xe5, 0, 0, 2, 0);
    assert_eq!(
        of(&[may_goto, mov_imm(0, 0), raw(0x05, 0, 0, -3, 0), exit()]),
        (4 * ENDLESS, false)
    );
    let body = [&[raw(0xe5, 0, 0, 7, 0), mov_imm(1, 90)][..], &call_loop(3)].concat();
    let within = [
        &body[..],
        &[
            raw(0x05, 0, 0, -8, 0),
            mov_imm(0, 0),
            exit(),
            mov_imm(0, 0),
            exit(),
        ],
    ]
    .concat();
    assert!(of(&within).1);
    // The program reads the function's address from the stack.
    let call = [
        store(8, 10, -8, 2),
        load(8, 2, 10, -8),
        mov_imm(3, 0),
        mov_imm(4, 0),
        call_helper(BPF_LOOP),
    ];
    let end = [mov_imm(0, 0), exit(), mov_imm(0, 0), exit()];
    assert!(of(&[&[mov_imm(1, 4)][..], &load_function(2, 8), &call, &end].concat()).1);
    // A program without an end.
    let endless = [call_loop(0), call_loop(-7)].concat();
    for length in 0..endless.len() {
        work(&endless[..length], &[], VERIFIED);
    }
    // The rounds are long: they have a loop, a function that prints, or a loop that the verifier
    // follows.
    let rounds = |round: &[bpf_insn]| {
        of(&[
            &[load(8, 1, 10, -8)][..],
            &call_loop(2),
            &[mov_imm(0, 0), exit()],
            round,
            &[exit()],
        ]
        .concat())
        .1
    };
    assert!(!rounds(&[mov_imm(0, 0); 40]));
    assert!(rounds(&[mov_imm(0, 0); 150]));
    assert!(!rounds(&[call_helper(1)]));
    assert!(rounds(&[call_helper(6)]));
    assert!(rounds(&[
        mov_imm(6, 5),
        add_imm(6, -1),
        raw(0x55, 6, 0, -2, 0)
    ]));
    // Loops that the verifier follows, with a `may_goto` between two of them.
    let may_goto = raw(0xe5, 0, 0, 4, 0);
    let followed = [add_imm(6, -1), raw(0x55, 6, 0, -2, 0)];
    assert!(
        of(&[
            &[may_goto][..],
            &followed,
            &[raw(0x05, 0, 0, -4, 0), mov_imm(0, 0), exit()]
        ]
        .concat())
        .1
    );
    // The kernel runs timers later, so their work does not belong to a packet.
    assert_eq!(of(&[call_helper(170), exit()]), (0, false));
}
