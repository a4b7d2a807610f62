//! Dynptrs of packets: a value that is read through a dynptr is not an address, but the dynptr
//! itself contains an address.

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::ProgramKind::Tc;

use crate::admit::flow::act::Act;
use crate::admit::flow::conduct;
use crate::admit::functions::FUNCTIONS;
use crate::admit::maps::MapFacts;
use crate::admit::tests::code::{add, load, raw, store, store_number, subtract};
use crate::sys::asm::{add_imm, call_helper, exit, jump_eq, mov, mov_imm};

const LOOKUP: i32 = 1;
const SKB_PULL_DATA: i32 = 39;
const RINGBUF_RESERVE: i32 = 198;
const DYNPTR_READ: i32 = 201;
const DYNPTR_WRITE: i32 = 202;

fn call(name: &str) -> bpf_insn {
    let function = FUNCTIONS
        .into_iter()
        .find(|function| function.name == name)
        .unwrap();
    call_helper(function.number as i32)
}

/// Returns the acts of `body`, which begins with the context in R6, the value of a map in R9, and a
/// dynptr of the packet at -32 in the stack.
fn of(body: &[bpf_insn]) -> Vec<Act> {
    let find = [
        mov(6, 1),
        store_number(8, 10, -8, 0),
        raw(0x18, 1, 1, 0, 0),
        raw(0, 0, 0, 0, 0),
        mov(2, 10),
        add_imm(2, -8),
        call_helper(LOOKUP),
        jump_eq(0, 0, -1),
        mov(9, 0),
    ];
    let program = [&find[..], &make(), body, &[mov_imm(0, 0), exit()]].concat();
    let map = MapFacts {
        key: 8,
        value: 16,
        entries: 4,
        ..MapFacts::default()
    };
    conduct(&program, Tc, &[map]).acts.into_values().collect()
}

fn make() -> [bpf_insn; 5] {
    [
        mov(1, 6),
        mov_imm(2, 0),
        mov(3, 10),
        add_imm(3, -32),
        call("bpf_dynptr_from_skb"),
    ]
}

/// Returns a call after which R0 points to 8 bytes of the packet, or to the buffer at -48.
fn slice(name: &str) -> Vec<bpf_insn> {
    let arguments = [
        mov(1, 10),
        add_imm(1, -32),
        mov_imm(2, 14),
        mov(3, 10),
        add_imm(3, -48),
        mov_imm(4, 8),
        call(name),
    ];
    [&arguments[..], &[jump_eq(0, 0, -1)]].concat()
}

fn read() -> Vec<bpf_insn> {
    slice("bpf_dynptr_slice")
}

/// Leaves on the stack a dynptr of a record in a ring buffer.
fn reserve(at: i32) -> Vec<bpf_insn> {
    let map = [raw(0x18, 1, 1, 0, 0), raw(0, 0, 0, 0, 0)];
    let rest = [
        mov_imm(2, 8),
        mov_imm(3, 0),
        mov(4, 10),
        add_imm(4, at),
        call_helper(RINGBUF_RESERVE),
    ];
    [&map[..], &rest].concat()
}

/// Writes 8 bytes through the dynptr that R7 points to.
fn write() -> [bpf_insn; 7] {
    [
        mov(1, 7),
        mov_imm(2, 0),
        mov(3, 10),
        add_imm(3, -8),
        mov_imm(4, 8),
        mov_imm(5, 0),
        call_helper(DYNPTR_WRITE),
    ]
}

fn at(place: i32) -> [bpf_insn; 2] {
    [mov(7, 10), add_imm(7, place)]
}

fn written(name: &str) -> Act {
    Act::HasPacketWritten(name.into())
}

#[test]
fn bytes_of_the_packet_are_read_and_stored() {
    assert_eq!(
        of(&[&read()[..], &[load(8, 1, 0, 0), store(8, 9, 0, 1)]].concat()),
        []
    );
    // The program reads through a copy in a buffer, or without a buffer.
    let copy = [
        mov(1, 10),
        add_imm(1, -48),
        mov_imm(2, 8),
        mov(3, 10),
        add_imm(3, -32),
        mov_imm(4, 14),
        mov_imm(5, 0),
        call_helper(DYNPTR_READ),
        load(8, 1, 10, -48),
        store(8, 9, 0, 1),
    ];
    assert_eq!(of(&copy), []);
    let mut without = read();
    without[3] = mov_imm(3, 0);
    without.remove(4);
    assert_eq!(
        of(&[&without[..], &[load(8, 1, 0, 0), store(8, 9, 0, 1)]].concat()),
        []
    );
}

