//! The program at each hook that calls up to 16 probes.

pub mod chain;
pub mod debug_info;
pub mod dispatchers;
pub mod failure;
pub mod health;
pub mod hold;
pub mod hook_point;
pub mod left;
pub mod live;
pub mod mend;
pub mod program;
