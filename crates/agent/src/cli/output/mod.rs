//! What commands print.

pub mod format;
pub mod print;
pub mod rows;
pub mod table;
