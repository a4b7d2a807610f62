//! The state of registers and stack at one instruction.

pub mod frame;

use crate::admit::instruction::{InstructionIndex, Memory, Register};
use crate::admit::state::frame::{FRAME, FrameBytes, SLOT, StackFrame};
use crate::admit::value::{AbstractValue, DistanceRange, PointerFacts, StackPlace};
use crate::admit::work::registers::{RegisterFacts, Registers};

/// The number of the register that points to the end of the frame.
const FRAME_POINTER: Register = 10;
/// The size of a dynptr, in bytes.
pub const DYNPTR: i64 = 16;

/// The values that registers and stack may hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineState {
    registers: [AbstractValue; 11],
    /// The known bounds of the numbers in registers.
    pub known: Registers,
    /// The frames of all functions that are running. The last frame is that of the current
    /// function.
    frames: Vec<StackFrame>,
    /// True if the packet may have moved since the function began.
    has_moved: bool,
}

impl MachineState {
    /// Returns the state at the start of the function at `entry`. `callers` are the frames of the
    /// running functions, and `arguments` the values of R1 and the registers after it.
    pub fn call(
        callers: &[StackFrame],
        entry: InstructionIndex,
        arguments: &[AbstractValue],
    ) -> Self {
        let mut registers = [AbstractValue::NONE; 11];
        registers[1..=arguments.len()].copy_from_slice(arguments);
        registers[FRAME_POINTER] = AbstractValue::frame(callers.len() as u8);
        let mut frames = callers.to_vec();
        frames.push(StackFrame::new(entry));
        Self {
            registers,
            known: Registers::UNKNOWN,
            frames,
            has_moved: false,
        }
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

    /// Returns the least and the greatest number that a register may have; `None` if these are
    /// unknown, or if the register may contain a pointer.
    pub fn range(&self, register: Register) -> Option<DistanceRange> {
        let value = self.registers[register];
        match (value.as_constant(), self.known[register]) {
            (Some(number), _) => Some((number, number)),
            (None, RegisterFacts::Most(most)) if value.is_only_number() => {
                Some((0, i64::try_from(most).ok()?))
            }
            _ => None,
        }
    }

    /// The arguments of a call.
    pub fn arguments(&self) -> [AbstractValue; 5] {
        std::array::from_fn(|argument| self.registers[1 + argument])
    }

    /// Ends a call: R1 to R5 become unknown, and R0 gets the `result`.
    pub fn returned(&mut self, result: AbstractValue) {
        self.registers[..=5].fill(AbstractValue::NONE);
        (0..=5).for_each(|register| self.known.set(register, RegisterFacts::Nothing));
        self.registers[0] = result;
    }

    /// Notes that the kernel may have written addresses to `size` bytes of the stack, from `stack`
    /// on.
    pub fn tell(&mut self, stack: PointerFacts<StackPlace>, size: i64) {
        let memory = Memory {
            base: FRAME_POINTER,
            offset: 0,
            size,
        };
        self.store(stack, false, memory, AbstractValue::ADDRESS);
    }

    /// Notes that the kernel makes a dynptr at `stack` and writes an address there. `of_packet` is
    /// true for a dynptr of the packet. `surely` is true if the kernel can make the dynptr at no
    /// other place.
    ///
    /// A dynptr stays where it was made: the kernel copies no dynptr, and makes none outside of the
    /// stack. A write over a dynptr ends the dynptr, so bytes that were copied or overwritten are
    /// never a dynptr of the packet.
    pub fn make_dynptr(&mut self, stack: PointerFacts<StackPlace>, surely: bool, of_packet: bool) {
        self.tell(stack, DYNPTR);
        match stack {
            PointerFacts::Never => (),
            PointerFacts::Only(place) => {
                let bytes = FrameBytes::of(place.offset, 0, Some(DYNPTR));
                let is_known = surely && bytes.end - bytes.first == DYNPTR;
                let frame = self.frames.get_mut(usize::from(place.frame));
                let frame = frame.filter(|_| of_packet || is_known);
                frame
                    .into_iter()
                    .for_each(|frame| frame.of_packet.set(bytes, of_packet));
            }
            PointerFacts::Any if of_packet => {
                self.frames
                    .iter_mut()
                    .for_each(|frame| frame.of_packet.set(FrameBytes::ALL, true));
            }
            PointerFacts::Any => (),
        }
    }

    /// Tells whether the dynptr at `stack` may be a dynptr of the packet.
    pub fn is_of_packet(&self, stack: PointerFacts<StackPlace>) -> bool {
        self.within(stack, 0, Some(DYNPTR))
            .any(|(frame, bytes)| frame.of_packet.has(bytes))
    }

    /// Takes over the changes that a called function has made to the frames of its callers.
    pub fn take_frames(&mut self, callee: &Self) {
        let callers = self.frames.len();
        self.frames.clone_from_slice(&callee.frames[..callers]);
    }

    /// Tells whether the packet may have moved since the function began, so that pointers of its
    /// callers are stale.
    pub const fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Makes pointers to the packet stale: the call at `at` may have moved it.
    pub fn move_packet(&mut self, at: InstructionIndex) {
        self.has_moved = true;
        let slots = self
            .frames
            .iter_mut()
            .flat_map(|frame| frame.slots.values_mut());
        for value in self.registers.iter_mut().chain(slots) {
            *value = value.moved_by(at as u32);
        }
    }

    /// Returns the size of the state, in registers.
    pub fn size(&self) -> usize {
        self.registers.len()
            + self
                .frames
                .iter()
                .map(|frame| frame.slots.len())
                .sum::<usize>()
    }

    /// Adds all possibilities of `other`. Returns false if `self` had all of them before. Without
    /// `exact`, ranges that would grow become unknown, so that the analysis of a loop ends.
    pub fn join(&mut self, other: &Self, exact: bool) -> bool {
        let mut is_new = other.has_moved && !self.has_moved;
        self.has_moved |= other.has_moved;
        is_new |= self.known.join(other.known, exact);
        let mut join = |value: &mut AbstractValue, other: AbstractValue| {
            let mut both = value.join(other);
            if !exact && both.stack != value.stack && value.stack.is_possible() {
                both.stack = PointerFacts::Any;
            }
            is_new |= both != *value;
            *value = both;
        };
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            join(value, other);
        }
        for (frame, other) in self.frames.iter_mut().zip(&other.frames) {
            frame
                .slots
                .iter_mut()
                .for_each(|(slot, value)| join(value, other.get(*slot)));
            for (slot, value) in &other.slots {
                join(
                    frame.slots.entry(*slot).or_insert(AbstractValue::NUMBER),
                    *value,
                );
            }
        }
        for (frame, other) in self.frames.iter_mut().zip(&other.frames) {
            is_new |= frame.told.join(other.told);
            is_new |= frame.unwritten.join(other.unwritten);
            is_new |= frame.of_packet.join(other.of_packet);
        }
        is_new
    }

