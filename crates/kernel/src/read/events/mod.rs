//! Maps of events: rings that the kernel fills.

pub mod event_map;
pub mod perf;
pub mod ringbuf;
pub mod waiter;
