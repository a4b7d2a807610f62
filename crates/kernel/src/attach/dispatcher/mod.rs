//! The program at each hook that calls up to 16 probes.

pub mod chain;
pub mod dispatchers;
pub mod entry;
pub mod failure;
pub mod health;
pub mod hold;
pub mod kinds;
pub mod left;
pub mod live;
pub mod mend;
pub mod program;
pub mod revision;
pub mod slots;
