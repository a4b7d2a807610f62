//! Tools that report packets, and consumers of their events side by side.

pub mod aya;
pub mod consumer;
pub mod ledger;
pub mod ours;
pub mod peers;
mod run;
pub mod stand;
pub mod tool;
