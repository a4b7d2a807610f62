//! The work of single instructions. An instruction that takes a nanosecond or less has work 1.

use aya_obj::generated::bpf_func_id as Id;

use crate::admit::helpers::{self, Bytes};
use crate::admit::instruction::Instruction;
use crate::admit::maps::MapFacts;
use crate::admit::work::registers::{RegisterFacts, Registers};

/// The work of a call of a helper function: a lookup in a large map, and functions that print, copy
/// to a ring or look into tables of the kernel.
pub const HELPER: u64 = 48;
const HEAVY: u64 = 1024;
const HEAVY_HELPERS: [Id; 10] = [
    Id::BPF_FUNC_trace_printk,
    Id::BPF_FUNC_trace_vprintk,
    Id::BPF_FUNC_perf_event_output,
    Id::BPF_FUNC_fib_lookup,
    Id::BPF_FUNC_sk_lookup_tcp,
    Id::BPF_FUNC_sk_lookup_udp,
    Id::BPF_FUNC_skc_lookup_tcp,
    Id::BPF_FUNC_skb_pull_data,
    Id::BPF_FUNC_clone_redirect,
    Id::BPF_FUNC_timer_start,
];
/// The number of bytes that a copy, a comparison or a checksum processes in one unit of work.
const BYTES: u64 = 8;
/// The longest packet, in bytes.
const PACKET: u64 = 1 << 16;

/// Returns the work of an instruction, without the work of the functions of the program that it
/// calls.
pub fn weight(instruction: Instruction, registers: &Registers, maps: &[MapFacts]) -> u64 {
    let Instruction::CallHelper(number) = instruction else {
        return 1;
    };
    let is_heavy = HEAVY_HELPERS.iter().any(|id| *id as u32 == number);
    let largest =
        |size: fn(&MapFacts) -> u32| u64::from(maps.iter().map(size).max().unwrap_or(u32::MAX));
    let of_map = |size: fn(&MapFacts) -> u32| match registers[1] {
        RegisterFacts::Map(map) => maps
            .get(map)
            .map_or_else(|| largest(size), |facts| u64::from(size(facts))),
        _ => largest(size),
    };
    let sizes = helpers::sizes(number).map(|bytes| match bytes {
        Bytes::Key => of_map(|facts| facts.key),
        Bytes::Value => of_map(|facts| facts.value),
        Bytes::Exactly(size) => u64::from(size),
        Bytes::Argument(argument) => {
            // The size is unknown, but the verifier accepts no access beyond the memory, which is a
            // value of a map or the packet.
            let most = largest(|facts| facts.value).max(PACKET);
            if let RegisterFacts::Most(size) = registers[argument] {
                size.min(most)
            } else {
                most
            }
        }
    });
    let bytes = sizes.fold(0, u64::saturating_add);
    bytes / BYTES + if is_heavy { HEAVY } else { HELPER }
}
