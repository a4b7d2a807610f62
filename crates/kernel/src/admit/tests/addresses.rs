//! Addresses of the kernel: the permitted uses of pointers, and of values derived from them.

use std::collections::BTreeMap;

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::ProgramKind::{self, Tc, Xdp};

use crate::admit::flow::act::Act;
use crate::admit::flow::conduct;
use crate::admit::maps::MapFacts;
use crate::admit::tests::code::{add, load, load_function, raw, store, store_number, subtract};
use crate::sys::asm::{add_imm, call_helper, call_subprogram, exit, jump_eq, mov, mov_imm};

const LOOKUP: i32 = 1;
const UPDATE: i32 = 2;
const PRINTK: i32 = 6;
const PERF_EVENT_OUTPUT: i32 = 25;
const SKB_LOAD_BYTES: i32 = 26;
const SKB_PULL_DATA: i32 = 39;
const SKC_TO_TCP_SOCK: i32 = 137;
const FOR_EACH: i32 = 164;
const TIMER_SET_CALLBACK: i32 = 170;
const TIMER_START: i32 = 171;
const XDP_LOAD_BYTES: i32 = 189;
const DYNPTR_FROM_MEM: i32 = 197;

/// An array, a hash, a map of maps and a hash in it: keys have 8 bytes and values 16.
fn maps() -> [MapFacts; 4] {
    let map = MapFacts {
        key: 8,
        value: 16,
        entries: 4,
        ..MapFacts::default()
    };
    let hash = MapFacts {
        is_hash: true,
        ..map
    };
    [
        map,
        hash,
        MapFacts {
            holds_maps: true,
            ..map
        },
        MapFacts {
            is_held: true,
            ..hash
        },
    ]
}

pub fn load_map(to: u8, map: i32) -> [bpf_insn; 2] {
    [raw(0x18, to, 1, 0, map), raw(0, 0, 0, 0, 0)]
}

/// Returns the acts of `body`, which begins with the context in R6, the packet in R7, the packet's
/// end in R8 and the value of a map in R9.
pub fn of(kind: ProgramKind, body: &[bpf_insn]) -> Vec<Act> {
    let data = if kind.has_skb() { 76 } else { 0 };
    let find = [
        mov(2, 10),
        add_imm(2, -8),
        call_helper(LOOKUP),
        jump_eq(0, 0, -1),
        mov(9, 0),
    ];
    let start = [
        mov(6, 1),
        load(4, 7, 6, data),
        load(4, 8, 6, data + 4),
        store_number(8, 10, -8, 0),
    ];
    let program = [
        &start[..],
        &load_map(1, 0),
        &find,
        body,
        &[mov_imm(0, 0), exit()],
    ]
    .concat();
    conduct(&program, kind, &maps())
        .acts
        .into_values()
        .collect()
}

pub fn refused(body: &[bpf_insn], expected: &Act) {
    for kind in [Xdp, Tc] {
        assert_eq!(of(kind, body).first(), Some(expected), "{body:?}");
    }
}

pub fn admitted(body: &[bpf_insn]) {
    for kind in [Xdp, Tc] {
        assert_eq!(of(kind, body), [], "{body:?}");
    }
}

/// `dst operation= src`
fn compute(operation: u8, dst: u8, src: u8) -> bpf_insn {
    raw(operation | 0x08, dst, src, 0, 0)
}