#[test]
fn nothing_is_written_through_a_slice() {
    assert_eq!(
        of(&[&read()[..], &[store_number(1, 0, 0, 7)]].concat()),
        [Act::WritesPacket]
    );
    let change = || Act::CallsChange("bpf_dynptr_slice_rdwr".into());
    assert_eq!(of(&slice("bpf_dynptr_slice_rdwr")), [change()]);
    let through = [
        &slice("bpf_dynptr_slice_rdwr")[..],
        &[store_number(1, 0, 0, 7)],
    ]
    .concat();
    assert_eq!(of(&through), [change(), Act::WritesPacket]);
    assert_eq!(
        of(&[&at(-32)[..], &write()].concat()),
        [written("bpf_dynptr_write")]
    );
    // The program passes the packet itself as the buffer.
    let into = [
        load(4, 3, 6, 76),
        mov(1, 10),
        add_imm(1, -32),
        mov_imm(2, 14),
        mov_imm(4, 8),
        call("bpf_dynptr_slice"),
    ];
    assert_eq!(of(&into), [written("bpf_dynptr_slice")]);
}

/// A program writes through other dynptrs beside one of the packet.
#[test]
fn a_dynptr_is_the_packets_only_where_it_was_made_of_it() {
    let refused = || [written("bpf_dynptr_write")];
    assert_eq!(of(&[&reserve(-64)[..], &at(-64), &write()].concat()), []);
    // The program makes a reserved dynptr in place of the packet's dynptr, and the packet's dynptr
    // in place of a reserved one.
    assert_eq!(of(&[&reserve(-32)[..], &at(-32), &write()].concat()), []);
    let again = [&reserve(-32)[..], &make(), &at(-32), &write()].concat();
    assert_eq!(of(&again), refused());
    // The new dynptr is beside the packet's dynptr, and does not overwrite it.
    assert_eq!(
        of(&[&reserve(-48)[..], &at(-32), &write()].concat()),
        refused()
    );
    // A branch chooses one of two pointers, or one of two dynptrs in the same place.
    let either = [
        &reserve(-64)[..],
        &at(-64),
        &[jump_eq(6, 0, 2)],
        &at(-32),
        &write(),
    ]
    .concat();
    assert_eq!(of(&either), refused());
    let one = reserve(-32);
    let same = [
        &[jump_eq(6, 0, one.len() as i16)],
        &one[..],
        &at(-32),
        &write(),
    ]
    .concat();
    assert_eq!(of(&same), refused());
    // A dynptr at an unknown place may be any dynptr.
    let unknown = [
        &reserve(-64)[..],
        &at(-64),
        &[load(8, 1, 9, 0), add(7, 1)],
        &write(),
    ]
    .concat();
    assert_eq!(of(&unknown), refused());
}

/// A write to the packet may move it: pointers into it are stale.
#[test]
fn a_pointer_to_the_packet_is_none_once_a_dynptr_of_it_was_written_to() {
    let kept = |place| {
        let pointer = [load(4, 8, 6, 76)];
        let stored = [load(4, 3, 6, 76), subtract(8, 3), store(8, 9, 0, 8)];
        [&reserve(-64)[..], &pointer, &at(place), &write(), &stored].concat()
    };
    assert_eq!(of(&kept(-64)), []);
    assert_eq!(
        of(&kept(-32)),
        [written("bpf_dynptr_write"), Act::StoresAddress]
    );
}

/// The kernel takes a slice for a number once the packet may have moved, or its dynptr was made
/// anew.
#[test]
fn a_slice_that_is_none_any_more_tells_an_address() {
    let kept =
        |between: &[bpf_insn]| [&read()[..], &[mov(7, 0)], between, &[store(8, 9, 0, 7)]].concat();
    let moved = [mov(1, 6), mov_imm(2, 0), call_helper(SKB_PULL_DATA)];
    for between in [&[][..], &moved, &make(), &[store_number(8, 10, -32, 0)]] {
        assert_eq!(of(&kept(between)), [Act::StoresAddress], "{between:?}");
    }
    // If the slice is the buffer, its distance from the packet is the distance between the stack
    // and the packet.
    let distance = [load(4, 8, 6, 76), subtract(7, 8)];
    assert_eq!(of(&kept(&distance)), [Act::StoresAddress]);
    // The slice reads the bytes that the program puts into the buffer.
    let buffer = [store(8, 10, -48, 6), load(8, 7, 0, 0)];
    let hidden = [&read()[..], &buffer, &[store(8, 9, 0, 7)]].concat();
    assert_eq!(of(&hidden), [Act::StoresAddress]);
    // The dynptr has an address in it.
    assert_eq!(
        of(&[load(8, 1, 10, -32), store(8, 9, 0, 1)]),
        [Act::StoresAddress]
    );
}
