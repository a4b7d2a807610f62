//! Events, from the rings of the kernel to their clients.

pub mod batch;
pub mod changes;
pub mod client;
pub mod desk;
pub mod event_metric;
pub mod framing;
pub mod probe_events;
pub mod pump;
pub mod records;
pub mod stream;
