//! The data flow through a program: the possible content of each register and each slot of the
//! stack at each instruction.
//!
//! The analysis covers every program that the kernel's verifier accepts, and relies on its checks:
//! a program never uses a number as a pointer, keeps pointers only in registers and in whole slots
//! of the stack, and leaves a function only through its end. The analysis follows a function anew
//! from each call, as the verifier does.

pub mod act;
mod calls;
mod dynptrs;
pub mod formats;
mod reached;
mod shown;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use aya_obj::generated::{BPF_PSEUDO_MAP_FD, bpf_insn};
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::admit::flow::act::Act;
use crate::admit::flow::formats::Formats;
use crate::admit::flow::reached::ReachedStates;
use crate::admit::helpers;
use crate::admit::instruction::{Instruction, InstructionIndex, Memory, Operand, decode};
use crate::admit::maps::MapFacts;
use crate::admit::packet::read_context;
use crate::admit::state::MachineState;
use crate::admit::value::{AbstractValue, PointerFacts, StackPlace};
use crate::admit::work::known;
use crate::admit::work::registers::RegisterFacts;

/// The most functions that can be running at once, as for the kernel.
const MAX_FRAMES: usize = 8;
/// The limit for the sum of the instructions that are followed and the registers that are
/// remembered. The analysis then takes some seconds and some 100 MB at most.
const MAX_EFFORT: usize = 4_000_000;

/// The acts of a program, and the slots of the stack that it reads before it has written to them.
#[derive(Debug, Default)]
pub struct Conduct {
    pub acts: BTreeMap<InstructionIndex, Act>,
    /// The slots of the stack that the program may read before it has written to them, for each
    /// function by the index of its first instruction. Each slot has one bit; the lowest bit is for
    /// the slot at the frame's start.
    pub unwritten: BTreeMap<InstructionIndex, u64>,
    /// The helper functions that the program calls with a map, each with the index of the map, or
    /// [`ANY_MAP`].
    pub called: BTreeSet<(u32, u32)>,
}

/// The index of a map that the analysis can't name.
pub const ANY_MAP: u32 = u32::MAX;

/// Returns the possible actions of a program without known formats.
#[cfg(test)]
pub fn conduct(program: &[bpf_insn], kind: ProgramKind, maps: &[MapFacts]) -> Conduct {
    conduct_with(program, kind, maps, &Formats::new())
}

/// Returns the possible actions of a program of this kind. Instructions refer to `maps` by their
/// index, and `formats` are the formats of its prints.
pub fn conduct_with(
    program: &[bpf_insn],
    kind: ProgramKind,
    maps: &[MapFacts],
    formats: &Formats,
) -> Conduct {
    let jumps = (0..program.len()).filter_map(|at| match decode(program, at) {
        Ok((Instruction::Jump(target) | Instruction::Branch(target), _)) => {
            Some((target, target <= at))
        }
        _ => None,
    });
    let jumps: Vec<(InstructionIndex, bool)> = jumps.collect();
    let mut flow = Flow {
        program,
        kind,
        maps,
        formats,
        running: RunningCalls::default(),
        targets: jumps.iter().map(|(target, _)| *target).collect(),
        heads: jumps
            .iter()
            .filter(|(_, is_back)| *is_back)
            .map(|(target, _)| *target)
            .collect::<HashSet<_>>()
            .into(),
        calls: HashMap::new(),
        found: Conduct::default(),
        effort: 0,
    };
    flow.function(0, MachineState::call(&[], 0, &[AbstractValue::CONTEXT]));
    flow.found
}

struct Flow<'a> {
    program: &'a [bpf_insn],
    kind: ProgramKind,
    maps: &'a [MapFacts],
    formats: &'a Formats,
    running: RunningCalls,
    /// The targets of jumps.
    targets: HashSet<InstructionIndex>,
    /// The targets of jumps backwards: each loop has one.
    heads: Rc<HashSet<InstructionIndex>>,
    /// The state at the end of each function, for each state at its call; `None` for a function
    /// that never ends.
    calls: HashMap<(InstructionIndex, MachineState, RunningCalls), Option<MachineState>>,
    found: Conduct,
    /// The number of instructions followed and registers remembered so far.
    effort: usize,
}

/// The functions that helper functions have called and that have not ended yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct RunningCalls {
    /// The maps that the program is iterating over, one bit for each map. The bit [`FOUND`] stands
    /// for all maps from maps of maps, and for all maps without a bit of their own.
    walks: u64,
    is_timer: bool,
}

/// The bit of the maps that were found in other maps.
const FOUND: u32 = 63;

