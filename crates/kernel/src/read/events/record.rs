//! The results of a reading of an event map.

/// An event, or a gap between events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRecord<'a> {
    Sample {
        /// The CPU on which the event happened, if the map records it.
        cpu: Option<u32>,
        /// The bytes that the program wrote. In a perf ring, up to 7 bytes of padding follow them.
        bytes: &'a [u8],
    },
    /// A gap: between the records before and after it, `count` events did not fit into the ring.
    Lost { cpu: u32, count: u64 },
}

/// The reason why a reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingEnd {
    /// No event is left in the rings.
    Drained,
    /// The limit was reached before the rings were empty, so that events are left.
    More,
}
