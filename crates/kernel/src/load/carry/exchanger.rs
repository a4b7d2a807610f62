//! The exchange of a field in a value that programs write to at the same time. The program writes a
//! field only if the field still has the value from which the new one was computed; its neighbours
//! stay unchanged. Only a program can do that, so the daemon generates a small one for the map.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::field::leaf::Leaf;
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::sys::asm;
use crate::sys::prog::{self, ProgLoad};

/// The sizes of words that may contain a field, in bytes. Only words of more than one byte are
/// exchanged atomically.
const WORDS: [usize; 3] = [8, 4, 1];
/// The number of attempts if neighbouring bytes change.
const TRIES: usize = 16;

/// Exchanges fields of the entries of one map.
#[derive(Debug)]
pub struct Exchanger<'a> {
    map: BorrowedFd<'a>,
    key_size: usize,
    value_size: usize,
    atomic: bool,
    /// The program for each of [`WORDS`], once it was needed; the inner `None` means that the
    /// kernel has refused it.
    programs: [Option<Option<OwnedFd>>; WORDS.len()],
}

/// The outcome of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    Done,
    /// The field has changed since it was read.
    Changed,
    /// The field can't be exchanged, or its entry was deleted.
    Impossible,
}

impl<'a> Exchanger<'a> {
    /// Makes the exchanger. `atomic` is false if the machine has no atomic operations on the
    /// values.
    pub fn new(map: BorrowedFd<'a>, key_size: usize, value_size: usize, atomic: bool) -> Self {
        Self {
            map,
            key_size,
            value_size,
            atomic,
            programs: Default::default(),
        }
    }

    /// Writes `new` in place of the present number of a leaf in the entry at `key`, on this CPU for
    /// PERCPU maps. `value` is the value from which `new` was computed, and `base` the offset of
    /// the leaf's array element.
    pub fn exchange<T>(
        &mut self,
        key: &[u8],
        value: &[u8],
        (leaf, base): (&Leaf<T>, usize),
        new: u128,
    ) -> io::Result<Exchange> {
        let mut changed = value.to_vec();
        leaf.store(&mut changed, base, new);
        let start = base + leaf.offset;
        let end = start + leaf.size;
        let holds = |word: &usize| {
            let from = start / word * word;
            end <= from + word && from + word <= self.value_size
        };
        let place = WORDS.iter().position(holds).unwrap_or(WORDS.len() - 1);
        let word = WORDS[place];
        let bits = leaf.covered(base, value.len());
        for at in (start / word * word..end).step_by(word) {
            let part = |bytes: &[u8]| number(&bytes[at..at + word]);
            let (mask, before, after) = (part(&bits), part(value), part(&changed));
            if (before ^ after) & mask == 0 {
                continue;
            }
            let numbers = [at as u64, mask, before & mask, after & mask];
            match self.run(place, key, numbers)? {
                Exchange::Done => {}
                other => return Ok(other),
            }
        }
        Ok(Exchange::Done)
    }

    fn run(&mut self, place: usize, key: &[u8], numbers: [u64; 4]) -> io::Result<Exchange> {
        let (map, key_size, value_size) = (self.map, self.key_size, self.value_size);
        let word = WORDS[place];
        let load = |atomic: bool| {
            let instructions = program(map, key_size, value_size, word, atomic);
            prog::prog_load(
                &ProgLoad::new("tp_exchanger", ProgramKind::Xdp, &instructions),
                None,
            )
        };
        let is_atomic = self.atomic && word > 1;
        let loaded = self.programs[place].get_or_insert_with(|| {
            let atomic = is_atomic.then(|| load(true).ok()).flatten();
            // Kernels before 5.12 have no atomic exchange.
            atomic.or_else(|| load(false).ok())
        });
        let Some(loaded) = loaded else {
            return Ok(Exchange::Impossible);
        };
        let mut packet = key.to_vec();
        packet.resize(start(key_size), 0);
        packet.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        Ok(
            match prog::prog_test_run(loaded.as_fd(), &packet, &mut [], &mut [])?.result {
                DONE => Exchange::Done,
                CHANGED => Exchange::Changed,
                _ => Exchange::Impossible,
            },
        )
    }
}

