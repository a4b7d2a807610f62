//! The reading of maps, one file for each family of types.

pub mod access;
pub mod array;
pub mod events;
pub mod flat;
pub mod hash;
pub mod journal;
pub mod map;
pub mod nested;
pub mod table;
pub mod trie;
pub mod variable;
pub mod walk;
