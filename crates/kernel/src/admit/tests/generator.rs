//! Random programs that the kernel accepts more often than not, and that write wherever they can:
//! pointers to the packet, to the stack and to the value of a map pass through registers, slots,
//! subprograms, branches and loops, and each may end as the base of a store.

mod control;

use std::os::fd::BorrowedFd;

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::admit::tests::code::{add, jump_set, load, load_function, raw, store, store_number};
use crate::sys::asm::{
    add_imm, and_imm, call_helper, call_subprogram, exit, jump_eq, jump_gt, load_map, mov, mov_imm,
};

/// The bytes of the packet, the stack and the map's value that a pointer may lead to.
pub const AREA: i16 = 64;
/// The most bytes of one access.
const ACCESS: i16 = 8;

/// Random numbers (splitmix64). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())])
    }
}

/// The content of a register or slot, as far as the generator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Nothing,
    Number,
    /// A pointer at most this far into an area.
    Pointer(i16),
}

/// The slots for spills are below the area of the stack.
const SLOTS: usize = 6;
/// The registers that generated instructions use. R6 is the context, R0 to R2 are for calls.
const REGISTERS: [u8; 6] = [3, 4, 5, 7, 8, 9];

/// A program that grows.
pub struct Generator<'a> {
    random: &'a mut Random,
    map: BorrowedFd<'a>,
    kind: ProgramKind,
    code: Vec<bpf_insn>,
    registers: [Holds; 10],
    slots: [Holds; SLOTS],
    /// The calls of each subprogram: the places of the calls, and whether an instruction only takes
    /// the subprogram's address.
    calls: Vec<(usize, Subprogram, bool)>,
    /// The stores that are still to be made.
    stores: usize,
}

/// The functions that a program can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subprogram {
    /// Writes to R1 and reads R2.
    Copies,
    /// Writes to R2 and reads R1.
    CopiesBack,
    /// Puts R2 into the slot at R1.
    Puts,
    /// Exchanges the slots at R1 and R2.
    Swaps,
    /// Exchanges slots. `bpf_loop` calls this function, with the address of the first slot in R2.
    TurnsRound,
    /// Writes through a pointer. `bpf_loop` calls this function, with the address of the first slot
    /// in R2.
    WritesThrough,
}

const SUBPROGRAMS: [Subprogram; 6] = [
    Subprogram::Copies,
    Subprogram::CopiesBack,
    Subprogram::Puts,
    Subprogram::Swaps,
    Subprogram::TurnsRound,
    Subprogram::WritesThrough,
];

/// The offset of a slot from the end of the frame, in bytes.
const fn slot(index: usize) -> i16 {
    -AREA - 8 * (SLOTS - index) as i16
}

/// Makes a program. Returns its instructions, and where each of its functions begins.
pub fn program(
    random: &mut Random,
    map: BorrowedFd<'_>,
    kind: ProgramKind,
) -> (Vec<bpf_insn>, Vec<usize>) {
    let stores = 1 + random.below(3);
    let mut generator = Generator {
        random,
        map,
        kind,
        code: Vec::new(),
        registers: [Holds::Nothing; 10],
        slots: [Holds::Nothing; SLOTS],
        calls: Vec::new(),
        stores,
    };
    generator.begin();
    for _ in 0..4 + generator.random.below(24) {
        generator.step(0);
    }
    while generator.stores > 0 {
        generator.store();
    }
    let functions = generator.end();
    (generator.code, functions)
}

