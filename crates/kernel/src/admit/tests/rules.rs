//! The rules of the analysis, one by one.

use std::collections::BTreeMap;

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::MapKind;
use twinprobe_ebpf_common::hook::ProgramKind::{self, Tc, Xdp};

use crate::admit::flow::act::Act;
use crate::admit::flow::conduct;
use crate::admit::instruction::{Operation, Unknown};
use crate::admit::maps::{MapFacts, has_unaligned_values};
use crate::admit::references;
use crate::admit::tests::code::{add, load, load_function, raw, store, store_number, subtract};
use crate::admit::value::{AbstractValue, OffsetRange, PointerFacts, StackPlace};
use crate::plan::map_spec::MapSpec;
use crate::sys::asm::{
    add_imm, atomic_add_u64, call_helper, call_subprogram, exit, jump, jump_eq, mov, mov_imm,
};

const OPERATIONS: [Operation; 7] = [
    Operation::Move,
    Operation::MoveLow,
    Operation::Add,
    Operation::AddLow,
    Operation::Subtract,
    Operation::SubtractLow,
    Operation::Other,
];

/// Returns the acts of `body`, which begins with the packet in R7, the packet's end in R8 and the
/// context in R6.
fn of(kind: ProgramKind, body: &[bpf_insn]) -> BTreeMap<usize, Act> {
    let data = if kind.has_skb() { 76 } else { 0 };
    let mut program = vec![mov(6, 1), load(4, 7, 6, data), load(4, 8, 6, data + 4)];
    program.extend(body);
    conduct(&program, kind, &[])
        .acts
        .into_iter()
        .map(|(at, act)| (at - 3, act))
        .collect()
}

fn only(at: usize, act: Act) -> BTreeMap<usize, Act> {
    BTreeMap::from([(at, act)])
}

/// Returns the indices of atomic operations that this machine can't run if these maps have
/// unaligned values. The program looks up an entry of map 0, and then runs `body` with the entry's
/// address in R0.
fn unaligned(maps: &[usize], body: &[bpf_insn]) -> Vec<usize> {
    let start = [
        raw(0x18, 1, 1, 0, 0),
        raw(0, 0, 0, 0, 0),
        mov(2, 10),
        add_imm(2, -8),
        call_helper(1),
    ];
    let end = [mov_imm(0, 0), exit()];
    let holds_maps = body.iter().any(|insn| insn.code == call_helper(1).code);
    let facts = |map| MapFacts {
        without_atomics: maps.contains(&map),
        holds_maps,
        ..MapFacts::default()
    };
    let found = conduct(
        &[&start[..], body, &end].concat(),
        Xdp,
        &[facts(0), facts(1)],
    )
    .acts;
    assert!(
        found.values().all(|act| *act == Act::Unaligned),
        "{found:?}"
    );
    found.into_keys().map(|at| at - start.len()).collect()
}

#[test]
fn an_atomic_operation_is_refused_where_a_value_may_be_unaligned() {
    let count = [jump_eq(0, 0, 2), mov_imm(1, 1), atomic_add_u64(0, 0, 1)];
    assert_eq!(unaligned(&[0], &count), [2]);
    assert!(unaligned(&[1], &count).is_empty());
    // The address passes through a slot of the stack, or points behind the start of the value.
    let spilled = [
        store(8, 10, -16, 0),
        load(8, 3, 10, -16),
        add_imm(3, 8),
        atomic_add_u64(3, 0, 1),
    ];
    assert_eq!(unaligned(&[0], &spilled), [3]);
    // A value in the inner map of a map of maps.
    let inner = [
        mov(1, 0),
        mov(2, 10),
        add_imm(2, -8),
        call_helper(1),
        atomic_add_u64(0, 0, 7),
    ];
    assert_eq!(unaligned(&[0], &inner), [4]);
    // Operations that are not atomic, and operations on numbers that were read from the value.
    let plain = [
        load(8, 3, 0, 0),
        store(8, 0, 0, 3),
        store(8, 10, -16, 3),
        atomic_add_u64(10, -16, 3),
    ];
    assert!(unaligned(&[0], &plain).is_empty());
}

