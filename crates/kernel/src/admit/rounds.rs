//! The rounds of loops that the verifier does not follow to their end: those of `bpf_loop`, of `bpf_for_each_map_elem`
//! and of `may_goto`. One such loop ends soon; one within another may keep a processor for hours, and nothing can end it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aya_obj::generated::bpf_insn;

use crate::admit::helpers::{self, Repeats};
use crate::admit::instruction::{Index, Instruction, Register, decode};

/// The most rounds for one packet: they take a tenth of a second.
pub const MAX_ROUNDS: u64 = 1 << 26;
/// The most rounds of one `bpf_loop`, and of the loops with `may_goto` in one run of a function (`BPF_MAX_LOOPS` of the
/// kernel).
const ENDLESS: u64 = 1 << 23;
/// The number of rounds that stands for a loop that the verifier follows; the true number is not worked out here.
const FOLLOWED: u64 = 1 << 12;
/// The most functions that can be running at once, as for the kernel.
const MAX_FRAMES: usize = 8;
/// The most instructions that are looked at.
const MAX_EFFORT: usize = 2_000_000;
/// The number of times that registers at the start of a block may grow until nothing is known of those that grow.
const EXACT: usize = 4;
const CALL: u8 = 0x85;
/// The code of `may_goto`.
const MAY_GOTO: u8 = 0xe5;

/// The rounds of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The most rounds for one packet.
    pub most: u64,
    /// The loop with which there are more than [`MAX_ROUNDS`].
    pub beyond: Option<Index>,
}

/// Returns the rounds of a linked program. `entries` are those of the maps that its instructions refer to by their index.
pub fn rounds(program: &[bpf_insn], entries: &[u64]) -> Rounds {
    let repeats = |insn: &bpf_insn| {
        insn.code == MAY_GOTO
            || (insn.code, insn.src_reg()) == (CALL, 0)
                && helpers::callback(insn.imm as u32).is_some_and(|callback| callback.repeats.is_some())
    };
    if !program.iter().any(repeats) {
        return Rounds { most: 0, beyond: None };
    }
    let mut is_target = vec![false; program.len() + 1];
    for at in 0..program.len() {
        if let Ok((Instruction::Jump(target) | Instruction::Branch(target), _)) = decode(program, at) {
            is_target[target] = true;
        }
    }
    let mut count = Count {
        program,
        entries,
        known: HashMap::new(),
        beyond: None,
        is_target,
        seen: vec![Index::MAX; program.len() + 1],
        effort: 0,
    };
    let most = count.function(0, 1);
    Rounds { most, beyond: count.beyond }
}

/// The knowledge about a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A number, and the most that it can be.
    Most(u64),
    Function(Index),
    Map(usize),
    Nothing,
}

impl Known {
    /// Returns what covers both, with the larger of two numbers only if that is `exact`.
    fn join(self, other: Self, exact: bool) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Most(one), Self::Most(other)) if exact || other < one => Self::Most(one.max(other)),
            _ => Self::Nothing,
        }
    }
}

type Registers = [Known; 11];

/// A call.
struct Call {
    at: Index,
    /// The function that is called; `None` if it is not known.
    entry: Option<Index>,
    /// The number of calls of it by a helper function.
    repeats: Option<u64>,
}

struct Count<'a> {
    program: &'a [bpf_insn],
    entries: &'a [u64],
    /// The rounds of functions that were looked at.
    known: HashMap<Index, u64>,
    beyond: Option<Index>,
    /// True for each instruction that is jumped to. The place after the last one is there as well.
    is_target: Vec<bool>,
    /// The call from which each instruction was reached last.
    seen: Vec<Index>,
    effort: usize,
}

