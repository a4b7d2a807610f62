//! The state of registers and stack at one instruction.

use std::collections::BTreeMap;

use crate::admit::instruction::{InstructionIndex, Memory, Register};
use crate::admit::value::{AbstractValue, OffsetRange, PointerFacts, StackPlace};

/// The number of the register that points to the end of the frame.
const FRAME_POINTER: Register = 10;
/// The size of a slot of the stack, in bytes. Only a whole slot can hold a pointer.
const SLOT: i64 = 8;
/// The size of a frame, in bytes.
const FRAME: i64 = 512;

/// The values that registers and stack may hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineState {
    registers: [AbstractValue; 11],
    /// The frames of all functions that are running; the last one is that of the present function.
    frames: Vec<StackFrame>,
    /// True if the packet may have moved since the function began.
    has_moved: bool,
}

/// The memory of one function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The function whose frame it is, by its first instruction.
    entry: InstructionIndex,
    /// The slots that may hold something else than a number, by their distance from the frame's end in bytes.
    slots: BTreeMap<i64, AbstractValue>,
    /// The bytes that may be a part of an address.
    told: Set,
    /// The bytes that may not have been written.
    unwritten: Set,
}

/// A set of the bytes of a frame, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Set([u64; (FRAME / 64) as usize]);

impl MachineState {
    /// The state in which the function at `entry` begins that is called with these arguments, R1 and on, in `callers`.
    pub fn call(callers: &[StackFrame], entry: InstructionIndex, arguments: &[AbstractValue]) -> Self {
        let mut registers = [AbstractValue::NONE; 11];
        registers[1..=arguments.len()].copy_from_slice(arguments);
        registers[FRAME_POINTER] = AbstractValue::frame(callers.len() as u8);
        let mut frames = callers.to_vec();
        frames.push(StackFrame { entry, slots: BTreeMap::new(), told: Set::default(), unwritten: Set::ALL });
        Self { registers, frames, has_moved: false }
    }

    pub fn frames(&self) -> &[StackFrame] {
        &self.frames
    }

    pub const fn get(&self, register: Register) -> AbstractValue {
        self.registers[register]
    }

    pub const fn set(&mut self, register: Register, value: AbstractValue) {
        self.registers[register] = value;
    }

    /// The arguments of a call.
    pub fn arguments(&self) -> [AbstractValue; 5] {
        std::array::from_fn(|argument| self.registers[1 + argument])
    }

    /// Ends a call: R1 to R5 are unknown, and R0 is the `result`.
    pub fn returned(&mut self, result: AbstractValue) {
        self.registers[..=5].fill(AbstractValue::NONE);
        self.registers[0] = result;
    }

    /// Notes that the kernel may have written addresses to `size` bytes of the stack.
    pub fn tell(&mut self, stack: PointerFacts<StackPlace>, size: i64) {
        let memory = Memory { base: FRAME_POINTER, offset: 0, size };
        self.store(stack, false, memory, AbstractValue::ADDRESS);
    }

    /// Takes over what a function that was called has left in the frames of its callers.
    pub fn take_frames(&mut self, callee: &Self) {
        let callers = self.frames.len();
        self.frames.clone_from_slice(&callee.frames[..callers]);
    }

    /// Tells whether the packet may have moved since the function began, so that pointers of its callers are stale.
    pub const fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Makes pointers to the packet stale: the call at `at` may have moved it.
    pub fn move_packet(&mut self, at: InstructionIndex) {
        self.has_moved = true;
        let slots = self.frames.iter_mut().flat_map(|frame| frame.slots.values_mut());
        for value in self.registers.iter_mut().chain(slots) {
            *value = value.moved_by(at as u32);
        }
    }

    /// The room that it takes, in registers.
    pub fn size(&self) -> usize {
        self.registers.len() + self.frames.iter().map(|frame| frame.slots.len()).sum::<usize>()
    }

