//! Maps of events, whose rings the kernel fills; one file for each map type.

pub mod event_map;
pub mod perf;
pub mod record;
pub mod ringbuf;
pub mod waiter;
