//! Stores of windows: the same windows, written durably in several ways.

pub mod fjall;
pub mod group;
pub mod redb;
pub mod segments;
pub mod single;
pub mod sqlite;
pub mod store;