#[test]
fn a_structure_of_the_kernel_is_not_read() {
    for load_or_add in [
        load(8, 3, 1, 16),
        load(1, 3, 1, 0),
        raw(0xdb, 1, 3, 0, 1),
        raw(0xdb, 3, 1, 0, 0x100),
    ] {
        refused(
            &[&load_map(1, 0)[..], &[mov_imm(3, 1), load_or_add]].concat(),
            &Act::ReadsMap,
        );
    }
    // The pointers pass through a slot of the stack. The inner map of a map of maps counts as a
    // map.
    let spilled = [store(8, 10, -16, 1), load(8, 2, 10, -16), load(8, 3, 2, 0)];
    refused(&[&load_map(1, 0)[..], &spilled].concat(), &Act::ReadsMap);
    let inner = [
        mov(2, 10),
        add_imm(2, -8),
        call_helper(LOOKUP),
        load(8, 3, 0, 0),
    ];
    refused(&[&load_map(1, 2)[..], &inner].concat(), &Act::ReadsMap);
    admitted(&[&load_map(1, 1)[..], &inner].concat());
    // The map that a called function gets for each entry of the map.
    let callback = |read: bpf_insn| {
        let call = [
            &load_map(1, 0)[..],
            &load_function(2, 6),
            &[mov_imm(3, 0), mov_imm(4, 0)],
        ]
        .concat();
        let end = [
            call_helper(FOR_EACH),
            mov_imm(0, 0),
            exit(),
            read,
            mov_imm(0, 0),
            exit(),
        ];
        [&call[..], &end].concat()
    };
    refused(&callback(load(8, 5, 1, 0)), &Act::ReadsMap);
    admitted(&callback(load(8, 5, 2, 0)));
    admitted(&callback(load(8, 5, 3, 0)));
    let socket = |read: bpf_insn| {
        of(
            Tc,
            &[load(8, 1, 6, 168), call_helper(SKC_TO_TCP_SOCK), read],
        )
    };
    assert_eq!(socket(load(8, 3, 0, 64)), [Act::ReadsKernel]);
    assert_eq!(socket(raw(0xdb, 0, 3, 0, 0)), [Act::ReadsKernel]);
    assert_eq!(socket(jump_eq(0, 0, 0)), []);
}

#[test]
fn an_address_is_not_stored() {
    for pointer in [6, 7, 8, 9, 10] {
        refused(&[store(8, 9, 0, pointer)], &Act::StoresAddress);
        refused(&[store(4, 9, 0, pointer)], &Act::StoresAddress);
        // Atomic exchange, and atomic addition with or without the old value.
        for operation in [0xe1, 0x00, 0x01] {
            refused(
                &[mov(3, pointer), raw(0xdb, 9, 3, 0, operation)],
                &Act::StoresAddress,
            );
        }
        // The values come from the pointer: shifted, masked, mixed, or reduced to 32 bits.
        for made in [
            raw(0x77, 3, 0, 0, 1),
            raw(0x57, 3, 0, 0, 0xff),
            raw(0xa7, 3, 0, 0, 5),
            raw(0x67, 3, 0, 0, 3),
        ] {
            refused(
                &[mov(3, pointer), made, store(8, 9, 0, 3)],
                &Act::StoresAddress,
            );
        }
        refused(
            &[compute(0xb4, 3, pointer), store(8, 9, 0, 3)],
            &Act::StoresAddress,
        );
        refused(
            &[
                mov(3, pointer),
                raw(0x87, 3, 0, 0, 0),
                add_imm(3, 1),
                store(2, 9, 0, 3),
            ],
            &Act::StoresAddress,
        );
        refused(
            &[mov_imm(3, 1), compute(0xa7, 3, pointer), store(1, 9, 0, 3)],
            &Act::StoresAddress,
        );
        // A part of a slot, and a slot that the program has overwritten in part.
        for (size, offset) in [(1, -9), (2, -14), (4, -16), (4, -12), (8, -20)] {
            let parts = [
                store_number(8, 10, -24, 0),
                store(8, 10, -16, pointer),
                load(size, 3, 10, offset),
            ];
            refused(
                &[&parts[..], &[store(8, 9, 0, 3)]].concat(),
                &Act::StoresAddress,
            );
        }
        let half = |offset| {
            [
                store(8, 10, -16, pointer),
                store_number(4, 10, -16, 0),
                load(4, 3, 10, offset),
                store(4, 9, 0, 3),
            ]
        };
        refused(&half(-12), &Act::StoresAddress);
        admitted(&half(-16));
        refused(
            &[
                store(4, 10, -16, pointer),
                load(8, 3, 10, -16),
                store(8, 9, 0, 3),
            ],
            &Act::StoresAddress,
        );
    }
    let [first, second] = load_map(3, 1);
    refused(&[first, second, store(8, 9, 0, 3)], &Act::StoresAddress);
    let [first, second] = load_function(3, 0);
    refused(&[first, second, store(8, 9, 0, 3)], &Act::StoresAddress);
    // The number chooses the counter within a value.
    let index = [
        mov(3, 6),
        raw(0x57, 3, 0, 0, 8),
        mov(4, 9),
        compute(0x07, 4, 3),
    ];
    refused(
        &[&index[..], &[store_number(8, 4, 0, 1)]].concat(),
        &Act::StoresAddress,
    );
    refused(
        &[&index[..], &[mov_imm(3, 1), raw(0xdb, 4, 3, 0, 0)]].concat(),
        &Act::StoresAddress,
    );
    // The first number is the distance between two different objects; the second is a length, to
    // which an address was added.
    refused(
        &[mov(3, 7), subtract(3, 9), store(8, 9, 0, 3)],
        &Act::StoresAddress,
    );
    let moved = [
        mov(3, 9),
        raw(0x57, 3, 0, 0, 7),
        mov(4, 7),
        compute(0x07, 4, 3),
        subtract(4, 7),
    ];
    refused(
        &[&moved[..], &[store(8, 9, 0, 4)]].concat(),
        &Act::StoresAddress,
    );
}

