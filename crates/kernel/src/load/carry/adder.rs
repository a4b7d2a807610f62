//! Addition to the values of a map that programs write to at the same time. Only a program can add
//! without losing the additions of others, so a small program is generated for the map and run once
//! for each entry.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::sys::asm;
use crate::sys::prog::{self, ProgLoad};

/// The limits of a packet for `BPF_PROG_TEST_RUN` of an XDP program, in bytes: a link header, and
/// less than a page.
const LEAST: usize = 14;
const MOST: usize = 3000;

/// Adds numbers to the counters of an entry.
#[derive(Debug)]
pub struct Adder {
    program: OwnedFd,
    key_size: usize,
    counters: usize,
}

impl Adder {
    /// Generates and loads the program. `atomic` is false on a machine that has no atomic
    /// operations on the values: numbers that others add at the same moment may then be lost.
    /// `counters` are the offset and the size (4 or 8 bytes) of each number in a value. Fails if
    /// key and counters do not fit into a packet.
    pub fn new(
        map: BorrowedFd<'_>,
        key_size: usize,
        counters: &[(usize, usize)],
        atomic: bool,
    ) -> io::Result<Self> {
        let size = packet_size(key_size, counters.len());
        let fits = size <= MOST
            && counters
                .iter()
                .all(|(offset, _)| i16::try_from(*offset).is_ok());
        if !fits {
            return Err(io::Error::other("values of this size can't be added to"));
        }
        let instructions = program(map, key_size, counters, atomic);
        let program = prog::prog_load(
            &ProgLoad::new("tp_adder", ProgramKind::Xdp, &instructions),
            None,
        )?;
        Ok(Self {
            program,
            key_size,
            counters: counters.len(),
        })
    }

    /// Adds `numbers` to the entry at `key`, on this CPU for PERCPU maps. Returns false if there is
    /// no such entry.
    pub fn add(&self, key: &[u8], numbers: &[u64]) -> io::Result<bool> {
        let mut packet = key.to_vec();
        packet.resize(start(self.key_size), 0);
        packet.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        packet.resize(packet_size(self.key_size, self.counters), 0);
        Ok(prog::prog_test_run(self.program.as_fd(), &packet, &mut [], &mut [])?.result == FOUND)
    }
}

/// The program's results: `XDP_PASS` if the entry exists, else `XDP_DROP`.
const FOUND: u32 = 2;
const MISSING: i32 = 1;

/// The offset of the numbers in a packet, after the key.
const fn start(key_size: usize) -> usize {
    key_size.next_multiple_of(8)
}

fn packet_size(key_size: usize, counters: usize) -> usize {
    (start(key_size) + 8 * counters).max(LEAST)
}

fn program(
    map: BorrowedFd<'_>,
    key_size: usize,
    counters: &[(usize, usize)],
    atomic: bool,
) -> Vec<bpf_insn> {
    // R6 is the start of the packet, which holds a key and a number for each counter; R7 is its
    // end.
    let mut program = vec![
        asm::load_u32(6, 1, 0),
        asm::load_u32(7, 1, 4),
        asm::mov(2, 6),
        asm::add_imm(2, packet_size(key_size, counters.len()) as i32),
    ];
    let too_short = program.len();
    program.push(asm::jump(0));
    program.extend(asm::load_map(1, map));
    program.extend([asm::mov(2, 6), asm::call_helper(asm::HELPER_MAP_LOOKUP)]);
    let missing = program.len();
    program.push(asm::jump(0));
    for (index, (offset, size)) in counters.iter().enumerate() {
        program.push(asm::load_u64(1, 6, (start(key_size) + 8 * index) as i16));
        let offset = *offset as i16;
        program.extend(match (size, atomic) {
            (8, true) => vec![asm::atomic_add_u64(0, offset, 1)],
            (_, true) => vec![asm::atomic_add_u32(0, offset, 1)],
            (8, false) => {
                vec![
                    asm::load_u64(2, 0, offset),
                    asm::add(2, 1),
                    asm::store_u64(0, offset, 2),
                ]
            }
            (_, false) => {
                vec![
                    asm::load_u32(2, 0, offset),
                    asm::add(2, 1),
                    asm::store_u32(0, offset, 2),
                ]
            }
        });
    }
    program.extend([asm::mov_imm(0, FOUND as i32), asm::exit()]);
    let end = program.len();
    program.extend([asm::mov_imm(0, MISSING), asm::exit()]);
    program[too_short] = asm::jump_gt(2, 7, (end - too_short - 1) as i16);
    program[missing] = asm::jump_eq(0, 0, (end - missing - 1) as i16);
    program
}
