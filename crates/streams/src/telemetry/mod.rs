//! What a stream tells about itself.

pub mod meter;
pub mod page;
