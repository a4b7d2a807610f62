//! What this kernel can do, found by trying.

pub mod maps;
