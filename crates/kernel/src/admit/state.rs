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

/// The memory of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The slots that may hold something else than a number, by their distance from the frame's end in bytes.
    slots: BTreeMap<i64, Value>,
    /// The bytes that may be a part of an address, one bit for each.
    told: [u64; (FRAME / 64) as usize],
}

impl State {
    /// The state in which a function begins that is called with these arguments, R1 and on, in `callers`.
    pub fn call(callers: &[Frame], arguments: &[Value]) -> Self {
        let mut registers = [Value::NONE; 11];
        registers[1..=arguments.len()].copy_from_slice(arguments);
        registers[FRAME_POINTER] = Value::frame(callers.len() as u8);
        let mut frames = callers.to_vec();
        frames.push(Frame::default());
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

    /// Notes that the kernel may have written addresses to `size` bytes of the stack.
    pub fn tell(&mut self, stack: Known<Place>, size: i64) {
        let memory = Memory { base: FRAME_POINTER, offset: 0, size };
        self.store(stack, false, memory, Value::ADDRESS);
    }

    /// Takes over what a function that was called has left in the frames of its callers.
    pub fn take_frames(&mut self, callee: &Self) {
        let callers = self.frames.len();
        self.frames.clone_from_slice(&callee.frames[..callers]);
    }

    /// The room that it takes, in registers.
    pub fn size(&self) -> usize {
        self.registers.len() + self.frames.iter().map(|frame| frame.slots.len()).sum::<usize>()
    }

    /// Adds everything that is possible in `other`. Returns false if it was possible before.
    pub fn join(&mut self, other: &Self) -> bool {
        let (mut is_new, mut is_told) = (false, false);
        let mut join = |value: &mut Value, other: Value| {
            let both = value.join(other);
            is_new |= both != *value;
            *value = both;
        };
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            join(value, other);
        }
        for (frame, other) in self.frames.iter_mut().zip(&other.frames) {
            frame.slots.iter_mut().for_each(|(slot, value)| join(value, other.get(*slot)));
            for (slot, value) in &other.slots {
                join(frame.slots.entry(*slot).or_insert(Value::NUMBER), *value);
            }
            for (bytes, other) in frame.told.iter_mut().zip(other.told) {
                is_told |= other & !*bytes != 0;
                *bytes |= other;
            }
        }
        is_new || is_told
    }

    /// Reads from the stack at `memory`, whose base is a pointer to `stack`.
    pub fn load(&self, stack: Known<Place>, memory: Memory) -> Value {
        match stack {
            Known::Never => Value::NONE,
            Known::Only(place) => match self.frames.get(usize::from(place.frame)) {
                Some(frame) => frame.load(start(place, memory), memory.size),
                None => Value::NUMBER,
            },
            Known::Any => {
                self.frames.iter().map(|frame| frame.load(None, memory.size)).fold(Value::NUMBER, Value::join)
            }
        }
    }

    /// Writes `value` to the stack at `memory`, whose base is a pointer to `stack`; with `surely`, it is nothing else.
    pub fn store(&mut self, stack: Known<Place>, surely: bool, memory: Memory, value: Value) {
        match stack {
            Known::Never => (),
            Known::Only(place) => {
                let start = start(place, memory);
                if let Some(frame) = self.frames.get_mut(usize::from(place.frame)) {
                    frame.store(start, surely, memory.size, value);
                }
            }
            Known::Any => {
                self.frames.iter_mut().for_each(|frame| frame.store(None, false, memory.size, value));
            }
        }
    }

    /// Notes that numbers may be written to `size` bytes of the stack from `stack` on, or to all from there on.
    pub fn fill(&mut self, stack: Known<Place>, size: Option<i64>) {
        let numbers = |frame: &mut Frame, start: i64, end: i64| {
            let slots = frame.slots.iter_mut().filter(|(slot, _)| **slot < end && **slot + SLOT > start);
            slots.for_each(|(_, value)| *value = value.join(Value::NUMBER));
        };
        match stack {
            Known::Never => (),
            Known::Only(place) => {
                let start = place.offset.map_or(-FRAME, i64::from);
                let end = size.filter(|_| place.offset.is_some()).map_or(0, |size| start + size);
                let frame = self.frames.get_mut(usize::from(place.frame));
                frame.into_iter().for_each(|frame| numbers(frame, start, end));
            }
            Known::Any => self.frames.iter_mut().for_each(|frame| numbers(frame, -FRAME, 0)),
        }
    }