/// The program's results.
const DONE: u32 = 2;
const CHANGED: u32 = 3;
const MISSING: u32 = 1;

/// The offset of the numbers in a packet, after the key.
const fn start(key_size: usize) -> usize {
    key_size.next_multiple_of(8)
}

fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(wide)
}

fn program(
    map: BorrowedFd<'_>,
    key_size: usize,
    value_size: usize,
    word: usize,
    atomic: bool,
) -> Vec<bpf_insn> {
    let (mut program, [too_short, missing, beyond]) = beginning(map, key_size, word);
    let (mut done, mut changed) = (Vec::new(), Vec::new());
    for _ in 0..if atomic { TRIES } else { 1 } {
        program.extend([
            asm::load_width(word, 0, 9, 0),
            asm::mov(8, 0),
            asm::mov(4, 0),
            asm::and(4, 1),
        ]);
        changed.push(program.len());
        program.push(asm::jump(0));
        program.extend([
            asm::mov(5, 1),
            asm::xor_imm(5, -1),
            asm::and(5, 0),
            asm::or(5, 3),
        ]);
        if atomic {
            program.push(asm::atomic_exchange(word, 9, 0, 5));
            done.push(program.len());
            program.push(asm::jump(0));
        } else {
            program.push(asm::store_width(word, 9, 0, 5));
        }
    }
    // After the last attempt the result is that the field has changed. Without atomic operations
    // the result is success, because the word was written.
    let in_vain = program.len();
    program.push(asm::jump(0));
    let end = |program: &mut Vec<bpf_insn>, result: u32| {
        program.extend([asm::mov_imm(0, result as i32), asm::exit()]);
        program.len() - 2
    };
    let ends = [DONE, CHANGED, MISSING].map(|result| end(&mut program, result));
    let to = |from: usize, to: usize| (to - from - 1) as i16;
    done.into_iter()
        .for_each(|at| program[at] = asm::jump_same(0, 8, to(at, ends[0])));
    changed
        .into_iter()
        .for_each(|at| program[at] = asm::jump_other(4, 2, to(at, ends[1])));
    program[in_vain] = asm::jump(to(in_vain, ends[usize::from(atomic)]));
    program[too_short] = asm::jump_gt(2, 7, to(too_short, ends[2]));
    program[missing] = asm::jump_eq(0, 0, to(missing, ends[2]));
    program[beyond] = asm::jump_gt_imm(8, (value_size - word) as i32, to(beyond, ends[2]));
    program
}

/// Returns the first part of the program, which finds the word. Returns as well the places of the
/// jumps that the program takes if the packet is too short, if the entry is missing, and if the
/// word is beyond the value.
fn beginning(map: BorrowedFd<'_>, key_size: usize, word: usize) -> (Vec<bpf_insn>, [usize; 3]) {
    let number = |index: usize| (start(key_size) + 8 * index) as i16;
    // R6 is the start of the packet, which holds a key and four numbers: the offset of the word,
    // the mask of the field's bits in the word, their expected value, and their new value.
    let mut program = vec![
        asm::load_u32(6, 1, 0),
        asm::load_u32(7, 1, 4),
        asm::mov(2, 6),
        asm::add_imm(2, i32::from(number(4))),
    ];
    let too_short = program.len();
    program.push(asm::jump(0));
    program.extend(asm::load_map(1, map));
    program.extend([asm::mov(2, 6), asm::call_helper(asm::HELPER_MAP_LOOKUP)]);
    let missing = program.len();
    program.push(asm::jump(0));
    // R9 is the word, R1 the bits, R2 and R3 are the expected and the new bits.
    program.extend([
        asm::load_u64(8, 6, number(0)),
        asm::and_imm(8, -(word as i32)),
    ]);
    let beyond = program.len();
    program.extend([asm::jump(0), asm::mov(9, 0), asm::add(9, 8)]);
    program.extend((1..4).map(|index| asm::load_u64(index, 6, number(usize::from(index)))));
    (program, [too_short, missing, beyond])
}
