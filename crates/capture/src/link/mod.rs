//! The kinds of links, and the frames that probes get from their packets.

pub mod framed;
pub mod link;
pub mod wireless;
