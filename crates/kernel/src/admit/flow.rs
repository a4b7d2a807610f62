//! The data flow through a program: what each register and each slot of the stack may hold at each instruction.
//!
//! The analysis covers every program that the kernel's verifier accepts, and relies on what it checks: a number is never
//! used as a pointer, pointers are kept in registers and in whole slots of the stack only, and a function is left
//! through its end. Functions are followed into from each call anew, as the verifier does.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet, HashSet};

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::admit::helpers::{self, Callback, Effect};
use crate::admit::instruction::{Index, Instruction, Memory, Operand, Unknown, decode};
use crate::admit::packet::read_context;
use crate::admit::state::State;
use crate::admit::value::{Known, Value};

/// The most functions that can be running at once, as for the kernel.
const MAX_FRAMES: usize = 8;
/// The most instructions that are followed, and registers that are remembered: some seconds, and some 100 MB.
const MAX_EFFORT: usize = 4_000_000;

/// The acts of instructions that no monitor does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// It writes to the packet.
    WritesPacket,
    /// It writes to the context, which is the packet's metadata.
    WritesContext,
    /// It writes through a register that nothing was written to.
    WritesAnywhere,
    /// The program has an atomic operation on a value that is not aligned.
    Unaligned,
    /// It lets a helper function write to the packet.
    HasPacketWritten(String),
    /// It calls a helper function that changes packets.
    CallsChange(String),
    /// It calls a helper function that no monitor needs.
    CallsHelper(u32),
    /// It calls a helper function for timers.
    CallsTimer(String),
    /// It has a function called that is not known here.
    CallsBackAnything,
    Unknown(Unknown),
    /// A loop here may take this many rounds or more for one packet.
    Repeats(u64),
    /// Calls lead too deep here.
    TooDeep,
    /// The program is too long to be followed.
    TooLong,
}

/// Returns what a program of this kind may do at which of its instructions. `unaligned` are the maps with values that are
/// not aligned, by the index by which instructions refer to them.
pub fn acts(program: &[bpf_insn], kind: ProgramKind, unaligned: &[usize]) -> BTreeMap<Index, Act> {
    let targets = (0..program.len()).filter_map(|at| match decode(program, at) {
        Ok((Instruction::Jump(target) | Instruction::Branch(target), _)) => Some(target),
        _ => None,
    });
    let mut flow = Flow {
        program,
        kind,
        unaligned,
        targets: targets.collect(),
        calls: HashMap::new(),
        acts: BTreeMap::new(),
        effort: 0,
    };
    flow.function(0, State::call(&[], &[Value::CONTEXT]));
    flow.acts
}

struct Flow<'a> {
    program: &'a [bpf_insn],
    kind: ProgramKind,
    unaligned: &'a [usize],
    /// The instructions that are jumped to.
    targets: HashSet<Index>,
    /// The state at the end of each function for each state that it was called in; `None` if it never ends.
    calls: HashMap<(Index, State), Option<State>>,
    acts: BTreeMap<Index, Act>,
    /// The instructions followed and registers remembered so far.
    effort: usize,
}

