//! The results of operations on values: which kinds of values a sum, a difference or the lower half
//! may be.

use crate::admit::instruction::Operation;
use crate::admit::value::{AbstractValue, ByteOffset, DistanceRange, PointerFacts, StackPlace};

impl AbstractValue {
    /// Returns the result of `self operation other`. The number `other` is in `range`, if the range
    /// is known.
    ///
    /// The kernel refuses a sum of two pointers, and a number minus a pointer. The difference of
    /// two pointers is a number. The result of any other operation on a pointer is a number as
    /// well.
    #[must_use]
    pub fn combine(self, operation: Operation, other: Self, range: Option<DistanceRange>) -> Self {
        match operation {
            Operation::Move => other,
            Operation::MoveLow => other.low(),
            Operation::Add => self.sum(other, range),
            Operation::Subtract => self.difference(other, range),
            Operation::AddLow => self.low_sum(other),
            Operation::SubtractLow => self.low_difference(other),
            Operation::Other => Self {
                address: self.tells_address() || other.tells_address(),
                ..Self::NUMBER
            },
        }
    }

    /// Returns the sum of two values, of which `other` is in `range`, if the range is known.
    fn sum(self, other: Self, range: Option<DistanceRange>) -> Self {
        let left = if other.may_be_distance() {
            self.as_pointer().moved(range)
        } else {
            Self::NONE
        };
        let right = if self.may_be_distance() {
            other.as_pointer().moved(None)
        } else {
            Self::NONE
        };
        let halves = self.half && (other.half || other.may_be_pointer());
        let address =
            self.address || other.address || halves || other.half && self.may_be_pointer();
        left.join(right)
            .join(self.of_numbers(other, i64::wrapping_add, address))
    }

    /// Returns the value minus `other`, which is in `range`, if the range is known.
    fn difference(self, other: Self, range: Option<DistanceRange>) -> Self {
        let distance = range.and_then(|(least, most)| most.checked_neg().zip(least.checked_neg()));
        let left = if other.may_be_distance() {
            self.as_pointer().moved(distance)
        } else {
            Self::NONE
        };
        let halves = self.half && other.may_be_pointer()
            || other.half && (self.number || self.may_be_pointer());
        let address = self.address || other.address || halves || self.is_apart(other);
        let length = if self.is_near(other) {
            Self::NUMBER
        } else {
            Self::NONE
        };
        left.join(length)
            .join(self.of_numbers(other, i64::wrapping_sub, address))
    }

    /// Returns the lower 32 bits of the sum of two values.
    fn low_sum(self, other: Self) -> Self {
        let address =
            self.address || other.address || self.may_be_pointer() || other.may_be_pointer();
        self.of_numbers(other, i64::wrapping_add, address || self.half && other.half)
            .low()
    }

    /// Returns the lower 32 bits of the value minus `other`.
    fn low_difference(self, other: Self) -> Self {
        let (one, two) = (self.without_stale().low(), other.without_stale().low());
        let [is_stale, other_is_stale] = [self, other].map(|value| value.stale.is_possible());
        let mixed = is_stale && other.without_stale() != Self::NONE
            || other_is_stale && self.without_stale() != Self::NONE
            || self.is_stale_apart(other);
        let address = one.address || two.address || two.half && one.number || mixed;
        let is_length = one.half && two.half || is_stale && other_is_stale;
        let length = if is_length { Self::NUMBER } else { Self::NONE };
        length.join(one.of_numbers(two, i64::wrapping_sub, address).low())
    }

    /// Returns the sum or difference of numbers, or of a pointer's lower half and a number. With
    /// `address`, the result also covers values that reveal an address.
    fn of_numbers(self, other: Self, calculate: fn(i64, i64) -> i64, address: bool) -> Self {
        let constant = match (self.constant, other.constant) {
            (PointerFacts::Never, _) | (_, PointerFacts::Never) => PointerFacts::Never,
            (PointerFacts::Only(one), PointerFacts::Only(other)) => {
                PointerFacts::Only(calculate(one, other))
            }
            _ => PointerFacts::Any,
        };
        let half = self.half && other.number || other.half && self.number;
        Self {
            number: self.number && other.number,
            constant,
            half,
            address,
            ..Self::NONE
        }
    }

    /// Returns the value that is moved by `distance`; if `distance` is `None`, the value may have
    /// moved by any number of bytes.
    fn moved(self, distance: Option<DistanceRange>) -> Self {
        let exactly = distance
            .filter(|(least, most)| least == most)
            .map(|(distance, _)| distance);
        let add = |offset: ByteOffset| {
            ByteOffset::try_from(exactly?.checked_add(i64::from(offset))?).ok()
        };
        Self {
            context: self.context.map(add),
            stack: self.stack.map(|place| {
                Some(StackPlace {
                    offset: place
                        .offset
                        .zip(distance)
                        .and_then(|(span, by)| span.moved(by)),
                    ..place
                })
            }),
            ..self
        }
    }

    /// Returns the value without the possibility of stale pointers.
    fn without_stale(self) -> Self {
        Self {
            stale: PointerFacts::Never,
            ..self
        }
    }

    /// Returns the lower 32 bits of the value.
    fn low(self) -> Self {
        let others = Self {
            packet: false,
            ..self.as_pointer()
        };
        Self {
            number: self.number,
            constant: self.constant.map(|number| Some(i64::from(number as u32))),
            address: self.address || others != Self::NONE,
            half: self.half || self.packet,
            ..Self::NONE
        }
    }

    /// Tells whether the value can be added to a pointer.
    const fn may_be_distance(self) -> bool {
        self.number || self.address || self.half
    }

    /// Tells whether both values may be pointers into the same memory, or lower halves of such
    /// pointers: then their difference is a length.
    fn is_near(self, other: Self) -> bool {
        self.packet && other.packet
            || self.stale.is_possible() && other.stale.is_possible()
            || self.half && other.half
            || self.context.is_possible() && other.context.is_possible()
            || self.stack.is_possible() && other.stack.is_possible()
    }

    /// Tells whether both values may be pointers into different memory: then their difference
    /// reveals the place of one of them.
    fn is_apart(self, other: Self) -> bool {
        const KINDS: usize = 6;
        let kinds = |value: Self| -> [bool; KINDS] {
            let others = value.harmless
                || value.map.is_possible()
                || value.kernel
                || value.function.is_possible();
            let [stale, context] = [value.stale.is_possible(), value.context.is_possible()];
            [
                value.packet,
                stale,
                context,
                value.stack.is_possible(),
                others,
                others,
            ]
        };
        let (one, two) = (kinds(self), kinds(other));
        // Two values of the other kinds are never known to be equal.
        let pairs = (0..KINDS).flat_map(|kind| (0..KINDS).map(move |other| (kind, other)));
        self.is_stale_apart(other)
            || pairs
                .filter(|(kind, other)| kind != other)
                .any(|(kind, other)| one[kind] && two[other])
    }

    /// Tells whether both values may be stale pointers from before different calls.
    fn is_stale_apart(self, other: Self) -> bool {
        let both = self.stale.is_possible() && other.stale.is_possible();
        both && !(matches!(self.stale, PointerFacts::Only(_)) && self.stale == other.stale)
    }
}
