//! The content that metrics are read from, one file for each kind of content.

pub mod elements;
pub mod events;
pub mod fill;
pub mod initial;
pub mod losses;
pub mod sizes;
pub mod source;
pub mod tables;
pub mod variables;