    /// Adds everything that is possible in `other`. Returns false if it was possible before.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut is_new = other.has_moved && !self.has_moved;
        self.has_moved |= other.has_moved;
        let mut join = |value: &mut AbstractValue, other: AbstractValue| {
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
                join(frame.slots.entry(*slot).or_insert(AbstractValue::NUMBER), *value);
            }
        }
        for (frame, other) in self.frames.iter_mut().zip(&other.frames) {
            is_new |= frame.told.join(other.told);
            is_new |= frame.unwritten.join(other.unwritten);
        }
        is_new
    }

    /// Reads from the stack at `memory`, whose base is a pointer to `stack`.
    pub fn load(&self, stack: PointerFacts<StackPlace>, memory: Memory) -> AbstractValue {
        match stack {
            PointerFacts::Never => AbstractValue::NONE,
            PointerFacts::Only(place) => match self.frames.get(usize::from(place.frame)) {
                Some(frame) => {
                    frame.load(Bytes::of(place.offset, memory.offset, Some(memory.size)), memory.size)
                }
                None => AbstractValue::NUMBER,
            },
            PointerFacts::Any => self
                .frames
                .iter()
                .map(|frame| frame.load(Bytes::ALL, memory.size))
                .fold(AbstractValue::NUMBER, AbstractValue::join),
        }
    }

    /// Writes `value` to the stack at `memory`, whose base is a pointer to `stack`; with `surely`, it is nothing else.
    pub fn store(
        &mut self,
        stack: PointerFacts<StackPlace>,
        surely: bool,
        memory: Memory,
        value: AbstractValue,
    ) {
        match stack {
            PointerFacts::Never => (),
            PointerFacts::Only(place) => {
                let bytes = Bytes::of(place.offset, memory.offset, Some(memory.size));
                if let Some(frame) = self.frames.get_mut(usize::from(place.frame)) {
                    frame.store(bytes, surely, memory.size, value);
                }
            }
            PointerFacts::Any => {
                self.frames.iter_mut().for_each(|frame| frame.store(Bytes::ALL, false, memory.size, value));
            }
        }
    }

    /// Notes that numbers may be written to `size` bytes of the stack from `stack` on, or to all from there on; with
    /// `surely`, all of these bytes are.
    pub fn fill(&mut self, stack: PointerFacts<StackPlace>, size: Option<i64>, surely: bool) {
        match stack {
            PointerFacts::Never => (),
            PointerFacts::Only(place) => {
                let bytes = Bytes::of(place.offset, 0, size);
                let surely = surely && size.is_some_and(|size| bytes.end - bytes.first == size);
                let frame = self.frames.get_mut(usize::from(place.frame));
                frame.into_iter().for_each(|frame| frame.fill(bytes, surely));
            }
            PointerFacts::Any => self.frames.iter_mut().for_each(|frame| frame.fill(Bytes::ALL, false)),
        }
    }

    /// Tells whether `size` bytes from `stack` on, or all from there on, may be a part of an address.
    pub fn tells_address(&self, stack: PointerFacts<StackPlace>, size: Option<i64>) -> bool {
        self.within(stack, 0, size).any(|(frame, bytes)| frame.told.has(bytes))
    }

    /// Returns the slots that may not have been written among these bytes, and the function whose they are: one bit for each,
    /// the lowest for the one at the frame's start.
    pub fn unwritten(
        &self,
        stack: PointerFacts<StackPlace>,
        distance: i64,
        size: Option<i64>,
    ) -> impl Iterator<Item = (InstructionIndex, u64)> {
        self.within(stack, distance, size).map(|(frame, bytes)| {
            let is_unwritten = |slot: &i64| {
                let (first, end) = (bytes.first.max(*slot), bytes.end.min(slot + SLOT));
                frame.unwritten.has(Bytes { first, end })
            };
            let slots = bytes.slots().filter(is_unwritten).map(|slot| 1 << ((slot + FRAME) / SLOT));
            (frame.entry, slots.fold(0, |all, slot: u64| all | slot))
        })
    }

    /// Returns the bytes of frames that `size` bytes may be, or all, at a distance from `stack`.
    fn within(
        &self,
        stack: PointerFacts<StackPlace>,
        distance: i64,
        size: Option<i64>,
    ) -> impl Iterator<Item = (&StackFrame, Bytes)> {
        let frames = self.frames.iter().enumerate();
        frames.filter_map(move |(index, frame)| match stack {
            PointerFacts::Never => None,
            PointerFacts::Only(place) => {
                (index == usize::from(place.frame)).then(|| (frame, Bytes::of(place.offset, distance, size)))
            }
            PointerFacts::Any => Some((frame, Bytes::ALL)),
        })
    }
}

