//! The walks through the keys of a map: many in one call, or one by one.

pub mod batch;
pub mod keys;
