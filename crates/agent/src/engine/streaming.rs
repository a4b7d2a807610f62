//! The parts that streams of events and of changes need in addition to the probes.

use std::sync::Arc;

use crate::engine::events::probe_events::EventLoop;
use crate::engine::events::told::Herald;
use crate::limits::options::RequestLimits;
use crate::limits::streams::Streams;

#[derive(Debug)]
pub struct Streaming {
    /// The threads that wait for events of programs.
    pub event_loop: EventLoop,
    /// The announcer of windows and of changed statuses.
    pub herald: Herald,
    /// The places for streams that clients read.
    pub places: Arc<Streams>,
}

impl Streaming {
    pub fn new(limits: &RequestLimits) -> Self {
        let places = Streams::new(limits.max_streams);
        Self {
            event_loop: EventLoop::default(),
            herald: Herald::default(),
            places,
        }
    }
}