    /// Reads from the stack at `memory`, whose base is a pointer to `stack`.
    pub fn load(&self, stack: PointerFacts<StackPlace>, memory: Memory) -> AbstractValue {
        match stack {
            PointerFacts::Never => AbstractValue::NONE,
            PointerFacts::Only(place) => match self.frames.get(usize::from(place.frame)) {
                Some(frame) => frame.load(
                    FrameBytes::of(place.offset, memory.offset, Some(memory.size)),
                    memory.size,
                ),
                None => AbstractValue::NUMBER,
            },
            PointerFacts::Any => self
                .frames
                .iter()
                .map(|frame| frame.load(FrameBytes::ALL, memory.size))
                .fold(AbstractValue::NUMBER, AbstractValue::join),
        }
    }

    /// Writes `value` to the stack at `memory`, whose base is a pointer to `stack`. `surely` is
    /// true if the base can't be anything else.
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
                let bytes = FrameBytes::of(place.offset, memory.offset, Some(memory.size));
                if let Some(frame) = self.frames.get_mut(usize::from(place.frame)) {
                    frame.store(bytes, surely, memory.size, value);
                }
            }
            PointerFacts::Any => {
                self.frames
                    .iter_mut()
                    .for_each(|frame| frame.store(FrameBytes::ALL, false, memory.size, value));
            }
        }
    }

    /// Notes that the program may have written numbers to `size` bytes of the stack from `stack`
    /// on; without a size, to all bytes from there on. `surely` is true if the program has written
    /// all of these bytes.
    pub fn fill(&mut self, stack: PointerFacts<StackPlace>, size: Option<i64>, surely: bool) {
        match stack {
            PointerFacts::Never => (),
            PointerFacts::Only(place) => {
                let bytes = FrameBytes::of(place.offset, 0, size);
                let surely = surely && size.is_some_and(|size| bytes.end - bytes.first == size);
                let frame = self.frames.get_mut(usize::from(place.frame));
                frame
                    .into_iter()
                    .for_each(|frame| frame.fill(bytes, surely));
            }
            PointerFacts::Any => self
                .frames
                .iter_mut()
                .for_each(|frame| frame.fill(FrameBytes::ALL, false)),
        }
    }

    /// Tells whether `size` bytes from `stack` on may contain a part of an address; without a size,
    /// all bytes from there on.
    pub fn tells_address(&self, stack: PointerFacts<StackPlace>, size: Option<i64>) -> bool {
        self.within(stack, 0, size)
            .any(|(frame, bytes)| frame.told.has(bytes))
    }

    /// Returns those slots among these bytes that the program may not have written yet, for each
    /// frame by the index of its function's first instruction. Each slot has one bit; the lowest
    /// bit is for the slot at the frame's start.
    pub fn unwritten(
        &self,
        stack: PointerFacts<StackPlace>,
        distance: i64,
        size: Option<i64>,
    ) -> impl Iterator<Item = (InstructionIndex, u64)> {
        self.within(stack, distance, size).map(|(frame, bytes)| {
            let is_unwritten = |slot: &i64| {
                let (first, end) = (bytes.first.max(*slot), bytes.end.min(slot + SLOT));
                frame.unwritten.has(FrameBytes { first, end })
            };
            let slots = bytes
                .slots()
                .filter(is_unwritten)
                .map(|slot| 1 << ((slot + FRAME) / SLOT));
            (frame.entry, slots.fold(0, |all, slot: u64| all | slot))
        })
    }

    /// Returns the frames that an access of `size` bytes at `distance` from `stack` may touch, and
    /// the bytes in each frame.
    fn within(
        &self,
        stack: PointerFacts<StackPlace>,
        distance: i64,
        size: Option<i64>,
    ) -> impl Iterator<Item = (&StackFrame, FrameBytes)> {
        let frames = self.frames.iter().enumerate();
        frames.filter_map(move |(index, frame)| match stack {
            PointerFacts::Never => None,
            PointerFacts::Only(place) => (index == usize::from(place.frame))
                .then(|| (frame, FrameBytes::of(place.offset, distance, size))),
            PointerFacts::Any => Some((frame, FrameBytes::ALL)),
        })
    }
}
