//! What commands print.

pub mod format;
pub mod print;
mod rows;
pub mod table;