#[test]
fn a_length_is_stored() {
    admitted(&[mov(3, 8), subtract(3, 7), store(8, 9, 0, 3)]);
    // The program uses 32 bits, as a source that subtracts fields of the context does.
    admitted(&[mov(3, 8), compute(0x14, 3, 7), store(8, 9, 0, 3)]);
    admitted(&[
        compute(0xb4, 3, 8),
        compute(0xb4, 4, 7),
        compute(0x14, 3, 4),
        store(4, 9, 0, 3),
    ]);
    admitted(&[
        compute(0xb4, 3, 8),
        raw(0x04, 3, 0, 0, -14),
        compute(0x14, 3, 7),
        store(4, 9, 0, 3),
    ]);
    refused(
        &[
            compute(0xb4, 3, 8),
            raw(0x04, 3, 0, 0, -14),
            store(4, 9, 0, 3),
        ],
        &Act::StoresAddress,
    );
    refused(
        &[mov_imm(3, 14), compute(0x14, 3, 7), store(4, 9, 0, 3)],
        &Act::StoresAddress,
    );
    admitted(&[
        store(8, 10, -16, 8),
        load(8, 3, 10, -16),
        subtract(3, 7),
        store(8, 10, -16, 3),
        load(4, 4, 10, -16),
        store(4, 9, 8, 4),
    ]);
    // A value that is read through a pointer is a number.
    admitted(&[
        load(8, 3, 7, 0),
        store(8, 9, 0, 3),
        load(8, 3, 9, 8),
        store(8, 9, 0, 3),
        load(4, 3, 6, 12),
    ]);
}

/// Compilers keep a number as a pointer to the packet: the number was added to the packet's start.
#[test]
fn a_number_by_way_of_a_pointer_is_a_number() {
    let by_way = |one: u8, other: u8| {
        // The start of the packet is compared with 0 again: it stays a pointer on both ways.
        let number = [
            load(4, 3, 7, 0),
            jump_eq(7, 0, 1),
            raw(0x57, 3, 0, 0, 0xff),
            compute(0x07, 3, one),
        ];
        [
            &number[..],
            &[
                subtract(3, other),
                raw(0x67, 3, 0, 0, 32),
                store(8, 9, 0, 3),
            ],
        ]
        .concat()
    };
    admitted(&by_way(7, 7));
    admitted(&by_way(8, 7));
    // The differences are those of different objects: the context, the packet, the values of a map,
    // and the stack.
    for (one, other) in [
        (7, 6),
        (6, 7),
        (7, 9),
        (9, 7),
        (9, 9),
        (7, 10),
        (10, 8),
        (6, 9),
        (9, 6),
        (10, 6),
        (9, 10),
    ] {
        refused(&by_way(one, other), &Act::StoresAddress);
    }
    // A pointer minus a number is still a pointer.
    refused(
        &[mov(3, 7), add_imm(3, -64), store(8, 9, 0, 3)],
        &Act::StoresAddress,
    );
    refused(
        &[
            load(4, 4, 7, 0),
            mov(3, 7),
            subtract(3, 4),
            store(8, 9, 0, 3),
        ],
        &Act::StoresAddress,
    );
}