impl Count<'_> {
    /// Returns the most rounds in one run of the function at `entry`, which runs as the `depth`th.
    fn function(&mut self, entry: Index, depth: usize) -> u64 {
        if let Some(known) = self.known.get(&entry) {
            return *known;
        }
        if depth > MAX_FRAMES {
            return 0;
        }
        let (calls, may_goto) = self.calls(entry);
        let mut most = if may_goto { ENDLESS } else { 0 };
        for Call { at, entry, repeats } in calls {
            let inner = entry.map_or(u64::MAX, |entry| self.function(entry, depth + 1));
            let rounds = repeats.map_or(inner, |repeats| repeats.saturating_mul(inner.saturating_add(1)));
            if rounds == 0 {
                continue;
            }
            let times = match (self.is_in_a_loop(at), may_goto) {
                (false, _) => 1,
                (true, false) => FOLLOWED,
                (true, true) => ENDLESS,
            };
            most = most.saturating_add(rounds.saturating_mul(times));
            if most > MAX_ROUNDS {
                self.beyond.get_or_insert(at);
            }
        }
        self.known.insert(entry, most);
        most
    }

    /// Returns the calls of the function at `entry`, and whether `may_goto` is in it.
    fn calls(&mut self, entry: Index) -> (Vec<Call>, bool) {
        let (mut calls, mut may_goto) = (BTreeMap::<Index, Call>::new(), false);
        // The registers at the start of each block, and how often more was found to be possible there.
        let mut states: HashMap<Index, (Registers, usize)> =
            HashMap::from([(entry, ([Known::Nothing; 11], 0))]);
        let mut open = BTreeSet::from([entry]);
        while let Some(start) = open.pop_first() {
            let (mut at, mut registers) = (start, states[&start].0);
            let mut join = |to: Index, registers: Registers| {
                let (known, changes) = states.entry(to).or_insert_with(|| {
                    open.insert(to);
                    (registers, 0)
                });
                let mut grows = false;
                for (known, new) in known.iter_mut().zip(registers) {
                    let both = known.join(new, *changes < EXACT);
                    grows |= *known != both;
                    *known = both;
                }
                if grows {
                    *changes += 1;
                    open.insert(to);
                }
            };
            loop {
                self.effort += 1;
                if self.effort > MAX_EFFORT {
                    self.beyond.get_or_insert(at);
                    return (Vec::new(), may_goto);
                }
                let Ok((instruction, next)) = decode(self.program, at) else { break };
                may_goto |= self.program[at].code == MAY_GOTO;
                if let Some(call) = self.call(at, instruction, &registers) {
                    let repeats =
                        calls.get(&at).map_or(call.repeats, |known| known.repeats.max(call.repeats));
                    calls.insert(at, Call { repeats, ..call });
                }
                self.step(at, instruction, &mut registers);
                match instruction {
                    Instruction::Exit | Instruction::CallHelper(helpers::POISON) => break,
                    Instruction::Jump(target) => {
                        join(target, registers);
                        break;
                    }
                    Instruction::Branch(target) => {
                        join(target, self.compared(at, true, registers));
                        join(next, self.compared(at, false, registers));
                        break;
                    }
                    _ if self.is_target[next] => {
                        join(next, registers);
                        break;
                    }
                    _ => at = next,
                }
            }
        }
        (calls.into_values().collect(), may_goto)
    }

    fn call(&self, at: Index, instruction: Instruction, registers: &Registers) -> Option<Call> {
        match instruction {
            Instruction::Call(entry) => Some(Call { at, entry: Some(entry), repeats: None }),
            Instruction::CallHelper(number) => {
                let callback = helpers::callback(number)?;
                let entry = match registers[callback.function] {
                    Known::Function(entry) => Some(entry),
                    _ => None,
                };
                let most = match (callback.repeats?, registers[1]) {
                    (Repeats::First, Known::Most(most)) => most.min(ENDLESS),
                    (Repeats::First, _) => ENDLESS,
                    (Repeats::Entries, Known::Map(map)) => self.entries.get(map).copied().unwrap_or(ENDLESS),
                    (Repeats::Entries, _) => self.entries.iter().copied().max().unwrap_or(ENDLESS),
                };
                Some(Call { at, entry, repeats: Some(most) })
            }
            _ => None,
        }
    }

    /// Follows an instruction that is no jump.
    fn step(&self, at: Index, instruction: Instruction, registers: &mut Registers) {
        let raw = self.program[at];
        match instruction {
            Instruction::Compute { to, .. } => registers[to] = computed(raw, registers),
            Instruction::Load { to, .. } => {
                registers[to] = match raw.code {
                    0x71 => Known::Most(u64::from(u8::MAX)),
                    0x69 => Known::Most(u64::from(u16::MAX)),
                    0x61 => Known::Most(u64::from(u32::MAX)),
                    _ => Known::Nothing,
                };
            }
            Instruction::Atomic { fetched: Some(fetched), .. } => registers[fetched] = Known::Nothing,
            Instruction::Number { to } => {
                let high = self.program[at + 1].imm as u32;
                registers[to] = Known::Most(u64::from(high) << 32 | u64::from(raw.imm as u32));
            }
            Instruction::Map { to } => {
                registers[to] = usize::try_from(raw.imm).map_or(Known::Nothing, Known::Map);
            }
            Instruction::Function { to, entry } => registers[to] = Known::Function(entry),
            Instruction::Call(_) | Instruction::CallHelper(_) | Instruction::ReadPacket => {
                registers[..=5].fill(Known::Nothing);
            }
            _ => {}
        }
    }

    /// Returns what is known once the comparison at `at` has been made.
    fn compared(&self, at: Index, taken: bool, mut registers: Registers) -> Registers {
        let raw = self.program[at];
        let (register, Ok(number)) = (Register::from(raw.dst_reg()), u64::try_from(raw.imm)) else {
            return registers;
        };
        let most = match (raw.code & 0xf8, taken) {
            // Equal; not equal.
            (0x10, true) | (0x50, false) => number,
            // Greater, unsigned and signed; less or equal.
            (0x20 | 0x60, false) | (0xb0 | 0xd0, true) => number,
            // Greater or equal; less.
            (0x30 | 0x70, false) | (0xa0 | 0xc0, true) => number.saturating_sub(1),
            _ => return registers,
        };
        let is_signed = matches!(raw.code & 0xf0, 0x60 | 0x70 | 0xc0 | 0xd0);
        // A comparison of 32 bits, or with a sign, tells nothing of larger numbers.
        let valid = match (raw.code & 0x07 == 6, is_signed) {
            (true, false) => u64::from(u32::MAX),
            (true, true) => i32::MAX as u64,
            (false, true) => i64::MAX as u64,
            (false, false) => u64::MAX,
        };
        let before = match registers[register] {
            Known::Most(before) => before,
            Known::Nothing => u64::MAX,
            _ => return registers,
        };
        if before <= valid {
            registers[register] = Known::Most(before.min(most));
        }
        registers
    }

    /// Tells whether the instruction can be reached from itself. If that takes too long to find out, it counts as so.
    fn is_in_a_loop(&mut self, start: Index) -> bool {
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            self.effort += 1;
            if self.effort > MAX_EFFORT {
                return true;
            }
            let Ok((instruction, next)) = decode(self.program, at) else { continue };
            let ways = match instruction {
                Instruction::Exit => [None, None],
                Instruction::Jump(target) => [Some(target), None],
                Instruction::Branch(target) => [Some(target), Some(next)],
                _ => [Some(next), None],
            };
            for way in ways.into_iter().flatten() {
                if way == start {
                    return true;
                }
                if std::mem::replace(&mut self.seen[way], start) != start {
                    open.push(way);
                }
            }
        }
        false
    }
}

