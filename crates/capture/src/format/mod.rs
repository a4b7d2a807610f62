//! The formats of files.

pub mod blocks;
pub mod interface;
pub mod obsolete;
pub mod record;
pub mod snoop;
