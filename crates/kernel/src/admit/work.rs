//! The work of a program for one packet, if the verifier does not follow its loops to their end:
//! loops of `bpf_loop`, of `bpf_for_each_map_elem` and of `may_goto`. One such loop ends soon. A
//! loop within another may keep a processor for hours, and nothing can end it.
//!
//! A unit of work is an instruction that takes a nanosecond or less. In loops that the verifier
//! follows, a packet runs at most as many instructions as the verifier went through, because the
//! verifier follows each way separately.

pub mod known;
pub mod registers;
pub mod weight;

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet, HashSet};

use aya_obj::generated::bpf_insn;

use crate::admit::helpers::{self, CallCount};
use crate::admit::instruction::{Instruction, InstructionIndex, decode};
use crate::admit::maps::MapFacts;
use crate::admit::work::registers::{RegisterFacts, Registers};
use crate::admit::work::weight::weight;

/// The most work for one packet: it takes some tenths of a second.
pub const MAX_WORK: u64 = 700_000_000;
/// The most rounds of one `bpf_loop`, and of the loops with `may_goto` in one run of a function
/// (`BPF_MAX_LOOPS` of the kernel).
const ENDLESS: u64 = 1 << 23;
/// The work of each round of a loop, without the work of the called function.
const ROUND: u64 = 4;
/// The most functions that can be running at once, as for the kernel.
const MAX_FRAMES: usize = 8;
/// The most instructions that the analysis goes through.
const MAX_EFFORT: usize = 2_000_000;
/// The number of times that the registers at the start of a block may grow. After that, the values
/// of growing registers are unknown.
const EXACT: usize = 4;
const CALL: u8 = 0x85;
/// The code of `may_goto`.
const MAY_GOTO: u8 = 0xe5;

/// The work of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The most work for one packet; 0 if the verifier follows all loops.
    pub most: u64,
    /// The loop or the function that makes the work more than [`MAX_WORK`].
    pub beyond: Option<InstructionIndex>,
}

/// Returns the work of a linked program. Its instructions refer to `maps` by their index, and
/// `verified` is the number of instructions that the verifier followed. With 1 for `verified`, the
/// result is the work that the program has at least.
pub fn work(program: &[bpf_insn], maps: &[MapFacts], verified: u64) -> Work {
    let repeats = |insn: &bpf_insn| {
        insn.code == MAY_GOTO
            || (insn.code, insn.src_reg()) == (CALL, 0)
                && helpers::callback(insn.imm as u32)
                    .is_some_and(|callback| callback.repeats.is_some())
    };
    if !program.iter().any(repeats) {
        return Work {
            most: 0,
            beyond: None,
        };
    }
    let mut is_target = vec![false; program.len() + 1];
    for at in 0..program.len() {
        if let Ok((Instruction::Jump(target) | Instruction::Branch(target), _)) =
            decode(program, at)
        {
            is_target[target] = true;
        }
    }
    let mut count = WorkCount {
        program,
        maps,
        verified: verified.max(1),
        known: HashMap::new(),
        beyond: None,
        is_target,
        seen: vec![InstructionIndex::MAX; program.len() + 1],
        effort: 0,
        in_loops: HashMap::new(),
    };
    let most = count.function(0, 1);
    Work {
        most,
        beyond: count.beyond,
    }
}

/// A call.
struct FunctionCall {
    at: InstructionIndex,
    /// The called function; `None` if it is not known.
    entry: Option<InstructionIndex>,
    /// The number of times that a helper function calls the function; `None` if the program calls
    /// it directly.
    repeats: Option<u64>,
}

/// The work of a single function.
#[derive(Default)]
struct FunctionBody {
    calls: BTreeMap<InstructionIndex, FunctionCall>,
    may_goto: bool,
    /// The work of the function's instructions, without the work of the other functions that it
    /// calls.
    weights: BTreeMap<InstructionIndex, u64>,
}

impl FunctionBody {
    /// Notes the weight and the call of the instruction at `at`, which may be known already: the
    /// larger numbers stay.
    fn note(&mut self, at: InstructionIndex, weight: u64, call: Option<FunctionCall>) {
        self.weights
            .entry(at)
            .and_modify(|known| *known = weight.max(*known))
            .or_insert(weight);
        if let Some(call) = call {
            let repeats = self
                .calls
                .get(&at)
                .map_or(call.repeats, |known| known.repeats.max(call.repeats));
            self.calls.insert(at, FunctionCall { repeats, ..call });
        }
    }
}