/// Returns what an operation leaves in its register.
fn computed(raw: bpf_insn, registers: &Registers) -> Known {
    let is_register = raw.code & 0x08 != 0;
    let other = match is_register {
        true => registers[usize::from(raw.src_reg())],
        false => Known::Most(i64::from(raw.imm) as u64),
    };
    let most = |known| match known {
        Known::Most(most) => most,
        _ => u64::MAX,
    };
    let before = registers[usize::from(raw.dst_reg())];
    // The order of bytes.
    if raw.code & 0xf0 == 0xd0 {
        return if raw.imm < 64 { Known::Most(u64::from(u32::MAX)) } else { Known::Nothing };
    }
    let (wide, all) = (raw.code & 0x07 == 7, u64::from(u32::MAX));
    let number = match (raw.code & 0xf0, raw.off) {
        (0xb0, 0) if wide => return other,
        (0xb0, 0) => most(other),
        (0x50, 0) => most(before).min(most(other)),
        (0x00, 0) => most(before).saturating_add(most(other)),
        (0x90, 0) if !is_register => most(other).wrapping_sub(1),
        (0x70, 0) if !is_register => most(before).checked_shr(raw.imm as u32).unwrap_or(0),
        _ => u64::MAX,
    };
    match (wide, is_register) {
        (true, _) if number == u64::MAX => Known::Nothing,
        (true, _) => Known::Most(number),
        // The constant is taken as 32 bits.
        (false, false) if raw.code & 0xf0 == 0xb0 => Known::Most(u64::from(raw.imm as u32)),
        (false, _) => Known::Most(number.min(all)),
    }
}
