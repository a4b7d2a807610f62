//! The results of a reading of an event map.

/// An event that was read, or a gap between events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRecord<'a> {
    Sample {
        /// The CPU that the event happened on, if the map tells it.
        cpu: Option<u32>,
        /// The bytes that the program wrote; from a perf ring, followed by up to 7 bytes of padding.
        bytes: &'a [u8],
    },
    /// The kernel had no room for `count` events, between the events before and after this record.
    Lost { cpu: u32, count: u64 },
}

/// The reason why a reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingEnd {
    /// No event is left in the rings.
    Drained,
    /// The limit was reached before the rings were empty.
    More,
}