    /// Tells whether `size` bytes from `stack` on, or all from there on, may be a part of an address.
    pub fn tells_address(&self, stack: Known<Place>, size: Option<i64>) -> bool {
        match stack {
            Known::Never => false,
            Known::Only(place) => self.frames.get(usize::from(place.frame)).is_some_and(|frame| {
                let start = place.offset.map_or(-FRAME, i64::from);
                let end = size.filter(|_| place.offset.is_some()).map_or(0, |size| start + size);
                frame.is_told(start, end)
            }),
            Known::Any => self.frames.iter().any(|frame| frame.is_told(-FRAME, 0)),
        }
    }
}

impl Frame {
    fn load(&self, start: Option<i64>, size: i64) -> Value {
        let (first, end) = start.map_or((-FRAME, 0), |start| (start, start + size));
        let told = if self.is_told(first, end) { Value::ADDRESS } else { Value::NONE };
        // The kernel gives back a pointer only from eight bytes.
        let value = match start {
            _ if size != SLOT => Value::NUMBER,
            Some(start) if start % SLOT == 0 => self.get(start),
            Some(start) => touched(start, size).map(|slot| self.get(slot)).fold(Value::NUMBER, Value::join),
            None => self.slots.values().copied().fold(Value::NUMBER, Value::join),
        };
        // What may be a pointer is taken for one wherever it goes.
        if value.may_be_pointer() { value } else { value.join(told) }
    }

    fn store(&mut self, start: Option<i64>, surely: bool, size: i64, value: Value) {
        let (first, end) = start.map_or((-FRAME, 0), |start| (start, start + size));
        let told = value.tells_address();
        if told || surely && start.is_some() {
            self.tell(first, end, told);
        }
        // The kernel keeps a pointer only in eight bytes.
        let value = if size == SLOT { value.without_constant() } else { Value::NUMBER };
        match start {
            Some(start) if surely && start % SLOT == 0 && size == SLOT => {
                self.slots.insert(start, value);
            }
            Some(start) => touched(start, size).for_each(|slot| self.add(slot, value)),
            None => (-FRAME / SLOT..0).for_each(|slot| self.add(slot * SLOT, value)),
        }
    }

    /// A slot that holds no pointer reads as a number.
    fn get(&self, slot: i64) -> Value {
        self.slots.get(&slot).copied().unwrap_or(Value::NUMBER)
    }

    /// Notes that a slot may hold `value` now, or a number, or what it held before.
    fn add(&mut self, slot: i64, value: Value) {
        let value = self.get(slot).join(value).join(Value::NUMBER);
        if value != Value::NUMBER || self.slots.contains_key(&slot) {
            self.slots.insert(slot, value);
        }
    }

    fn is_told(&self, start: i64, end: i64) -> bool {
        bits(start, end).any(|(word, bit)| self.told[word] & bit != 0)
    }

    /// Notes whether bytes may be a part of an address.
    fn tell(&mut self, start: i64, end: i64, told: bool) {
        for (word, bit) in bits(start, end) {
            self.told[word] = if told { self.told[word] | bit } else { self.told[word] & !bit };
        }
    }
}

/// Returns where the bytes of a frame have their bits.
fn bits(start: i64, end: i64) -> impl Iterator<Item = (usize, u64)> {
    (start.clamp(-FRAME, 0)..end.clamp(-FRAME, 0)).map(|byte| {
        let byte = (byte + FRAME) as usize;
        (byte / 64, 1 << (byte % 64))
    })
}

/// Returns where an access begins, in bytes from the end of the frame; `None` if that is unknown.
fn start(place: Place, memory: Memory) -> Option<i64> {
    let start = i64::from(place.offset?) + memory.offset;
    (start >= -FRAME && start + memory.size <= 0).then_some(start)
}

/// Returns the slots that an access touches.
fn touched(start: i64, size: i64) -> impl Iterator<Item = i64> {
    let (first, last) = (start.div_euclid(SLOT), (start + size - 1).div_euclid(SLOT));
    (first..=last).map(|slot| slot * SLOT)
}
