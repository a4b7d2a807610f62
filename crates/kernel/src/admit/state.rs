//! The state of registers and stack at one instruction.

use std::collections::BTreeMap;

use crate::admit::instruction::{Memory, Register};
use crate::admit::value::{Known, Place, Value};

/// The number of the register that points to the end of the frame.
const FRAME_POINTER: Register = 10;
/// The size of a slot of the stack, in bytes. Only a whole slot can hold a pointer.
const SLOT: i64 = 8;
/// The size of a frame, in bytes.
const FRAME: i64 = 512;

/// The values that registers and stack may hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    registers: [Value; 11],
    /// The frames of all functions that are running; the last one is that of the present function.
    frames: Vec<Frame>,
}

/// The slots of a frame that may hold something else than a number, by their distance from its end in bytes.
type Frame = BTreeMap<i64, Value>;

impl State {
    /// The state in which a function begins that is called with these arguments, R1 and on, in `callers`.
    pub fn call(callers: &[Frame], arguments: &[Value]) -> Self {
        let mut registers = [Value::NONE; 11];
        registers[1..=arguments.len()].copy_from_slice(arguments);
        registers[FRAME_POINTER] = Value::frame(callers.len() as u8);
        let mut frames = callers.to_vec();
        frames.push(Frame::new());
        Self { registers, frames }
    }

    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    pub const fn get(&self, register: Register) -> Value {
        self.registers[register]
    }

    pub const fn set(&mut self, register: Register, value: Value) {
        self.registers[register] = value;
    }

    /// The arguments of a call.
    pub fn arguments(&self) -> [Value; 5] {
        std::array::from_fn(|argument| self.registers[1 + argument])
    }

    /// Ends a call: R1 to R5 are gone, and R0 is the `result`.
    pub fn returned(&mut self, result: Value) {
        self.registers[..=5].fill(Value::NONE);
        self.registers[0] = result;
    }

    /// Takes over what a function that was called has left in the frames of its callers.
    pub fn take_frames(&mut self, callee: &Self) {
        let callers = self.frames.len();
        self.frames.clone_from_slice(&callee.frames[..callers]);
    }

    /// The room that it takes, in registers.
    pub fn size(&self) -> usize {
        self.registers.len() + self.frames.iter().map(Frame::len).sum::<usize>()
    }

    /// Adds everything that is possible in `other`. Returns false if it was possible before.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut is_new = false;
        let mut join = |value: &mut Value, other: Value| {
            let both = value.join(other);
            is_new |= both != *value;
            *value = both;
        };
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            join(value, other);
        }
        for (frame, other) in self.frames.iter_mut().zip(&other.frames) {
            frame.iter_mut().for_each(|(slot, value)| join(value, get(other, *slot)));
            for (slot, value) in other {
                join(frame.entry(*slot).or_insert(Value::NUMBER), *value);
            }
        }
        is_new
    }

    /// Reads from the stack at `memory`, whose base is a pointer to `stack`.
    pub fn load(&self, stack: Known<Place>, memory: Memory) -> Value {
        let of_frame = |frame: &Frame| frame.values().copied().fold(Value::NUMBER, Value::join);
        // The kernel gives back a pointer only from eight bytes.
        if memory.size != SLOT {
            return Value::NUMBER;
        }
        match stack {
            Known::Never => Value::NONE,
            Known::Only(place) => {
                let Some(frame) = self.frames.get(usize::from(place.frame)) else { return Value::NUMBER };
                match start(place, memory) {
                    Some(start) if start % SLOT == 0 => get(frame, start),
                    Some(start) => {
                        touched(start, memory).map(|slot| get(frame, slot)).fold(Value::NUMBER, Value::join)
                    }
                    None => of_frame(frame),
                }
            }
            Known::Any => self.frames.iter().map(of_frame).fold(Value::NUMBER, Value::join),
        }
    }

    /// Writes `value` to the stack at `memory`, whose base is a pointer to `stack`; with `surely`, it is nothing else.
    pub fn store(&mut self, stack: Known<Place>, surely: bool, memory: Memory, value: Value) {
        // The kernel keeps a pointer only in eight bytes.
        let value = if memory.size == SLOT { value } else { Value::NUMBER };
        let anywhere = |frame: &mut Frame| (-FRAME / SLOT..0).for_each(|slot| add(frame, slot * SLOT, value));
        match stack {
            Known::Never => (),
            Known::Only(place) => {
                let Some(frame) = self.frames.get_mut(usize::from(place.frame)) else { return };
                match start(place, memory) {
                    Some(start) if surely && start % SLOT == 0 && memory.size == SLOT => {
                        frame.insert(start, value);
                    }
                    Some(start) => touched(start, memory).for_each(|slot| add(frame, slot, value)),
                    None => anywhere(frame),
                }
            }
            Known::Any => self.frames.iter_mut().for_each(anywhere),
        }
    }

    /// Notes that numbers may be written to the stack, somewhere in the frame that `stack` leads to.
    pub fn fill(&mut self, stack: Known<Place>) {
        let numbers = |frame: &mut Frame| {
            for value in frame.values_mut() {
                *value = value.join(Value::NUMBER);
            }
        };
        match stack {
            Known::Never => (),
            Known::Only(place) => self.frames.get_mut(usize::from(place.frame)).into_iter().for_each(numbers),
            Known::Any => self.frames.iter_mut().for_each(numbers),
        }
    }
}

/// Returns where an access begins, in bytes from the end of the frame; `None` if that is unknown.
fn start(place: Place, memory: Memory) -> Option<i64> {
    let start = i64::from(place.offset?) + memory.offset;
    (start >= -FRAME && start + memory.size <= 0).then_some(start)
}

/// Returns the slots that an access touches.
fn touched(start: i64, memory: Memory) -> impl Iterator<Item = i64> {
    let (first, last) = (start.div_euclid(SLOT), (start + memory.size - 1).div_euclid(SLOT));
    (first..=last).map(|slot| slot * SLOT)
}

/// A slot that nobody has written reads as a number.
fn get(frame: &Frame, slot: i64) -> Value {
    frame.get(&slot).copied().unwrap_or(Value::NUMBER)
}

/// Notes that a slot may hold `value` now, or a number, or what it held before.
fn add(frame: &mut Frame, slot: i64, value: Value) {
    let value = get(frame, slot).join(value).join(Value::NUMBER);
    if value != Value::NUMBER || frame.contains_key(&slot) {
        frame.insert(slot, value);
    }
}
