//! The output of commands.

pub mod format;
pub mod print;
pub mod rows;
pub mod table;
