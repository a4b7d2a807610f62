//! The least facts that cover two other facts.

/// A fact that can be joined with another one into a fact that covers both.
pub trait JoinStates: Copy + PartialEq {
    /// Returns the least value that covers both; `None` if there is none.
    fn join(self, other: Self) -> Option<Self>;
}

impl JoinStates for i16 {
    fn join(self, other: Self) -> Option<Self> {
        (self == other).then_some(self)
    }
}

impl JoinStates for u32 {
    fn join(self, other: Self) -> Option<Self> {
        (self == other).then_some(self)
    }
}

impl JoinStates for i64 {
    fn join(self, other: Self) -> Option<Self> {
        (self == other).then_some(self)
    }
}
