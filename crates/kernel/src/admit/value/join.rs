//! The least facts that cover two others.

/// A value that covers two others.
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