#[test]
fn values_behind_addresses_of_odd_length_are_unaligned() {
    let has = |kind: MapKind, key_size| {
        let map_type = kind.bpf_type().unwrap();
        let map = MapSpec {
            map_type,
            key_size,
            value_size: 8,
            ..MapSpec::default()
        };
        let outer = MapSpec {
            map_type: MapKind::ArrayOfMaps.bpf_type().unwrap(),
            ..MapSpec::default()
        };
        let outer = MapSpec {
            inner: Some(Box::new(map.clone())),
            ..outer
        };
        let unaligned = has_unaligned_values(&map);
        assert_eq!(has_unaligned_values(&outer), unaligned);
        unaligned
    };
    assert_eq!(
        [5, 8, 12, 16, 20].map(|key| has(MapKind::LpmTrie, key)),
        [true, true, false, true, false]
    );
    assert_eq!([5, 8].map(|key| has(MapKind::Hash, key)), [false; 2]);
}

#[test]
fn a_store_is_refused_where_the_packet_may_be() {
    for kind in [Xdp, Tc] {
        let end = [mov_imm(0, 0), exit()];
        let refused = |body: &[bpf_insn], at| {
            let found = of(kind, &[body, &end].concat());
            assert_eq!(found, only(at, Act::WritesPacket), "{body:?}");
        };
        let admitted =
            |body: &[bpf_insn]| assert_eq!(of(kind, &[body, &end].concat()), BTreeMap::new());
        refused(&[store_number(1, 7, 0, 1)], 0);
        refused(&[store_number(1, 8, -1, 1)], 0);
        refused(&[mov(3, 7), add_imm(3, 4), store(8, 3, 0, 6)], 2);
        // A number plus a pointer is a pointer; the difference of two pointers is a number.
        refused(&[mov_imm(3, 4), add(3, 7), store_number(1, 3, 0, 1)], 2);
        admitted(&[subtract(8, 7), add(8, 10), store_number(8, 8, -8, 1)]);
        // The address passes through a slot of the stack: whole, in part, and through an
        // overwritten slot.
        refused(
            &[
                store(8, 10, -8, 7),
                load(8, 3, 10, -8),
                store_number(1, 3, 0, 1),
            ],
            2,
        );
        admitted(&[
            store(8, 10, -8, 7),
            store(8, 10, -8, 10),
            load(8, 3, 10, -8),
            store_number(1, 3, 0, 1),
        ]);
        // The address in the stack depends on the path through the program.
        refused(
            &[
                mov(2, 10),
                jump_eq(8, 0, 1),
                add_imm(2, -8),
                store(8, 2, -16, 7),
                load(8, 3, 10, -24),
                store_number(1, 3, 0, 1),
            ],
            5,
        );
        // The program may have overwritten one slot, and has overwritten a part of the other.
        refused(
            &[
                store(8, 10, -8, 7),
                mov(2, 10),
                jump_eq(8, 0, 1),
                call_helper(5),
                mov(2, 0),
                jump_eq(8, 0, 1),
                mov(2, 10),
                store_number(8, 2, -8, 0),
                load(8, 3, 10, -8),
                store_number(1, 3, 0, 1),
            ],
            9,
        );
        refused(
            &[
                store(8, 10, -8, 7),
                store_number(4, 10, -8, 0),
                load(8, 3, 10, -8),
                store_number(1, 3, 0, 1),
            ],
            3,
        );
        // Two paths lead to one store. In a loop, only the second round stores to the packet.
        refused(
            &[
                mov(3, 10),
                jump_eq(8, 0, 1),
                mov(3, 7),
                store_number(1, 3, 0, 1),
            ],
            3,
        );
        refused(
            &[
                mov(3, 10),
                store_number(1, 3, -1, 1),
                mov(3, 7),
                jump_eq(8, 0, -3),
            ],
            1,
        );
        // A value that is read from the packet is a number.
        admitted(&[
            load(8, 3, 7, 0),
            store(8, 10, -8, 3),
            load(8, 4, 10, -8),
            add(4, 10),
            store_number(1, 4, -1, 1),
        ]);
    }
}

#[test]
fn the_context_leads_to_the_packet_and_is_not_written() {
    let end = [mov_imm(0, 0), exit()];
    let of_tc = |body: &[bpf_insn]| of(Tc, &[body, &end].concat());
    assert_eq!(
        of_tc(&[store_number(4, 6, 8, 1)]),
        only(0, Act::WritesContext)
    );
    let spilled = [
        store(8, 10, -8, 6),
        load(8, 3, 10, -8),
        store_number(4, 3, 8, 1),
    ];
    assert_eq!(of_tc(&spilled), only(2, Act::WritesContext));
    // `data_meta` is a pointer into the packet, `mark` is a number, and a field at an unknown
    // offset may be anything.
    for (field, packet) in [
        (76, true),
        (78, true),
        (80, true),
        (140, true),
        (144, false),
        (8, false),
    ] {
        let found = of_tc(&[
            load(4, 3, 6, field),
            mov(4, 10),
            add(4, 3),
            store_number(1, 3, 0, 1),
        ]);
        assert_eq!(found.get(&3) == Some(&Act::WritesPacket), packet, "{field}");
    }
    let moved = [
        mov(3, 6),
        add_imm(3, 70),
        load(4, 4, 3, 6),
        store_number(1, 4, 0, 1),
    ];
    assert_eq!(of_tc(&moved), only(3, Act::WritesPacket));
    let unknown = [
        mov(3, 6),
        load(4, 4, 6, 8),
        add(3, 4),
        load(4, 4, 3, 0),
        store_number(1, 4, 0, 1),
    ];
    assert_eq!(of_tc(&unknown), only(4, Act::WritesPacket));
}

