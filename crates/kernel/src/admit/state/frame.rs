//! The memory of one function: the possible content of each slot of its stack, and the possible
//! role of each byte.

use std::collections::BTreeMap;

use crate::admit::instruction::InstructionIndex;
use crate::admit::value::{AbstractValue, OffsetRange};

/// The size of a slot of the stack, in bytes. Only a whole slot can hold a pointer.
pub const SLOT: i64 = 8;
/// The size of a frame, in bytes.
pub const FRAME: i64 = 512;

/// The memory of one function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The first instruction of the function that has the frame.
    pub entry: InstructionIndex,
    /// The slots that may contain something other than a number, by their distance from the frame's
    /// end in bytes.
    pub slots: BTreeMap<i64, AbstractValue>,
    /// The bytes that may be a part of an address.
    pub told: ByteSet,
    /// The bytes that may not have been written.
    pub unwritten: ByteSet,
    /// The bytes that may be a part of a dynptr of the packet.
    pub of_packet: ByteSet,
}

/// A set of the bytes of a frame, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteSet([u64; (FRAME / 64) as usize]);

impl StackFrame {
    /// Returns the frame of the function at `entry` before its first instruction: nothing was
    /// written to the frame.
    pub fn new(entry: InstructionIndex) -> Self {
        let (told, of_packet) = (ByteSet::default(), ByteSet::default());
        Self {
            entry,
            slots: BTreeMap::new(),
            told,
            unwritten: ByteSet::ALL,
            of_packet,
        }
    }

    pub fn load(&self, bytes: FrameBytes, size: i64) -> AbstractValue {
        let told = if self.told.has(bytes) {
            AbstractValue::ADDRESS
        } else {
            AbstractValue::NONE
        };
        // A read gives a pointer only if it reads all eight bytes of a slot.
        let value = match bytes.slot() {
            _ if size != SLOT => AbstractValue::NUMBER,
            Some(slot) => self.get(slot),
            None => bytes
                .slots()
                .map(|slot| self.get(slot))
                .fold(AbstractValue::NUMBER, AbstractValue::join),
        };
        // The analysis treats a value that may be a pointer like a pointer.
        if value.may_be_pointer() {
            value
        } else {
            value.join(told)
        }
    }

    pub fn store(&mut self, bytes: FrameBytes, surely: bool, size: i64, value: AbstractValue) {
        let surely = surely && bytes.end - bytes.first == size;
        let told = value.tells_address();
        if told || surely {
            self.told.set(bytes, told);
        }
        if surely {
            self.unwritten.set(bytes, false);
        }
        // A write keeps a pointer only if it writes all eight bytes of a slot.
        let value = if size == SLOT {
            value.without_constant()
        } else {
            AbstractValue::NUMBER
        };
        match bytes.slot() {
            Some(slot) if surely && size == SLOT => {
                self.slots.insert(slot, value);
            }
            _ => bytes.slots().for_each(|slot| self.add(slot, value)),
        }
    }

    /// Returns the content of a slot. A slot that contains no pointer reads as a number.
    pub fn get(&self, slot: i64) -> AbstractValue {
        self.slots
            .get(&slot)
            .copied()
            .unwrap_or(AbstractValue::NUMBER)
    }

    /// Notes that a slot may hold `value` now, or a number, or its earlier content.
    pub fn add(&mut self, slot: i64, value: AbstractValue) {
        let value = self.get(slot).join(value).join(AbstractValue::NUMBER);
        if value != AbstractValue::NUMBER || self.slots.contains_key(&slot) {
            self.slots.insert(slot, value);
        }
    }

    pub fn fill(&mut self, bytes: FrameBytes, surely: bool) {
        if surely {
            self.told.set(bytes, false);
            self.unwritten.set(bytes, false);
            self.slots
                .retain(|slot, _| *slot < bytes.first || slot + SLOT > bytes.end);
        }
        let touched = |slot: i64| slot < bytes.end && slot + SLOT > bytes.first;
        let slots = self.slots.iter_mut().filter(|(slot, _)| touched(**slot));
        slots.for_each(|(_, value)| *value = value.join(AbstractValue::NUMBER));
    }
}

impl ByteSet {
    pub const ALL: Self = Self([u64::MAX; (FRAME / 64) as usize]);

    pub fn has(&self, bytes: FrameBytes) -> bool {
        bits(bytes).any(|(word, bit)| self.0[word] & bit != 0)
    }

    pub fn set(&mut self, bytes: FrameBytes, to: bool) {
        for (word, bit) in bits(bytes) {
            self.0[word] = if to {
                self.0[word] | bit
            } else {
                self.0[word] & !bit
            };
        }
    }

    /// Adds the bytes of `other`. Returns false if the set contained all of them before.
    pub fn join(&mut self, other: Self) -> bool {
        let before = *self;
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(word, other)| *word |= other);
        *self != before
    }
}

/// The bytes of a frame that an access may touch, by their distance from the frame's end.
#[derive(Clone, Copy)]
pub struct FrameBytes {
    pub first: i64,
    pub end: i64,
}

impl FrameBytes {
    pub const ALL: Self = Self {
        first: -FRAME,
        end: 0,
    };

    /// Returns the bytes of an access at a distance from a position in this span.
    pub fn of(span: Option<OffsetRange>, distance: i64, size: Option<i64>) -> Self {
        let Some(span) = span else {
            return Self::ALL;
        };
        let first = i64::from(span.first) + distance;
        let end = size.map_or(0, |size| i64::from(span.last) + distance + size);
        if first >= -FRAME && end <= 0 {
            Self { first, end }
        } else {
            Self::ALL
        }
    }

    /// Returns the slot that these bytes fill exactly; `None` if they do not.
    pub fn slot(self) -> Option<i64> {
        (self.first % SLOT == 0 && self.end - self.first == SLOT).then_some(self.first)
    }

    /// Returns the slots that contain the bytes.
    pub fn slots(self) -> impl Iterator<Item = i64> {
        (self.first.div_euclid(SLOT)..=(self.end - 1).div_euclid(SLOT)).map(|slot| slot * SLOT)
    }
}

/// Returns the word and the bit of each of these bytes in a [`ByteSet`].
fn bits(bytes: FrameBytes) -> impl Iterator<Item = (usize, u64)> {
    (bytes.first.clamp(-FRAME, 0)..bytes.end.clamp(-FRAME, 0)).map(|byte| {
        let byte = (byte + FRAME) as usize;
        (byte / 64, 1 << (byte % 64))
    })
}
