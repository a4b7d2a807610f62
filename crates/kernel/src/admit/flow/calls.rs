//! Calls of helper functions, and the kernel addresses that they may reveal.

use crate::admit::flow::act::Act;
use crate::admit::flow::reached::ROUNDS;
use crate::admit::flow::{ANY_MAP, FOUND, Flow, NextPlaces, RunningCalls};
use crate::admit::functions::{function, writes_dynptr};
use crate::admit::helpers::{self, Bytes, CallCount, Callback, Effect};
use crate::admit::instruction::InstructionIndex;
use crate::admit::state::MachineState;
use crate::admit::value::{AbstractValue, PointerFacts};
use crate::admit::work::known;

/// The codes of comparisons of 64 bits with a constant.
const EQUAL: u8 = 0x15;
const NOT_EQUAL: u8 = 0x55;

/// The number of bytes that a helper function may read or write.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteCount {
    pub most: i64,
    pub is_exact: bool,
}

impl Flow<'_> {
    /// Returns the states after a comparison with 0: first where the branch is taken, then where it
    /// is not. A pointer that equals 0 becomes the number 0. A pointer to the packet is an
    /// exception, because it is never 0: compilers compare such a pointer again after its check,
    /// and continue with it.
    pub(super) fn null(&self, at: InstructionIndex, state: &MachineState) -> [MachineState; 2] {
        let insn = self.program[at];
        let mut both = [state.clone(), state.clone()];
        for (state, taken) in both.iter_mut().zip([true, false]) {
            state.known = known::compared(insn, taken, state.known);
        }
        let register = usize::from(insn.dst_reg());
        let value = state.get(register);
        let is_pointer = value.may_be_pointer() && !value.is_only_packet();
        match (insn.code, insn.imm) {
            (EQUAL, 0) if is_pointer => both[0].set(register, AbstractValue::exactly(0)),
            (NOT_EQUAL, 0) if is_pointer => both[1].set(register, AbstractValue::exactly(0)),
            _ => (),
        }
        both
    }

    pub(super) fn helper(
        &mut self,
        at: InstructionIndex,
        state: &mut MachineState,
        number: u32,
        next: InstructionIndex,
    ) -> NextPlaces {
        if let Some(called) = function(number) {
            return self.kernel_function(at, state, called, next);
        }
        self.note_map(state, number);
        let writes_packet = writes_dynptr(number) && state.is_of_packet(state.get(1).stack);
        match helpers::effect(number, self.kind) {
            None => self.note(at, Act::CallsHelper(number)),
            Some((Effect::Changes, name)) => {
                self.shown(at, state, number, &name);
                self.note(at, Act::CallsChange(name));
            }
            Some((Effect::Timer, name)) => {
                if self.running.is_timer && helpers::starts_timer(number) {
                    self.note(at, Act::StartsAgain);
                }
                self.note(at, Act::CallsTimer(name));
            }
            Some((Effect::Observes, name)) => {
                for argument in helpers::written(number).map(|(argument, ..)| state.get(argument)) {
                    if argument.packet || argument.context.is_possible() {
                        self.note(at, Act::HasPacketWritten(name.clone()));
                    }
                }
                self.shown(at, state, number, &name);
                if writes_packet {
                    self.note(at, Act::HasPacketWritten(name.clone()));
                }
                if helpers::inserts(number) && self.is_walked(state.get(1).map) {
                    self.note(at, Act::AddsToWalk(name));
                }
            }
        }
        let found = self.found(state, number);
        for (argument, bytes, surely) in helpers::written(number) {
            let (to, size) = (state.get(argument), self.size(state, bytes));
            let surely = surely && to.is_only_stack() && size.is_some_and(|size| size.is_exact);
            state.fill(to.stack, size.map(|size| size.most), surely);
        }
        if let Some(argument) = helpers::dynptr(number) {
            let to = state.get(argument);
            state.make_dynptr(to.stack, to.is_only_stack(), false);
        }
        if let Some(callback) = helpers::callback(number) {
            self.callback(at, state, callback);
        }
        if helpers::moves_packet(number) || writes_packet {
            state.move_packet(at);
        }
        state.returned(found);
        NextPlaces::At(next)
    }

    /// Notes the map that a helper function is called with.
    fn note_map(&mut self, state: &MachineState, number: u32) {
        let map = match state.get(1).map {
            PointerFacts::Never => return,
            PointerFacts::Only(map) => map,
            PointerFacts::Any => ANY_MAP,
        };
        self.found.called.insert((number, map));
    }

    /// Returns the value that a helper function gives back.
    fn found(&self, state: &MachineState, number: u32) -> AbstractValue {
        let first = state.get(1);
        match helpers::result(number) {
            helpers::Result::Number => AbstractValue::NUMBER,
            helpers::Result::Structure => AbstractValue::NUMBER.join(AbstractValue::KERNEL),
            helpers::Result::Pointer => {
                let has_maps = match first.map {
                    PointerFacts::Never => false,
                    PointerFacts::Only(_) => {
                        self.facts(first.map).is_some_and(|facts| facts.holds_maps)
                    }
                    PointerFacts::Any => self.maps.iter().any(|facts| facts.holds_maps),
                };
                let found = AbstractValue {
                    map: PointerFacts::Only(u32::MAX),
                    ..AbstractValue::NONE
                };
                let map = if has_maps { found } else { AbstractValue::NONE };
                let value = if has_maps && first.map != PointerFacts::Any {
                    AbstractValue::NONE
                } else {
                    AbstractValue::HARMLESS
                };
                AbstractValue {
                    unaligned: first.unaligned,
                    ..AbstractValue::NUMBER.join(value).join(map)
                }
            }
        }
    }

    /// Returns how many bytes a helper function reads or writes; `None` if that is not known.
    pub(super) fn size(&self, state: &MachineState, bytes: Bytes) -> Option<ByteCount> {
        let facts = self.facts(state.get(1).map);
        let exactly = |size: u32| ByteCount {
            most: i64::from(size),
            is_exact: true,
        };
        match bytes {
            Bytes::Key => facts.map(|facts| exactly(facts.key)),
            Bytes::Value => facts.map(|facts| exactly(facts.value)),
            Bytes::Exactly(size) => Some(exactly(size)),
            Bytes::Argument(argument) => {
                let (least, most) = state.range(argument).filter(|(least, _)| *least >= 0)?;
                Some(ByteCount {
                    most,
                    is_exact: least == most,
                })
            }
        }
    }

    /// Tells whether the program may be iterating over a map. New entries in such a map make the
    /// loop longer.
    fn is_walked(&self, map: PointerFacts<u32>) -> bool {
        let (walks, is_hash) = (
            self.running.walks,
            self.facts(map).is_none_or(|facts| facts.is_hash),
        );
        let may_be_found = |map| {
            self.facts(PointerFacts::Only(map))
                .is_none_or(|facts| facts.is_held)
        };
        let walks_found = walks & 1 << FOUND != 0;
        is_hash
            && match map {
                PointerFacts::Only(map) if map < FOUND => {
                    walks & 1 << map != 0 || walks_found && may_be_found(map)
                }
                PointerFacts::Never => walks_found,
                // The map was found in a map of maps.
                PointerFacts::Only(_) | PointerFacts::Any => {
                    walks_found || (0..FOUND).any(|map| walks & 1 << map != 0 && may_be_found(map))
                }
            }
    }

    /// Follows the function that a helper function calls, until another call of the function adds
    /// no state.
    fn callback(&mut self, at: InstructionIndex, state: &mut MachineState, callback: Callback) {
        let PointerFacts::Only(entry) = state.get(callback.function).function else {
            return self.note(at, Act::CallsBackAnything);
        };
        let mut arguments = [AbstractValue::NUMBER; 5];
        let before = self.running;
        if callback.repeats != Some(CallCount::First) {
            // The called function gets the map, the key and the value.
            let walked = if callback.repeats.is_some() {
                state.get(1)
            } else {
                AbstractValue::MAP
            };
            let value = AbstractValue {
                unaligned: walked.unaligned,
                ..AbstractValue::HARMLESS
            };
            arguments[..3].copy_from_slice(&[walked, AbstractValue::HARMLESS, value]);
            match callback.repeats {
                Some(_) => {
                    let map = if let PointerFacts::Only(map) = walked.map {
                        map.min(FOUND)
                    } else {
                        FOUND
                    };
                    self.running.walks |= 1 << map;
                }
                None => {
                    self.running = RunningCalls {
                        is_timer: true,
                        ..RunningCalls::default()
                    }
                }
            }
        }
        if let Some((from, to)) = callback.handed_on {
            arguments[to - 1] = state.get(from);
        }
        let mut rounds = 0;
        while let Some(end) = self.call(at, state, entry as InstructionIndex, &arguments) {
            rounds += 1;
            let mut after = state.clone();
            after.take_frames(&end);
            if end.has_moved() {
                after.move_packet(at);
            }
            if !state.join(&after, rounds < ROUNDS) {
                break;
            }
        }
        self.running = before;
    }
}