#[test]
fn the_distance_between_two_places_of_a_packet_is_an_address() {
    let pull = [mov(1, 6), mov_imm(2, 0), call_helper(SKB_PULL_DATA)];
    let stored = |pulls: &[bpf_insn], less: bpf_insn| {
        let end = [less, store(8, 9, 0, 3), mov_imm(0, 0), exit()];
        let function = [&pull[..], &[mov_imm(0, 0), exit()]].concat();
        of(Tc, &[pulls, &end, &function].concat())
    };
    let again = |to: u8| load(4, to, 6, 76);
    for less in [subtract(3, 4), compute(0x14, 3, 4)] {
        // The call makes R3 to R5 unusable.
        let kept = [store(8, 10, -16, 8), store(8, 10, -24, 7)];
        let back = [load(8, 3, 10, -16), load(8, 4, 10, -24)];
        assert_eq!(stored(&[&kept[..], &pull, &back].concat(), less), []);
        assert_eq!(stored(&[&kept[..], &pull, &pull, &back].concat(), less), []);
        // One pointer is from before the move of the packet and one from after it, also if a called
        // function moves the packet.
        for pull in [&pull[..], &[mov(1, 6), call_subprogram(6)]] {
            let mixed = [&kept[..], pull, &[load(8, 3, 10, -16), again(4)]].concat();
            assert_eq!(stored(&mixed, less), [Act::StoresAddress]);
            let mixed = [&kept[..], pull, &[mov(4, 8), again(3)]].concat();
            assert_eq!(stored(&mixed, less), [Act::StoresAddress]);
        }
        // Two pointers are from before different moves of the packet.
        let two = [&pull[..], &[again(4), store(8, 10, -24, 4)], &pull, &back].concat();
        assert_eq!(
            stored(&[&kept[..1], &two].concat(), less),
            [Act::StoresAddress]
        );
    }
    // A call in a loop makes pointers stale again that the same call has made stale in an earlier
    // round.
    let around = [
        &pull[..],
        &[
            load(8, 3, 10, -24),
            store(8, 10, -32, 3),
            load(8, 3, 10, -16),
            store(8, 10, -24, 3),
        ],
        &[
            again(3),
            store(8, 10, -16, 3),
            jump_eq(0, 0, -10),
            load(8, 3, 10, -24),
            load(8, 4, 10, -32),
        ],
    ];
    let start = [
        store(8, 10, -16, 7),
        store(8, 10, -24, 7),
        store(8, 10, -32, 7),
    ];
    assert_eq!(
        stored(&[&start[..], &around.concat()].concat(), subtract(3, 4)),
        [Act::StoresAddress]
    );
    assert_eq!(
        stored(
            &[&pull[..], &[mov(3, 7)]].concat(),
            raw(0x57, 3, 0, 0, 0xff)
        ),
        [Act::StoresAddress]
    );
}

#[test]
fn an_address_is_not_shown() {
    let update = |first: &[bpf_insn]| {
        let arguments = [
            mov(2, 10),
            add_imm(2, -8),
            mov(3, 10),
            add_imm(3, -24),
            mov_imm(4, 0),
        ];
        let slots = [store_number(8, 10, -24, 0), store_number(8, 10, -16, 0)];
        [
            &slots[..],
            first,
            &load_map(1, 1),
            &arguments,
            &[call_helper(UPDATE)],
        ]
        .concat()
    };
    let shows = |name: &str| Act::ShowsAddress(name.into());
    admitted(&update(&[]));
    // The write is outside of the key and the value.
    admitted(&update(&[store(8, 10, -32, 7)]));
    for (slot, register) in [(-8, 7), (-24, 6), (-16, 9), (-16, 10)] {
        refused(
            &update(&[store(8, 10, slot, register)]),
            &shows("bpf_map_update_elem"),
        );
        refused(
            &update(&[store(4, 10, slot + 4, register)]),
            &shows("bpf_map_update_elem"),
        );
        admitted(&update(&[
            store(8, 10, slot, register),
            store_number(8, 10, slot, 0),
        ]));
    }
    let event = |size: bpf_insn| {
        let arguments = [mov(1, 6), mov_imm(3, 0), mov(4, 10), add_imm(4, -24), size];
        let slots = [store(8, 10, -16, 7), store_number(8, 10, -24, 0)];
        [
            &slots[..],
            &load_map(2, 0),
            &arguments,
            &[call_helper(PERF_EVENT_OUTPUT)],
        ]
        .concat()
    };
    admitted(&event(mov_imm(5, 8)));
    refused(&event(mov_imm(5, 9)), &shows("bpf_perf_event_output"));
    refused(&event(load(4, 5, 7, 0)), &shows("bpf_perf_event_output"));
    let print = |value: bpf_insn| [mov(1, 9), mov_imm(2, 8), value, call_helper(PRINTK)];
    admitted(&print(load(4, 3, 7, 0)));
    refused(&print(mov(3, 7)), &shows("bpf_trace_printk"));
    // A distance in a register works like a distance in the instruction.
    let moved = [mov(5, 10), mov_imm(4, -16), add(5, 4), store(8, 5, 0, 7)];
    admitted(&update(&[&moved[..], &[store_number(8, 5, 0, 0)]].concat()));
    refused(&update(&moved), &shows("bpf_map_update_elem"));
    let doubled = [
        &[mov_imm(4, 1)][..],
        &[add(4, 4); 63],
        &[mov(5, 10), subtract(5, 4)],
    ]
    .concat();
    admitted(&doubled);
    // A dynptr contains an address, even when it is no longer valid.
    let dynptr = [
        mov(1, 9),
        mov_imm(2, 8),
        mov_imm(3, 0),
        mov(4, 10),
        add_imm(4, -40),
        call_helper(DYNPTR_FROM_MEM),
        load(8, 3, 10, -32),
        store(8, 9, 0, 3),
    ];
    refused(&dynptr, &Act::StoresAddress);
    refused(&[mov(0, 7), exit()], &Act::ReturnsAddress);
}

