//! What a probe needs, from its object and its request alone: pure, without the kernel.

pub mod build;
pub mod elf;
pub mod events;
pub mod inner_maps;
pub mod object;
pub mod static_maps;
pub mod variables;