impl StackFrame {
    fn load(&self, bytes: Bytes, size: i64) -> AbstractValue {
        let told = if self.told.has(bytes) { AbstractValue::ADDRESS } else { AbstractValue::NONE };
        // The kernel gives back a pointer only from eight bytes.
        let value = match bytes.slot() {
            _ if size != SLOT => AbstractValue::NUMBER,
            Some(slot) => self.get(slot),
            None => bytes.slots().map(|slot| self.get(slot)).fold(AbstractValue::NUMBER, AbstractValue::join),
        };
        // What may be a pointer is taken for one wherever it goes.
        if value.may_be_pointer() { value } else { value.join(told) }
    }

    fn store(&mut self, bytes: Bytes, surely: bool, size: i64, value: AbstractValue) {
        let surely = surely && bytes.end - bytes.first == size;
        let told = value.tells_address();
        if told || surely {
            self.told.set(bytes, told);
        }
        if surely {
            self.unwritten.set(bytes, false);
        }
        // The kernel keeps a pointer only in eight bytes.
        let value = if size == SLOT { value.without_constant() } else { AbstractValue::NUMBER };
        match bytes.slot() {
            Some(slot) if surely && size == SLOT => {
                self.slots.insert(slot, value);
            }
            _ => bytes.slots().for_each(|slot| self.add(slot, value)),
        }
    }

    /// A slot that holds no pointer reads as a number.
    fn get(&self, slot: i64) -> AbstractValue {
        self.slots.get(&slot).copied().unwrap_or(AbstractValue::NUMBER)
    }

    /// Notes that a slot may hold `value` now, or a number, or what it held before.
    fn add(&mut self, slot: i64, value: AbstractValue) {
        let value = self.get(slot).join(value).join(AbstractValue::NUMBER);
        if value != AbstractValue::NUMBER || self.slots.contains_key(&slot) {
            self.slots.insert(slot, value);
        }
    }

    fn fill(&mut self, bytes: Bytes, surely: bool) {
        if surely {
            self.told.set(bytes, false);
            self.unwritten.set(bytes, false);
            self.slots.retain(|slot, _| *slot < bytes.first || slot + SLOT > bytes.end);
        }
        let touched = |slot: i64| slot < bytes.end && slot + SLOT > bytes.first;
        let slots = self.slots.iter_mut().filter(|(slot, _)| touched(**slot));
        slots.for_each(|(_, value)| *value = value.join(AbstractValue::NUMBER));
    }
}

impl Set {
    const ALL: Self = Self([u64::MAX; (FRAME / 64) as usize]);

    fn has(&self, bytes: Bytes) -> bool {
        bits(bytes).any(|(word, bit)| self.0[word] & bit != 0)
    }

    fn set(&mut self, bytes: Bytes, to: bool) {
        for (word, bit) in bits(bytes) {
            self.0[word] = if to { self.0[word] | bit } else { self.0[word] & !bit };
        }
    }

    /// Adds the bytes of `other`. Returns false if they were there.
    fn join(&mut self, other: Self) -> bool {
        let before = *self;
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
        *self != before
    }
}

/// The bytes of a frame that an access may touch, by their distance from its end.
#[derive(Clone, Copy)]
struct Bytes {
    first: i64,
    end: i64,
}

impl Bytes {
    const ALL: Self = Self { first: -FRAME, end: 0 };

    /// Returns the bytes of an access that may begin in this span, at a distance from it.
    fn of(span: Option<OffsetRange>, distance: i64, size: Option<i64>) -> Self {
        let Some(span) = span else {
            return Self::ALL;
        };
        let first = i64::from(span.first) + distance;
        let end = size.map_or(0, |size| i64::from(span.last) + distance + size);
        if first >= -FRAME && end <= 0 { Self { first, end } } else { Self::ALL }
    }

    /// Returns the slot that these bytes are.
    fn slot(self) -> Option<i64> {
        (self.first % SLOT == 0 && self.end - self.first == SLOT).then_some(self.first)
    }

    /// Returns the slots that the bytes are in.
    fn slots(self) -> impl Iterator<Item = i64> {
        (self.first.div_euclid(SLOT)..=(self.end - 1).div_euclid(SLOT)).map(|slot| slot * SLOT)
    }
}

/// Returns where the bytes of a frame have their bits.
fn bits(bytes: Bytes) -> impl Iterator<Item = (usize, u64)> {
    (bytes.first.clamp(-FRAME, 0)..bytes.end.clamp(-FRAME, 0)).map(|byte| {
        let byte = (byte + FRAME) as usize;
        (byte / 64, 1 << (byte % 64))
    })
}
