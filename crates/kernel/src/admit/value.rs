//! The values of registers and of slots of the stack: the lattice of the analysis. For each kind, a
//! value tells whether the kind is possible. For a place that was not written, no kind is possible.
//! [`AbstractValue::join`] is the least upper bound.

mod arithmetic;
mod join;

use crate::admit::value::join::JoinStates;

/// The values that 64 bits may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AbstractValue {
    /// A number: the kernel lets no program use it as a pointer.
    pub number: bool,
    /// The number, if only one number is possible.
    pub constant: PointerFacts<i64>,
    /// A value that reveals a kernel address: a number from a computation with a pointer, or a
    /// pointer moved by such a number.
    pub address: bool,
    /// The lower half of a pointer into the packet, which is a number for the kernel.
    pub half: bool,
    /// A pointer to anything except packet, context and stack: the value of a map, a socket, an
    /// event.
    pub harmless: bool,
    /// A pointer to a map itself, with the map's index in instructions.
    pub map: PointerFacts<u32>,
    /// A pointer to a structure of the kernel, through which a program could read the memory behind
    /// it.
    pub kernel: bool,
    /// A pointer to a map whose values [are not aligned](crate::admit::maps::has_unaligned_values),
    /// to one of its values, or to a map of such maps.
    pub unaligned: bool,
    /// A pointer into the packet or its metadata area, or to its end.
    pub packet: bool,
    /// A pointer of that kind from before a call that may have moved the packet, by the instruction
    /// of the last such call. The kernel takes it for a number.
    pub stale: PointerFacts<u32>,
    /// A pointer into the context, by its offset in bytes.
    pub context: PointerFacts<ByteOffset>,
    /// A pointer into the stack.
    pub stack: PointerFacts<StackPlace>,
    /// The address of a function, which begins there.
    pub function: PointerFacts<u32>,
}

/// A distance in bytes. An offset that is too large for this type counts as unknown.
pub type ByteOffset = i16;

/// The least and the greatest number that a pointer may be moved by.
pub type DistanceRange = (i64, i64);

/// The knowledge about a pointer of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PointerFacts<T> {
    /// There is no such pointer.
    #[default]
    Never,
    /// The only place that a possible pointer leads to.
    Only(T),
    /// Possible pointers may lead anywhere.
    Any,
}

/// A place in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackPlace {
    /// The function that has the frame, by the number of calls that led to it.
    pub frame: u8,
    /// The offset from the frame's end, which is negative; `None` if the offset is unknown.
    pub offset: Option<OffsetRange>,
}

/// The least and the greatest offset that are possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetRange {
    pub first: ByteOffset,
    pub last: ByteOffset,
}

impl OffsetRange {
    pub const fn at(offset: ByteOffset) -> Self {
        Self {
            first: offset,
            last: offset,
        }
    }

    fn moved(self, (least, most): DistanceRange) -> Option<Self> {
        let add =
            |to: ByteOffset, by: i64| ByteOffset::try_from(by.checked_add(i64::from(to))?).ok();
        Some(Self {
            first: add(self.first, least)?,
            last: add(self.last, most)?,
        })
    }
}

impl JoinStates for OffsetRange {
    /// Two single offsets become a range. A range never grows: the result is unknown instead, so
    /// that the analysis of a loop ends.
    fn join(self, other: Self) -> Option<Self> {
        let both = Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        };
        let is_one = |span: Self| span.first == span.last;
        (both == self || both == other || is_one(self) && is_one(other)).then_some(both)
    }
}

impl JoinStates for StackPlace {
    fn join(self, other: Self) -> Option<Self> {
        let offset = self
            .offset
            .zip(other.offset)
            .and_then(|(one, other)| one.join(other));
        (self.frame == other.frame).then_some(Self {
            frame: self.frame,
            offset,
        })
    }
}

impl<T: JoinStates> PointerFacts<T> {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, known) | (known, Self::Never) => known,
            (Self::Only(one), Self::Only(other)) => one.join(other).map_or(Self::Any, Self::Only),
            _ => Self::Any,
        }
    }

    pub fn is_possible(self) -> bool {
        self != Self::Never
    }

    fn map(self, change: impl FnOnce(T) -> Option<T>) -> Self {
        match self {
            Self::Only(one) => change(one).map_or(Self::Any, Self::Only),
            other => other,
        }
    }
}

