//! The output of commands.

pub mod exact;
pub mod format;
pub mod histogram;
pub mod print;
pub mod progress;
pub mod rates;
pub mod rows;
pub mod screen;
pub mod table;
pub mod times;
pub mod units;
pub mod view;