#[test]
fn slots_are_cleared_that_may_be_read_before_they_are_written() {
    let unwritten = |kind, body: &[bpf_insn]| {
        let all = [body, &[mov_imm(0, 0), exit()]].concat();
        let found = conduct(&all, kind, &maps());
        assert_eq!(found.acts, BTreeMap::new());
        found.unwritten
    };
    let slots = |offsets: &[i32]| {
        let all = offsets
            .iter()
            .fold(0, |all, offset| all | 1_u64 << ((512 + offset) / 8));
        if all == 0 {
            BTreeMap::new()
        } else {
            BTreeMap::from([(0, all)])
        }
    };
    for (size, offset, expected) in [
        (8, -16, &[-16][..]),
        (4, -12, &[-16]),
        (1, -9, &[-16]),
        (8, -512, &[-512]),
        (8, -12, &[-16, -8]),
    ] {
        assert_eq!(
            unwritten(Xdp, &[load(size, 3, 10, offset)]),
            slots(expected)
        );
    }
    // The program has written a part of the slot.
    let part = store_number(4, 10, -16, 0);
    assert_eq!(unwritten(Xdp, &[part, load(8, 3, 10, -16)]), slots(&[-16]));
    assert_eq!(unwritten(Xdp, &[part, load(4, 3, 10, -16)]), slots(&[]));
    // The program has written one of the two possible slots.
    let either = [
        mov(3, 10),
        mov_imm(4, 0),
        jump_eq(4, 0, 1),
        add_imm(3, -8),
        store_number(8, 3, -8, 0),
    ];
    assert_eq!(
        unwritten(Xdp, &[&either[..], &[load(8, 3, 10, -16)]].concat()),
        slots(&[-16])
    );
    let both = [store_number(8, 10, -16, 0), store_number(8, 10, -8, 0)];
    assert_eq!(
        unwritten(Xdp, &[&both[..], &either, &[load(8, 3, 10, -16)]].concat()),
        slots(&[])
    );
    // If the kernel has no bytes to copy, it writes zeros at TC, and nothing at XDP.
    for (kind, helper, expected) in [
        (Tc, SKB_LOAD_BYTES, &[][..]),
        (Xdp, XDP_LOAD_BYTES, &[-24, -16]),
    ] {
        let call = [
            mov_imm(2, 0),
            mov(3, 10),
            add_imm(3, -24),
            mov_imm(4, 16),
            call_helper(helper),
        ];
        let reads = [load(8, 3, 10, -24), load(8, 3, 10, -16)];
        assert_eq!(
            unwritten(kind, &[&call[..], &reads].concat()),
            slots(expected)
        );
    }
    // The key and the value of an entry, in a called function.
    let entry = [
        mov(2, 10),
        add_imm(2, -8),
        mov(3, 10),
        add_imm(3, -32),
        mov_imm(4, 0),
        call_helper(UPDATE),
    ];
    let function = [&load_map(1, 1)[..], &entry, &[mov_imm(0, 0), exit()]].concat();
    let call = [&[call_subprogram(2), mov_imm(0, 0), exit()][..], &function].concat();
    let of_function = slots(&[-8, -32, -24]).remove(&0).unwrap();
    assert_eq!(unwritten(Xdp, &call), BTreeMap::from([(3, of_function)]));
}

