//! What a reading of an event map gives.

/// An event that was read, or a gap between events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRecord<'a> {
    Sample {
        /// Where it happened, if the map says.
        cpu: Option<u32>,
        /// As long as the program made it; from a perf ring up to 7 bytes longer.
        bytes: &'a [u8],
    },
    /// The kernel had no room for this many, between the events before and after.
    Lost { cpu: u32, count: u64 },
}

/// How far a reading came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is left.
    Drained,
    /// The limit came first.
    More,
}