struct WorkCount<'a> {
    program: &'a [bpf_insn],
    maps: &'a [MapFacts],
    verified: u64,
    /// The work of each function that the analysis has finished.
    known: HashMap<InstructionIndex, u64>,
    beyond: Option<InstructionIndex>,
    /// True for each instruction that is the target of a jump. The list has one more place for the
    /// end of the program.
    is_target: Vec<bool>,
    /// The call of the analysis that has reached each instruction last.
    seen: Vec<InstructionIndex>,
    effort: usize,
    in_loops: HashMap<InstructionIndex, bool>,
}

impl WorkCount<'_> {
    /// Returns the most work of one run of the function at `entry`. `depth` is the number of calls
    /// that lead to it.
    fn function(&mut self, entry: InstructionIndex, depth: usize) -> u64 {
        if let Some(known) = self.known.get(&entry) {
            return *known;
        }
        if depth > MAX_FRAMES {
            return 0;
        }
        let FunctionBody {
            calls,
            may_goto,
            weights,
        } = self.body(entry);
        // The number of times that the loops of this function may run a single instruction.
        let followed = if self.has_followed_loop(entry) {
            self.verified
        } else {
            1
        };
        let rounds = followed.saturating_mul(if may_goto { ENDLESS } else { 1 });
        let heaviest = weights
            .iter()
            .filter(|(_, weight)| **weight > 1)
            .map(|(at, weight)| (*weight, *at));
        let heaviest = heaviest
            .collect::<BTreeSet<_>>()
            .into_iter()
            .rev()
            .find(|(_, at)| self.is_in_a_loop(*at));
        let straight = weights.values().sum::<u64>();
        let mut most = match (may_goto, followed) {
            (false, 1) => straight,
            // The loops run no more instructions than the verifier went through, and each of these
            // may be the heaviest instruction.
            (false, _) => straight
                .saturating_add(rounds.saturating_mul(heaviest.map_or(1, |(weight, _)| weight))),
            (true, 1) => rounds.saturating_mul(straight),
            (true, _) => {
                rounds.saturating_mul(straight.max(heaviest.map_or(1, |(weight, _)| weight)))
            }
        };
        if most > MAX_WORK {
            self.beyond
                .get_or_insert(heaviest.map_or(entry, |(_, at)| at));
        }
        for FunctionCall { at, entry, repeats } in calls.into_values() {
            let inner = entry.map_or(u64::MAX, |entry| self.function(entry, depth + 1));
            let call = repeats.map_or(inner, |repeats| {
                repeats.saturating_mul(inner.saturating_add(ROUND))
            });
            let times = if self.is_in_a_loop(at) { rounds } else { 1 };
            most = most.saturating_add(call.saturating_mul(times));
            if most > MAX_WORK {
                self.beyond.get_or_insert(at);
            }
        }
        self.known.insert(entry, most);
        most
    }

    /// Tells whether the function at `entry` has a loop without `may_goto`.
    fn has_followed_loop(&mut self, entry: InstructionIndex) -> bool {
        // True if the path to the instruction leads through an instruction that the search has
        // passed.
        let mut is_on_way = HashMap::new();
        let mut starts = vec![entry];
        let mut seen = HashSet::new();
        while let Some(start) = starts.pop() {
            let mut open = vec![(start, false)];
            while let Some((at, is_done)) = open.pop() {
                self.effort += 1;
                if self.effort > MAX_EFFORT {
                    return true;
                }
                if is_done {
                    is_on_way.insert(at, false);
                } else if self.program[at].code == MAY_GOTO {
                    if seen.insert(at) {
                        starts.extend(
                            self.ways(at)
                                .into_iter()
                                .flatten()
                                .filter(|way| *way < self.program.len()),
                        );
                    }
                } else if let Entry::Vacant(place) = is_on_way.entry(at) {
                    place.insert(true);
                    open.push((at, true));
                    for way in self
                        .ways(at)
                        .into_iter()
                        .flatten()
                        .filter(|way| *way < self.program.len())
                    {
                        if is_on_way.get(&way) == Some(&true) {
                            return true;
                        }
                        open.push((way, false));
                    }
                }
            }
        }
        false
    }

    fn ways(&self, at: InstructionIndex) -> [Option<InstructionIndex>; 2] {
        match decode(self.program, at) {
            Err(_) | Ok((Instruction::Exit, _)) => [None, None],
            Ok((Instruction::Jump(target), _)) => [Some(target), None],
            Ok((Instruction::Branch(target), next)) => [Some(target), Some(next)],
            Ok((_, next)) => [Some(next), None],
        }
    }

    /// Analyses the function at `entry`.
    fn body(&mut self, entry: InstructionIndex) -> FunctionBody {
        let mut body = FunctionBody::default();
        // The registers at the start of each block, and the number of times that the analysis has
        // widened them.
        let mut states: HashMap<InstructionIndex, (Registers, usize)> =
            HashMap::from([(entry, (Registers::UNKNOWN, 0))]);
        let mut open = BTreeSet::from([entry]);
        while let Some(start) = open.pop_first() {
            let (mut at, mut registers) = (start, states[&start].0);
            let mut join = |to: InstructionIndex, registers: Registers| {
                let (known, changes) = states.entry(to).or_insert_with(|| {
                    open.insert(to);
                    (registers, 0)
                });
                if known.join(registers, *changes < EXACT) {
                    *changes += 1;
                    open.insert(to);
                }
            };
            loop {
                self.effort += 1;
                if self.effort > MAX_EFFORT {
                    self.beyond.get_or_insert(at);
                    return body;
                }
                let Ok((instruction, next)) = decode(self.program, at) else {
                    break;
                };
                body.may_goto |= self.program[at].code == MAY_GOTO;
                let weight = weight(instruction, &registers, self.maps);
                body.note(at, weight, self.call(at, instruction, &registers));
                known::step(self.program, at, instruction, &mut registers);
                match instruction {
                    Instruction::Exit | Instruction::CallHelper(helpers::POISON) => break,
                    Instruction::Jump(target) => {
                        join(target, registers);
                        break;
                    }
                    Instruction::Branch(target) => {
                        join(target, known::compared(self.program[at], true, registers));
                        join(next, known::compared(self.program[at], false, registers));
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
        body
    }

    fn call(
        &self,
        at: InstructionIndex,
        instruction: Instruction,
        registers: &Registers,
    ) -> Option<FunctionCall> {
        match instruction {
            Instruction::Call(entry) => Some(FunctionCall {
                at,
                entry: Some(entry),
                repeats: None,
            }),
            Instruction::CallHelper(number) => {
                let callback = helpers::callback(number)?;
                let entry = match registers[callback.function] {
                    RegisterFacts::Function(entry) => Some(entry),
                    _ => None,
                };
                let entries = |map: &MapFacts| map.entries;
                let most = match (callback.repeats, registers[1]) {
                    (None, _) => 1,
                    (Some(CallCount::First), RegisterFacts::Most(most)) => most.min(ENDLESS),
                    (Some(CallCount::First), _) => ENDLESS,
                    (Some(CallCount::Entries), RegisterFacts::Map(map)) => {
                        self.maps.get(map).map_or(ENDLESS, entries)
                    }
                    (Some(CallCount::Entries), _) => {
                        self.maps.iter().map(entries).max().unwrap_or(ENDLESS)
                    }
                };
                Some(FunctionCall {
                    at,
                    entry,
                    repeats: Some(most),
                })
            }
            _ => None,
        }
    }

    /// Tells whether the instruction can be reached from itself. Returns true as well if the search
    /// takes too long.
    fn is_in_a_loop(&mut self, start: InstructionIndex) -> bool {
        if let Some(known) = self.in_loops.get(&start) {
            return *known;
        }
        let is_in_a_loop = self.leads_to_itself(start);
        self.in_loops.insert(start, is_in_a_loop);
        is_in_a_loop
    }

    fn leads_to_itself(&mut self, start: InstructionIndex) -> bool {
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            self.effort += 1;
            if self.effort > MAX_EFFORT {
                return true;
            }
            for way in self.ways(at).into_iter().flatten() {
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