#[test]
fn what_may_be_a_pointer_is_compared() {
    admitted(&[
        raw(0x2d, 7, 8, 0, 0),
        raw(0x15, 9, 0, 0, 0),
        raw(0x55, 7, 0, 0, 0),
    ]);
    admitted(&[load(4, 3, 7, 0), raw(0x25, 3, 0, 0, 1000)]);
    // The analysis does not know which part of the program wrote to the slot last.
    let slot = [
        jump_eq(3, 0, 1),
        store(8, 10, -16, 7),
        load(8, 4, 10, -16),
        raw(0x25, 4, 0, 0, 1000),
    ];
    admitted(&[&[load(4, 3, 7, 0), store(8, 10, -16, 3)][..], &slot].concat());
}

#[test]
fn no_entries_are_added_to_a_map_that_is_walked_through() {
    let walk = |walked: &[bpf_insn], changed: &[bpf_insn], helper: i32| {
        let start = [walked, &[mov(6, 1)], &load_function(2, 6)].concat();
        let call = [
            mov_imm(3, 0),
            mov_imm(4, 0),
            call_helper(FOR_EACH),
            mov_imm(0, 0),
            exit(),
        ];
        let change = [
            mov(2, 10),
            add_imm(2, -8),
            mov(3, 10),
            add_imm(3, -16),
            mov_imm(4, 0),
            call_helper(helper),
        ];
        let slots = [store_number(8, 10, -8, 0), store_number(8, 10, -16, 0)];
        let callback = [&slots[..], changed, &change].concat();
        of(Xdp, &[&start[..], &call, &callback].concat())
    };
    let inner = [
        &load_map(1, 2)[..],
        &[mov(2, 10), add_imm(2, -8), call_helper(LOOKUP), mov(1, 0)],
    ]
    .concat();
    let adds = [Act::AddsToWalk("bpf_map_update_elem".into())];
    assert_eq!(walk(&load_map(1, 1), &load_map(1, 1), UPDATE), adds);
    // The map of the called function, and a map that may be the same map.
    assert_eq!(walk(&load_map(1, 1), &[], UPDATE), adds);
    assert_eq!(walk(&load_map(1, 3), &inner, UPDATE), adds);
    assert_eq!(walk(&inner, &load_map(1, 3), UPDATE), adds);
    assert_eq!(walk(&inner, &inner, UPDATE), adds);
    // Other maps, maps that do not grow, and other changes than additions.
    assert_eq!(walk(&load_map(1, 1), &load_map(1, 3), UPDATE), []);
    assert_eq!(walk(&load_map(1, 1), &inner, UPDATE), []);
    assert_eq!(walk(&load_map(1, 0), &load_map(1, 0), UPDATE), []);
    assert_eq!(walk(&load_map(1, 1), &load_map(1, 1), 3), []);
}

#[test]
fn a_timer_starts_no_timer() {
    let timer = |callback: bpf_insn| {
        let start = [
            &[mov(1, 9)][..],
            &load_function(2, 8),
            &[call_helper(TIMER_SET_CALLBACK)],
        ]
        .concat();
        let begin = [
            mov(1, 9),
            mov_imm(2, 0),
            mov_imm(3, 0),
            call_helper(TIMER_START),
            mov_imm(0, 0),
            exit(),
        ];
        let body = [
            &start[..],
            &begin,
            &[mov(1, 3), mov_imm(2, 0), mov_imm(3, 0), callback],
        ]
        .concat();
        of(Xdp, &body).contains(&Act::StartsAgain)
    };
    assert!(timer(call_helper(TIMER_START)));
    assert!(!timer(mov_imm(0, 0)));
}
