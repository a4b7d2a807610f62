//! The output of commands.

pub mod format;
pub mod print;
pub mod progress;
pub mod rates;
pub mod rows;
pub mod screen;
pub mod table;
pub mod units;
pub mod view;