impl Generator<'_> {
    fn emit(&mut self, code: impl IntoIterator<Item = bpf_insn>) {
        self.code.extend(code);
    }

    /// Puts pointers to the packet, the value of the map and the stack into registers and slots.
    fn begin(&mut self) {
        let data = if self.kind.has_skb() { 76 } else { 0 };
        self.emit([
            mov(6, 1),
            store_number(4, 10, -4, 0),
            mov(2, 10),
            add_imm(2, -4),
        ]);
        self.emit(load_map(1, self.map));
        self.emit([
            call_helper(1),
            jump_eq(0, 0, 3),
            load(4, 7, 6, data),
            load(4, 2, 6, data + 4),
            // Jumps over the exit.
            raw(0x05, 0, 0, 2, 0),
            mov_imm(0, 0),
            exit(),
            mov(3, 7),
            add_imm(3, i32::from(AREA)),
            jump_gt(3, 2, -5),
            mov(9, 0),
            mov(8, 10),
            add_imm(8, -i32::from(AREA)),
            mov_imm(3, 5),
        ]);
        for register in [7, 8, 9] {
            self.registers[register] = Holds::Pointer(0);
        }
        self.registers[3] = Holds::Number;
        for index in 0..SLOTS {
            let from = 7 + self.random.below(3) as u8;
            self.emit([store(8, 10, slot(index), from)]);
            self.slots[index] = Holds::Pointer(0);
        }
    }

    /// Ends the program, and adds the functions that it calls. Returns where each function begins.
    fn end(&mut self) -> Vec<usize> {
        let mut functions = vec![0];
        self.emit([mov_imm(0, 0), exit()]);
        for subprogram in SUBPROGRAMS {
            let entry = self.code.len();
            let calls: Vec<_> = self
                .calls
                .iter()
                .filter(|(_, called, _)| *called == subprogram)
                .copied()
                .collect();
            for (at, _, is_address) in &calls {
                let distance = (entry - at - 1) as i32;
                match is_address {
                    true => self.code[*at] = load_function(2, distance)[0],
                    false => self.code[*at] = call_subprogram(distance),
                }
            }
            if calls.is_empty() {
                continue;
            }
            functions.push(entry);
            match subprogram {
                Subprogram::Copies => self.emit([load(8, 3, 2, 0), store(8, 1, 0, 3)]),
                Subprogram::CopiesBack => self.emit([load(8, 3, 1, 0), store(8, 2, 0, 3)]),
                Subprogram::Puts => self.emit([store(8, 1, 0, 2)]),
                Subprogram::Swaps => {
                    self.emit([
                        load(8, 3, 1, 0),
                        load(8, 4, 2, 0),
                        store(8, 1, 0, 4),
                        store(8, 2, 0, 3),
                    ]);
                }
                Subprogram::TurnsRound => self.emit([
                    load(8, 3, 2, 0),
                    load(8, 4, 2, 8),
                    store(8, 2, 0, 4),
                    load(8, 4, 2, 16),
                    store(8, 2, 8, 4),
                    store(8, 2, 16, 3),
                ]),
                Subprogram::WritesThrough => {
                    self.emit([load(8, 3, 2, 0), store_number(1, 3, 0, 0x5a)]);
                }
            }
            self.emit([mov_imm(0, 0), exit()]);
        }
        functions
    }

    fn holding(&self, what: impl Fn(Holds) -> bool) -> Vec<u8> {
        REGISTERS
            .into_iter()
            .filter(|register| what(self.registers[usize::from(*register)]))
            .collect()
    }

    fn pointer(&mut self) -> Option<(u8, i16)> {
        let registers = self.holding(|holds| matches!(holds, Holds::Pointer(_)));
        let register = self.random.pick(&registers)?;
        match self.registers[usize::from(register)] {
            Holds::Pointer(offset) => Some((register, offset)),
            _ => None,
        }
    }

    fn number(&mut self) -> u8 {
        let registers = self.holding(|holds| holds == Holds::Number);
        self.random.pick(&registers).unwrap_or_else(|| {
            let register = REGISTERS[self.random.below(3)];
            self.emit([mov_imm(register, 1)]);
            self.registers[usize::from(register)] = Holds::Number;
            register
        })
    }

    fn target(&mut self) -> u8 {
        REGISTERS[self.random.below(REGISTERS.len())]
    }

    fn set(&mut self, register: u8, holds: Holds) {
        self.registers[usize::from(register)] = holds;
    }

    /// Notes that a call has made R1 to R5 unusable.
    fn called(&mut self) {
        self.registers[..=5].fill(Holds::Nothing);
    }

    /// Writes through some pointer.
    fn store(&mut self) {
        self.stores = self.stores.saturating_sub(1);
        let Some((to, _)) = self.pointer() else {
            return self.fill();
        };
        let bytes = [1, 2, 4, 8][self.random.below(4)];
        let number = self.random.next() as i32;
        match self.random.below(6) {
            0 => {
                let from = self.number();
                self.emit([store(bytes, to, 0, from)]);
            }
            // An atomic addition, which the kernel does not allow to packets.
            1 => {
                let from = self.number();
                self.emit([raw(0xdb, to, from, 0, 0)]);
            }
            2 => self.write_by_helper(to),
            _ => self.emit([store_number(bytes, to, 0, number)]),
        }
    }

    /// Lets a helper function write to the packet or to a pointer.
    fn write_by_helper(&mut self, to: u8) {
        // bpf_xdp_load_bytes, bpf_skb_load_bytes; bpf_xdp_store_bytes, bpf_skb_store_bytes
        let (loads, stores) = if self.kind.has_skb() {
            (26, 9)
        } else {
            (189, 190)
        };
        let helper = if self.random.one_in(2) && !self.kind.has_skb() {
            stores
        } else {
            loads
        };
        self.emit([
            mov(3, to),
            mov(1, 6),
            mov_imm(2, 1),
            mov_imm(4, 4),
            mov_imm(5, 0),
            call_helper(helper),
        ]);
        self.called();
    }

    /// Takes a slot's content into a register.
    fn fill(&mut self) {
        let (to, index) = (self.target(), self.random.below(SLOTS));
        self.emit([load(8, to, 10, slot(index))]);
        self.set(to, self.slots[index]);
    }

    fn step(&mut self, depth: usize) {
        match self.random.below(16) {
            0 | 1 => {
                let registers = self.holding(|holds| holds != Holds::Nothing);
                if let Some(from) = self.random.pick(&registers) {
                    let to = self.target();
                    self.emit([mov(to, from)]);
                    self.set(to, self.registers[usize::from(from)]);
                }
            }
            2 | 3 => self.fill(),
            4 | 5 => {
                let registers = self.holding(|holds| holds != Holds::Nothing);
                if let Some(from) = self.random.pick(&registers) {
                    let index = self.random.below(SLOTS);
                    self.emit([store(8, 10, slot(index), from)]);
                    self.slots[index] = self.registers[usize::from(from)];
                }
            }
            6 => self.advance(),
            7 => {
                if let Some((from, _)) = self.pointer() {
                    let to = self.target();
                    let bytes = [1, 2, 4][self.random.below(3)];
                    self.emit([load(bytes, to, from, 0)]);
                    self.set(to, Holds::Number);
                }
            }
            8 => self.wander(),
            9 if depth < 2 => self.branch(depth),
            10 if depth < 2 => self.repeat(),
            11 | 12 => self.call(),
            13 => self.call_back(),
            _ if self.stores > 0 && self.random.one_in(2) => self.store(),
            _ => self.fill(),
        }
    }

    /// Moves a pointer by a constant, in one way or another.
    fn advance(&mut self) {
        let Some((from, offset)) = self.pointer() else {
            return;
        };
        let to = self.target();
        let distance = self.random.below(9) as i16;
        if offset + distance > AREA - ACCESS {
            return;
        }
        if to == from || self.random.one_in(2) {
            self.emit([mov(to, from), add_imm(to, i32::from(distance))]);
        } else {
            // A number plus a pointer.
            self.emit([mov_imm(to, i32::from(distance)), add(to, from)]);
        }
        self.set(to, Holds::Pointer(offset + distance));
    }

    /// Adds a number to a pointer that only the run of the program knows. The kernel then demands
    /// another comparison with the packet's end.
    fn wander(&mut self) {
        let Some((from, offset)) = self.pointer() else {
            return;
        };
        if offset + 3 > AREA - ACCESS {
            return;
        }
        let number = self.number();
        let end = if self.kind.has_skb() { 80 } else { 4 };
        if number == from {
            return;
        }
        self.emit([
            and_imm(number, 3),
            add(from, number),
            load(4, 1, 6, end),
            mov(2, from),
            add_imm(2, i32::from(ACCESS)),
            // Ends the program.
            jump_gt(1, 2, 2),
            mov_imm(0, 0),
            exit(),
        ]);
        self.set(from, Holds::Pointer(offset + 3));
    }
}
