//! The values of registers and slots of the stack: the lattice of the analysis. A value says of each kind whether it is
//! possible; nothing is possible of what nobody has written. [`Value::join`] is the least upper bound.

use crate::admit::instruction::Operation;

/// The values that 64 bits may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Value {
    /// A number: the kernel lets no program use it as a pointer.
    pub number: bool,
    /// A pointer to something that is neither packet, context nor stack: a map, its value, a socket, an event.
    pub harmless: bool,
    /// A pointer to a map whose values [are not aligned](crate::admit::maps::has_unaligned_values), to one of its values,
    /// or to a map of such maps. It is harmless, too.
    pub unaligned: bool,
    /// A pointer into the packet or its metadata area, or to its end.
    pub packet: bool,
    /// A pointer into the context, by its offset in bytes.
    pub context: Known<Offset>,
    /// A pointer into the stack.
    pub stack: Known<Place>,
    /// The address of a function, which begins there.
    pub function: Known<u32>,
}

/// A distance in bytes. One that is too large for it is as good as unknown.
pub type Offset = i16;

/// The knowledge about a pointer of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Known<T> {
    /// There is no such pointer.
    #[default]
    Never,
    /// If there is one, it leads here.
    Only(T),
    /// If there is one, it may lead anywhere.
    Any,
}

/// A place in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The function whose frame it is, by the number of calls that led to it.
    pub frame: u8,
    /// The offset from the frame's end, below zero; `None` if unknown.
    pub offset: Option<Offset>,
}

/// A value of which two others are special cases.
pub trait Join: Copy + PartialEq {
    /// Returns the least value that both are cases of; `None` if there is none.
    fn join(self, other: Self) -> Option<Self>;
}

impl Join for Offset {
    fn join(self, other: Self) -> Option<Self> {
        (self == other).then_some(self)
    }
}

impl Join for u32 {
    fn join(self, other: Self) -> Option<Self> {
        (self == other).then_some(self)
    }
}

impl Join for Place {
    fn join(self, other: Self) -> Option<Self> {
        let offset = if self.offset == other.offset { self.offset } else { None };
        (self.frame == other.frame).then_some(Self { frame: self.frame, offset })
    }
}

impl<T: Join> Known<T> {
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

impl Value {
    /// Nothing: nobody has written here.
    pub const NONE: Self = Self {
        number: false,
        harmless: false,
        unaligned: false,
        packet: false,
        context: Known::Never,
        stack: Known::Never,
        function: Known::Never,
    };
    pub const NUMBER: Self = Self { number: true, ..Self::NONE };
    /// A number or a pointer to something harmless.
    pub const PLAIN: Self = Self { number: true, harmless: true, ..Self::NONE };
    pub const HARMLESS: Self = Self { harmless: true, ..Self::NONE };
    pub const UNALIGNED: Self = Self { unaligned: true, ..Self::HARMLESS };
    pub const PACKET: Self = Self { packet: true, ..Self::NONE };
    /// The context as the kernel gives it to a program.
    pub const CONTEXT: Self = Self { context: Known::Only(0), ..Self::NONE };

    /// A pointer to the end of a frame, as R10 is one.
    pub fn frame(frame: u8) -> Self {
        Self { stack: Known::Only(Place { frame, offset: Some(0) }), ..Self::NONE }
    }

    pub fn function(entry: u32) -> Self {
        Self { function: Known::Only(entry), ..Self::NONE }
    }

    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            number: self.number || other.number,
            harmless: self.harmless || other.harmless,
            unaligned: self.unaligned || other.unaligned,
            packet: self.packet || other.packet,
            context: self.context.join(other.context),
            stack: self.stack.join(other.stack),
            function: self.function.join(other.function),
        }
    }

    /// The pointers that the value may be.
    const fn as_pointer(self) -> Self {
        Self { number: false, ..self }
    }

    fn may_be_pointer(self) -> bool {
        self.as_pointer() != Self::NONE
    }

    /// The value this far from it, or anywhere around it if `distance` is `None`.
    fn moved(self, distance: Option<i64>) -> Self {
        let add = |offset: Offset| Offset::try_from(distance?.checked_add(i64::from(offset))?).ok();
        Self {
            context: self.context.map(add),
            stack: self.stack.map(|place| Some(Place { offset: place.offset.and_then(add), ..place })),
            ..self
        }
    }

    /// The value once the function with this frame has ended.
    #[must_use]
    pub fn left(self, frame: u8) -> Self {
        match self.stack {
            Known::Only(place) if place.frame == frame => Self { number: true, stack: Known::Never, ..self },
            _ => self,
        }
    }

    /// The result of `self operation other`, where `constant` is the number that `other` is, if it is known.
    ///
    /// The kernel refuses a sum of two pointers, and a number less a pointer. The difference of two pointers is a number,
    /// and so is what any other operation makes of a pointer.
    #[must_use]
    pub fn combine(self, operation: Operation, other: Self, constant: Option<i64>) -> Self {
        match operation {
            Operation::Move => other,
            Operation::Add => {
                let left = if other.number { self.as_pointer().moved(constant) } else { Self::NONE };
                let right = if self.number { other.as_pointer().moved(None) } else { Self::NONE };
                let number = self.number && other.number;
                Self { number, ..left.join(right) }
            }
            Operation::Subtract => {
                let distance = constant.map(|constant| -constant);
                let left = if other.number { self.as_pointer().moved(distance) } else { Self::NONE };
                let both = self.may_be_pointer() && other.may_be_pointer();
                Self { number: both || self.number && other.number, ..left }
            }
            Operation::Other => Self::NUMBER,
        }
    }
}
