//! The fields of keys and values: the way in which their bytes are read, and what their numbers
//! mean. The meaning decides how two values of a field become one: in sums of windows, over CPUs,
//! over a replacement and over machines.

pub mod bits;
pub mod join;
pub mod kind;
pub mod leaf;
pub mod meaning;
pub mod names;
pub mod plan;
pub mod prefix;
pub mod wide;
pub mod write;