impl Flow<'_> {
    fn note(&mut self, at: Index, act: Act) {
        self.acts.entry(at).or_insert(act);
    }

    /// Follows the function at `entry` to its end; `None` if it has none.
    fn function(&mut self, entry: Index, state: State) -> Option<State> {
        let call = (entry, state);
        if let Some(known) = self.calls.get(&call) {
            return known.clone();
        }
        let mut end: Option<State> = None;
        let mut reached = Reached::default();
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
                    Next::At(next) if !self.targets.contains(&next) => at = next,
                    Next::At(next) => {
                        reached.join(next, &state);
                        break;
                    }
                    Next::Both(next, other) => {
                        reached.join(other, &state);
                        reached.join(next, &state);
                        break;
                    }
                    Next::Exit => {
                        leave(&mut end, &state);
                        break;
                    }
                    Next::OrExit(next) => {
                        leave(&mut end, &state);
                        reached.join(next, &state);
                        break;
                    }
                    Next::Nowhere => break,
                }
            }
        }
        self.calls.insert(call, end.clone());
        end
    }

    fn step(&mut self, at: Index, state: &mut State) -> Next {
        let (instruction, next) = match decode(self.program, at) {
            Ok(decoded) => decoded,
            Err(unknown) => {
                self.note(at, Act::Unknown(unknown));
                return Next::Nowhere;
            }
        };
        match instruction {
            Instruction::Compute { operation, to, operand } => {
                let (other, constant) = match operand {
                    Operand::Number(number) => (Value::NUMBER, Some(i64::from(number))),
                    Operand::Register(register) => (state.get(register), None),
                };
                state.set(to, state.get(to).combine(operation, other, constant));
            }
            Instruction::Load { to, from } => state.set(to, self.load(state, from)),
            Instruction::Store { to, value } => {
                let value = match value {
                    Operand::Number(_) => Value::NUMBER,
                    Operand::Register(register) => state.get(register),
                };
                self.store(at, state, to, value);
            }
            Instruction::Atomic { to, fetched } => {
                if state.get(to.base).unaligned {
                    self.note(at, Act::Unaligned);
                }
                let before = self.load(state, to).join(Value::NUMBER);
                self.store(at, state, to, before);
                if let Some(fetched) = fetched {
                    state.set(fetched, before);
                }
            }
            Instruction::Number { to } => state.set(to, Value::NUMBER),
            Instruction::Map { to } => {
                let map = usize::try_from(self.program[at].imm);
                let unaligned = map.is_ok_and(|map| self.unaligned.contains(&map));
                state.set(to, if unaligned { Value::UNALIGNED } else { Value::HARMLESS });
            }
            Instruction::Function { to, entry } => state.set(to, Value::function(entry as u32)),
            Instruction::ReadPacket => {
                state.returned(Value::NUMBER);
                return Next::OrExit(next);
            }
            Instruction::Jump(target) => return Next::At(target),
            Instruction::Branch(target) => return Next::Both(next, target),
            Instruction::CallHelper(helpers::POISON) => return Next::Nowhere,
            Instruction::CallHelper(number) => return self.helper(at, state, number, next),
            Instruction::Call(entry) => match self.call(at, state, entry, &state.arguments()) {
                Some(end) => {
                    state.take_frames(&end);
                    state.returned(end.get(0).left(state.frames().len() as u8));
                }
                None => return Next::Nowhere,
            },
            Instruction::Exit => return Next::Exit,
        }
        Next::At(next)
    }

    fn load(&self, state: &State, from: Memory) -> Value {
        let base = state.get(from.base);
        let plain = if base.harmless { Value::PLAIN } else { Value::NONE };
        let number = if base.number || base.packet { Value::NUMBER } else { Value::NONE };
        let context = match base.context {
            Known::Never => Value::NONE,
            Known::Only(offset) => read_context(self.kind, Some(i64::from(offset) + from.offset), from.size),
            Known::Any => read_context(self.kind, None, from.size),
        };
        plain.join(number).join(context).join(state.load(base.stack, from))
    }

    fn store(&mut self, at: Index, state: &mut State, to: Memory, value: Value) {
        let base = state.get(to.base);
        if base == Value::NONE {
            self.note(at, Act::WritesAnywhere);
        }
        if base.packet {
            self.note(at, Act::WritesPacket);
        }
        if base.context.is_possible() {
            self.note(at, Act::WritesContext);
        }
        let surely = base == Value { stack: base.stack, ..Value::NONE };
        state.store(base.stack, surely, to, value);
    }

    /// Follows a call; `None` if it does not come back.
    fn call(&mut self, at: Index, state: &State, entry: Index, arguments: &[Value]) -> Option<State> {
        if state.frames().len() >= MAX_FRAMES {
            self.note(at, Act::TooDeep);
            return None;
        }
        self.function(entry, State::call(state.frames(), arguments))
    }

    fn helper(&mut self, at: Index, state: &mut State, number: u32, next: Index) -> Next {
        match helpers::effect(number, self.kind) {
            None => self.note(at, Act::CallsHelper(number)),
            Some((Effect::Changes, name)) => self.note(at, Act::CallsChange(name)),
            Some((Effect::Timer, name)) => self.note(at, Act::CallsTimer(name)),
            Some((Effect::Observes, name)) => {
                for argument in helpers::written(number).map(|argument| state.get(argument)) {
                    if argument.packet || argument.context.is_possible() {
                        self.note(at, Act::HasPacketWritten(name.clone()));
                    }
                }
            }
        }
        let unaligned = state.get(1).unaligned;
        for argument in state.arguments() {
            state.fill(argument.stack);
        }
        if let Some(callback) = helpers::callback(number) {
            self.callback(at, state, callback);
        }
        // A lookup returns a value of the map, or the map in it.
        let found = if unaligned { Value::UNALIGNED } else { Value::NONE };
        state.returned(Value::PLAIN.join(found));
        Next::At(next)
    }

    /// Follows the function that a helper function calls, until another call of it adds nothing.
    fn callback(&mut self, at: Index, state: &mut State, callback: Callback) {
        let Known::Only(entry) = state.get(callback.function).function else {
            return self.note(at, Act::CallsBackAnything);
        };
        let mut arguments = [Value::PLAIN; 5];
        if let Some((from, to)) = callback.handed_on {
            arguments[to - 1] = state.get(from);
        }
        loop {
            let Some(end) = self.call(at, state, entry as Index, &arguments) else { return };
            let mut after = state.clone();
            after.take_frames(&end);
            if !state.join(&after) {
                return;
            }
        }
    }
}

/// Adds a state in which a function ends to those at its `end` so far.
fn leave(end: &mut Option<State>, state: &State) {
    match end {
        Some(end) => _ = end.join(state),
        None => *end = Some(state.clone()),
    }
}

/// The states in which the starts of blocks are reached.
#[derive(Default)]
struct Reached {
    states: HashMap<Index, State>,
    /// The starts with states that have not been followed. The first comes first, since most jumps lead onwards.
    open: BTreeSet<Index>,
}

impl Reached {
    fn join(&mut self, at: Index, state: &State) {
        let is_new = match self.states.entry(at) {
            Entry::Occupied(mut known) => known.get_mut().join(state),
            Entry::Vacant(place) => {
                place.insert(state.clone());
                true
            }
        };
        if is_new {
            self.open.insert(at);
        }
    }

    fn next(&mut self) -> Option<(Index, State)> {
        let at = self.open.pop_first()?;
        Some((at, self.states[&at].clone()))
    }
}

/// The places where a program goes on.
enum Next {
    At(Index),
    Both(Index, Index),
    Exit,
    /// A read beyond the packet's end ends the function, with 0.
    OrExit(Index),
    Nowhere,
}
