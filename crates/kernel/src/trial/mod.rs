//! What this kernel can do, found by trying.

pub mod maps;
pub mod programs;