impl AbstractValue {
    /// No possible value: the program has not written to this place.
    pub const NONE: Self = Self {
        number: false,
        constant: PointerFacts::Never,
        address: false,
        half: false,
        harmless: false,
        map: PointerFacts::Never,
        kernel: false,
        unaligned: false,
        packet: false,
        stale: PointerFacts::Never,
        context: PointerFacts::Never,
        stack: PointerFacts::Never,
        function: PointerFacts::Never,
    };
    pub const NUMBER: Self = Self {
        number: true,
        constant: PointerFacts::Any,
        ..Self::NONE
    };
    /// A number that reveals an address.
    pub const ADDRESS: Self = Self {
        address: true,
        ..Self::NONE
    };
    /// A number, or a pointer to anything except packet, context and stack.
    pub const PLAIN: Self = Self {
        harmless: true,
        ..Self::NUMBER
    };
    pub const HARMLESS: Self = Self {
        harmless: true,
        ..Self::NONE
    };
    pub const PACKET: Self = Self {
        packet: true,
        ..Self::NONE
    };
    /// A pointer to a map that is not known.
    pub const MAP: Self = Self {
        map: PointerFacts::Any,
        ..Self::NONE
    };
    pub const KERNEL: Self = Self {
        kernel: true,
        ..Self::NONE
    };
    /// The context as the kernel gives it to a program.
    pub const CONTEXT: Self = Self {
        context: PointerFacts::Only(0),
        ..Self::NONE
    };

    pub const fn exactly(number: i64) -> Self {
        Self {
            constant: PointerFacts::Only(number),
            ..Self::NUMBER
        }
    }

    /// Tells whether the value is a number that reveals no address, and nothing else.
    pub fn is_only_number(self) -> bool {
        self.without_constant() == Self::NUMBER
    }

    /// Returns the number, if the value can only be this known number.
    pub fn as_constant(self) -> Option<i64> {
        match self.constant {
            PointerFacts::Only(number) if self == Self::exactly(number) => Some(number),
            _ => None,
        }
    }

    /// A pointer to the end of a frame, like R10.
    pub fn frame(frame: u8) -> Self {
        Self {
            stack: PointerFacts::Only(StackPlace {
                frame,
                offset: Some(OffsetRange::at(0)),
            }),
            ..Self::NONE
        }
    }

    pub fn function(entry: u32) -> Self {
        Self {
            function: PointerFacts::Only(entry),
            ..Self::NONE
        }
    }

    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            number: self.number || other.number,
            constant: self.constant.join(other.constant),
            address: self.address || other.address,
            half: self.half || other.half,
            harmless: self.harmless || other.harmless,
            map: self.map.join(other.map),
            kernel: self.kernel || other.kernel,
            unaligned: self.unaligned || other.unaligned,
            packet: self.packet || other.packet,
            stale: self.stale.join(other.stale),
            context: self.context.join(other.context),
            stack: self.stack.join(other.stack),
            function: self.function.join(other.function),
        }
    }

    /// Returns the value without the facts about its number.
    pub fn without_constant(self) -> Self {
        Self {
            constant: if self.number {
                PointerFacts::Any
            } else {
                PointerFacts::Never
            },
            ..self
        }
    }

    /// Returns the value with its possible pointers alone.
    const fn as_pointer(self) -> Self {
        Self {
            number: false,
            constant: PointerFacts::Never,
            address: false,
            half: false,
            ..self
        }
    }

    pub fn may_be_pointer(self) -> bool {
        self.as_pointer() != Self::NONE
    }

    /// Tells whether the value is a pointer into the packet, and nothing else. It is never 0.
    pub fn is_only_packet(self) -> bool {
        self == Self::PACKET
    }

    /// Tells whether the value is a pointer into the stack, and nothing else.
    pub fn is_only_stack(self) -> bool {
        self == Self {
            stack: self.stack,
            ..Self::NONE
        }
    }

    /// Tells whether the value may be a pointer, or may reveal a pointer.
    pub fn tells_address(self) -> bool {
        self.address || self.half || self.may_be_pointer()
    }

    /// Returns the value as it is after the function with this frame has ended.
    #[must_use]
    pub fn left(self, frame: u8) -> Self {
        match self.stack {
            PointerFacts::Only(place) if place.frame == frame => Self {
                stack: PointerFacts::Never,
                ..self
            }
            .join(Self::ADDRESS),
            _ => self,
        }
    }

    /// Returns the value as it is after the call at `call`, which may have moved the packet.
    /// Pointers that an earlier run of the same call has made stale belong to another place.
    #[must_use]
    pub fn moved_by(self, call: u32) -> Self {
        let before = if self.stale == PointerFacts::Only(call) {
            PointerFacts::Any
        } else {
            self.stale
        };
        let stale = if self.packet {
            before.join(PointerFacts::Only(call))
        } else {
            before
        };
        Self {
            packet: false,
            half: false,
            address: self.address || self.half,
            stale,
            ..self
        }
    }
}
