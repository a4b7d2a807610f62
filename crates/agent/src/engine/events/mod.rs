//! Events, from the rings of the kernel to their clients.

pub mod batch;
pub mod changes;
pub mod client;
pub mod counts;
pub mod event_metric;
pub mod framing;
pub mod herald;
pub mod intake;
pub mod probe_events;
pub mod pump;
pub mod records;
pub mod stream;
pub mod told;
