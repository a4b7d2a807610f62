//! The loop: windows from daemons through lanes to receivers, and acknowledgements back.

pub mod acks;
pub mod backoff;
pub mod budget;
pub mod feed;
pub mod follow;
pub mod gather;
pub mod lane;
pub mod preview;
pub mod several;
pub mod stopping;
pub mod stream;
pub mod watch;