#[test]
fn functions_are_followed_with_what_they_get() {
    // Calls f(packet), then g(&slot), which puts the packet into the caller's slot.
    let body = [
        mov(1, 7),
        call_subprogram(7),
        mov(1, 10),
        add_imm(1, -8),
        mov(2, 7),
        call_subprogram(5),
        load(8, 3, 10, -8),
        store_number(1, 3, 0, 1), // refused
        exit(),
        store_number(1, 1, 0, 1), // f, refused
        exit(),
        store(8, 1, 0, 2), // g
        mov_imm(0, 0),
        exit(),
    ];
    let expected = BTreeMap::from([(7, Act::WritesPacket), (9, Act::WritesPacket)]);
    assert_eq!(of(Xdp, &body), expected);
    // The same function with only the stack as its argument.
    let body = [
        mov(1, 10),
        call_subprogram(2),
        mov_imm(0, 0),
        exit(),
        store_number(1, 1, -1, 1),
        mov(0, 1),
        exit(),
    ];
    assert_eq!(of(Xdp, &body), BTreeMap::new());
    // A function that calls itself.
    let body = [call_subprogram(-1), exit()];
    assert_eq!(of(Xdp, &body), only(0, Act::TooDeep));
}

/// A read beyond the packet's end leaves the function with the present state of its callers.
#[test]
fn a_read_of_the_packet_may_end_its_function() {
    let body = |read: bpf_insn| {
        [
            mov(1, 10),
            add_imm(1, -8),
            mov(2, 7),
            call_subprogram(3),
            load(8, 3, 10, -8),
            store_number(1, 3, -16, 1),
            exit(),
            mov(9, 1), // the function
            store(8, 9, 0, 2),
            read,
            store(8, 9, 0, 10),
            exit(),
        ]
    };
    let number = mov_imm(0, 0);
    assert_eq!(of(Tc, &body(number)), BTreeMap::new());
    for code in [0x20, 0x28, 0x30, 0x40, 0x48, 0x50] {
        let found = of(Tc, &body(raw(code, 0, 0, 0, 60_000)));
        assert_eq!(
            found.get(&5),
            Some(&Act::WritesPacket),
            "{code:#x}: {found:?}"
        );
    }
}

#[test]
fn a_function_that_is_called_back_is_followed() {
    let callback = |argument: u8| {
        let [first, second] = load_function(2, 6);
        [
            store(8, 10, -8, 7),
            first,
            second,
            mov(3, 10),
            add_imm(3, -8),
            call_helper(181), // bpf_loop
            mov_imm(0, 0),
            exit(),
            load(8, 4, argument, 0), // the function, which gets the address of the slot
            store_number(1, 4, 0, 1),
            exit(),
        ]
    };
    assert_eq!(of(Xdp, &callback(2)), only(9, Act::WritesPacket));
    assert_eq!(of(Xdp, &callback(1)), BTreeMap::new());
    // Only the second call passes the packet to the function as the memory for its write.
    let [first, second] = load_function(2, 8);
    let later = [
        store(8, 10, -8, 7),
        store(8, 10, -16, 10),
        first,
        second,
        mov(3, 10),
        add_imm(3, -16),
        call_helper(181),
        load(8, 3, 10, -8),
        mov_imm(0, 0),
        exit(),
        raw(0xbf, 0, 0, 0, 0),
        load(8, 4, 2, 0),
        store_number(1, 4, -1, 1), // refused
        load(8, 5, 2, 8),
        store(8, 2, 0, 5),
        exit(),
    ];
    assert_eq!(of(Xdp, &later).get(&12), Some(&Act::WritesPacket));
}