impl Flow<'_> {
    fn note(&mut self, at: InstructionIndex, act: Act) {
        self.found.acts.entry(at).or_insert(act);
    }

    /// Follows the function at `entry` to its end; `None` if the function has no end.
    fn function(&mut self, entry: InstructionIndex, state: MachineState) -> Option<MachineState> {
        let call = (entry, state, self.running);
        if let Some(known) = self.calls.get(&call) {
            return known.clone();
        }
        let mut end: Option<MachineState> = None;
        let mut reached = ReachedStates::new(Rc::clone(&self.heads));
        reached.join(entry, &call.1);
        while let Some((start, mut state)) = reached.next() {
            self.effort += state.size();
            let mut at = start;
            loop {
                self.effort += 1;
                if self.effort > MAX_EFFORT {
                    self.note(at, Act::TooLong);
                    return None;
                }
                let next = self.step(at, &mut state);
                match next {
                    NextPlaces::At(next) if !self.targets.contains(&next) => at = next,
                    NextPlaces::At(next) => {
                        reached.join(next, &state);
                        break;
                    }
                    NextPlaces::Both(next, other) => {
                        let [other_state, state] = self.null(at, &state);
                        reached.join(other, &other_state);
                        reached.join(next, &state);
                        break;
                    }
                    NextPlaces::Exit => {
                        leave(&mut end, &state);
                        break;
                    }
                    NextPlaces::OrExit(next) => {
                        leave(&mut end, &state);
                        reached.join(next, &state);
                        break;
                    }
                    NextPlaces::Nowhere => break,
                }
            }
        }
        self.calls.insert(call, end.clone());
        end
    }

    fn step(&mut self, at: InstructionIndex, state: &mut MachineState) -> NextPlaces {
        let (instruction, next) = match decode(self.program, at) {
            Ok(decoded) => decoded,
            Err(unknown) => {
                self.note(at, Act::Unknown(unknown));
                return NextPlaces::Nowhere;
            }
        };
        match instruction {
            Instruction::Compute {
                operation,
                to,
                operand,
            } => {
                let (other, range) = match operand {
                    Operand::Number(number) => {
                        let number = i64::from(number);
                        (AbstractValue::exactly(number), Some((number, number)))
                    }
                    Operand::Register(register) => (state.get(register), state.range(register)),
                };
                // A move of 32 bits makes a copy of the other register if the number in that
                // register has only 32 bits.
                let is_number = other.is_only_number();
                let copied = known::copied(self.program[at], &state.known, u64::from(u32::MAX));
                state.set(to, state.get(to).combine(operation, other, range));
                known::step(self.program, at, instruction, &mut state.known);
                if let Some(from) = copied.filter(|_| is_number) {
                    state.known.copy(to, from);
                }
            }
            Instruction::Load { to, from } => {
                state.set(to, self.load(at, state, from));
                known::step(self.program, at, instruction, &mut state.known);
                // Some fields of 32 bits in the context contain a pointer.
                if state.get(to).may_be_pointer() {
                    state.known.set(to, RegisterFacts::Nothing);
                }
            }
            Instruction::Store { to, value } => {
                let value = match value {
                    Operand::Number(_) => AbstractValue::NUMBER,
                    Operand::Register(register) => state.get(register),
                };
                self.store(at, state, to, value);
            }
            Instruction::Atomic { to, fetched } => {
                if state.get(to.base).unaligned {
                    self.note(at, Act::Unaligned);
                }
                let before = self.load(at, state, to).join(AbstractValue::NUMBER);
                let taken = state.get(self.program[at].src_reg().into());
                let told = before.tells_address() || taken.tells_address();
                let before = if told {
                    before.join(AbstractValue::ADDRESS)
                } else {
                    before
                };
                self.store(at, state, to, before);
                if let Some(fetched) = fetched {
                    state.set(fetched, before);
                    state.known.set(fetched, RegisterFacts::Nothing);
                }
            }
            Instruction::Number { to }
            | Instruction::Map { to }
            | Instruction::Function { to, .. } => {
                let value = match instruction {
                    Instruction::Map { .. } => self.map(at),
                    Instruction::Function { entry, .. } => AbstractValue::function(entry as u32),
                    _ => AbstractValue::NUMBER,
                };
                state.set(to, value);
                state.known.set(to, RegisterFacts::Nothing);
            }
            Instruction::ReadPacket => {
                state.returned(AbstractValue::NUMBER);
                return NextPlaces::OrExit(next);
            }
            Instruction::Jump(target) => return NextPlaces::At(target),
            Instruction::Branch(target) => return NextPlaces::Both(next, target),
            Instruction::CallHelper(helpers::POISON) => return NextPlaces::Nowhere,
            Instruction::CallHelper(number) => return self.helper(at, state, number, next),
            Instruction::Call(entry) => match self.call(at, state, entry, &state.arguments()) {
                Some(end) => {
                    state.take_frames(&end);
                    if end.has_moved() {
                        state.move_packet(at);
                    }
                    state.returned(end.get(0).left(state.frames().len() as u8));
                }
                None => return NextPlaces::Nowhere,
            },
            Instruction::Exit => {
                if state.frames().len() == 1 && state.get(0).tells_address() {
                    self.note(at, Act::ReturnsAddress);
                }
                return NextPlaces::Exit;
            }
        }
        NextPlaces::At(next)
    }

    /// Returns the pointer to a map, or to its only value, that an instruction loads.
    fn map(&self, at: InstructionIndex) -> AbstractValue {
        let insn = self.program[at];
        let facts = self.facts(PointerFacts::Only(insn.imm as u32));
        let pointer = match u32::from(insn.src_reg()) {
            BPF_PSEUDO_MAP_FD => AbstractValue {
                map: PointerFacts::Only(insn.imm as u32),
                ..AbstractValue::NONE
            },
            _ => AbstractValue::HARMLESS,
        };
        AbstractValue {
            unaligned: facts.is_some_and(|facts| facts.without_atomics),
            ..pointer
        }
    }

    /// Returns the facts about a map; `None` if the analysis can't tell which map is meant.
    fn facts(&self, map: PointerFacts<u32>) -> Option<MapFacts> {
        match map {
            PointerFacts::Only(map) => self.maps.get(map as usize).copied(),
            PointerFacts::Never | PointerFacts::Any => None,
        }
    }

    /// Notes slots that may be read before they are written.
    fn read(
        &mut self,
        state: &MachineState,
        stack: PointerFacts<StackPlace>,
        distance: i64,
        size: Option<i64>,
    ) {
        for (entry, slots) in state
            .unwritten(stack, distance, size)
            .filter(|(_, slots)| *slots != 0)
        {
            *self.found.unwritten.entry(entry).or_default() |= slots;
        }
    }

    fn load(&mut self, at: InstructionIndex, state: &MachineState, from: Memory) -> AbstractValue {
        let base = state.get(from.base);
        self.read(state, base.stack, from.offset, Some(from.size));
        if base.kernel {
            self.note(at, Act::ReadsKernel);
        }
        if base.map.is_possible() {
            self.note(at, Act::ReadsMap);
        }
        let number = if base.number || base.packet || base.harmless {
            AbstractValue::NUMBER
        } else {
            AbstractValue::NONE
        };
        let context = match base.context {
            PointerFacts::Never => AbstractValue::NONE,
            PointerFacts::Only(offset) => {
                read_context(self.kind, Some(i64::from(offset) + from.offset), from.size)
            }
            PointerFacts::Any => read_context(self.kind, None, from.size),
        };
        number.join(context).join(state.load(base.stack, from))
    }

    fn store(
        &mut self,
        at: InstructionIndex,
        state: &mut MachineState,
        to: Memory,
        value: AbstractValue,
    ) {
        let base = state.get(to.base);
        if base == AbstractValue::NONE {
            self.note(at, Act::WritesAnywhere);
        }
        if base.packet {
            self.note(at, Act::WritesPacket);
        }
        if base.context.is_possible() {
            self.note(at, Act::WritesContext);
        }
        let is_seen = base.harmless || base.packet || base.context.is_possible();
        // A write through an address that reveals a kernel address shows that address as well: the
        // place of the written value reveals it.
        if is_seen && (value.tells_address() || base.address) {
            self.note(at, Act::StoresAddress);
        }
        state.store(base.stack, base.is_only_stack(), to, value);
    }

    /// Follows a call; `None` if the call does not return.
    fn call(
        &mut self,
        at: InstructionIndex,
        state: &MachineState,
        entry: InstructionIndex,
        arguments: &[AbstractValue],
    ) -> Option<MachineState> {
        if state.frames().len() >= MAX_FRAMES {
            self.note(at, Act::TooDeep);
            return None;
        }
        self.function(entry, MachineState::call(state.frames(), entry, arguments))
    }
}

/// Adds a state at the end of a function to the other states at this `end`.
fn leave(end: &mut Option<MachineState>, state: &MachineState) {
    match end {
        Some(end) => _ = end.join(state, true),
        None => *end = Some(state.clone()),
    }
}

/// The places where a program continues.
enum NextPlaces {
    At(InstructionIndex),
    Both(InstructionIndex, InstructionIndex),
    Exit,
    /// A read beyond the packet's end ends the function, with 0.
    OrExit(InstructionIndex),
    Nowhere,
}
