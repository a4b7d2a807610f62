//! System calls.

pub mod affinity;
pub mod asm;
pub mod batch;
pub mod bpffs;
pub mod call;
pub mod clock;
pub mod cpus;
pub mod link;
pub mod map;
pub mod mapping;
pub mod object;
pub mod process;
pub mod prog;