#[test]
fn helper_functions_are_on_a_list() {
    let call = |number: i32| {
        [
            mov(1, 6),
            mov(2, 10),
            mov(3, 7),
            call_helper(number),
            exit(),
        ]
    };
    assert_eq!(of(Xdp, &call(5)), BTreeMap::new());
    // bpf_xdp_load_bytes and bpf_skb_load_bytes write to R3.
    for (kind, number) in [(Xdp, 189), (Tc, 26)] {
        assert!(matches!(
            of(kind, &call(number)).get(&3),
            Some(Act::HasPacketWritten(_))
        ));
    }
    assert!(
        matches!(of(Xdp, &call(44)).get(&3), Some(Act::CallsChange(_))),
        "bpf_xdp_adjust_head"
    );
    assert!(
        matches!(of(Tc, &call(9)).get(&3), Some(Act::CallsChange(_))),
        "bpf_skb_store_bytes"
    );
    for number in [12, 113, 165, 36, 9999, -1] {
        assert_eq!(
            of(Xdp, &call(number)),
            only(3, Act::CallsHelper(number as u32))
        );
    }
    // The analysis skips code that can't be reached after a CO-RE relocation that does not fit.
    let poisoned = [call_helper(0x0bad_2310), store_number(1, 7, 0, 1), exit()];
    assert_eq!(of(Xdp, &poisoned), BTreeMap::new());
}

#[test]
fn a_reference_of_the_source_is_told_from_that_of_a_relocation() {
    let load_64 = |kind: u8| vec![raw(0x18, 1, kind, 0, 7), raw(0, 0, 0, 0, 0), exit()];
    let unknown = |program: &[bpf_insn]| references::unknown(program).collect::<Vec<_>>();
    for kind in 0..16 {
        let expected = match kind {
            0..=2 => vec![],
            4 => vec![(0, Unknown::Instruction)],
            11.. => vec![(0, Unknown::Instruction)],
            _ => vec![(0, Unknown::Foreign)],
        };
        assert_eq!(unknown(&load_64(kind)), expected, "{kind}");
    }
    for (code, source, expected) in [
        (0x85, 2, Unknown::KernelFunction),
        (0x85, 3, Unknown::Instruction),
        (0x8d, 0, Unknown::Instruction),
        (0x0d, 0, Unknown::Instruction),
        (0xff, 0, Unknown::Instruction),
    ] {
        assert_eq!(
            unknown(&[raw(code, 0, source, 0, 0), exit()]),
            [(0, expected)],
            "{code:#x}"
        );
    }
    assert_eq!(unknown(&[jump(5), exit()]), [(0, Unknown::Instruction)]);
    assert_eq!(unknown(&load_64(0)[..1]), [(0, Unknown::Instruction)]);
}

#[test]
fn values_are_joined_to_what_covers_both() {
    let at = |frame, offset| AbstractValue {
        stack: PointerFacts::Only(StackPlace { frame, offset }),
        ..AbstractValue::NONE
    };
    let values = [
        AbstractValue::NONE,
        AbstractValue::NUMBER,
        AbstractValue::exactly(0),
        AbstractValue::exactly(7),
        AbstractValue::ADDRESS,
        AbstractValue {
            half: true,
            ..AbstractValue::NONE
        },
        AbstractValue::MAP,
        AbstractValue {
            map: PointerFacts::Only(1),
            ..AbstractValue::NONE
        },
        AbstractValue::KERNEL,
        AbstractValue::HARMLESS,
        AbstractValue::PACKET,
        AbstractValue::PACKET.moved_by(1),
        AbstractValue::PACKET.moved_by(2),
        AbstractValue::CONTEXT,
        AbstractValue::frame(0),
        at(0, Some(OffsetRange::at(-8))),
        at(
            0,
            Some(OffsetRange {
                first: -16,
                last: -8,
            }),
        ),
        at(1, None),
        AbstractValue::function(3),
        AbstractValue::function(4),
    ];
    let covers = |all: AbstractValue, one: AbstractValue| all.join(one) == all;
    for one in values {
        assert_eq!(one.join(one), one);
        for other in values {
            let both = one.join(other);
            assert_eq!(both, other.join(one));
            assert!(covers(both, one) && covers(both, other));
            for third in values {
                assert_eq!(both.join(third), one.join(other.join(third)));
                // More possible values of a place mean less knowledge about it.
                assert!(covers(both.moved_by(1), one.moved_by(1)));
                for operation in OPERATIONS {
                    let of_both = both.combine(operation, third, None);
                    assert!(
                        covers(of_both, one.combine(operation, third, None)),
                        "{operation:?}"
                    );
                    let to_both = third.combine(operation, both, None);
                    assert!(
                        covers(to_both, third.combine(operation, one, None)),
                        "{operation:?}"
                    );
                }
            }
        }
    }
}
