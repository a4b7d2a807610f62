//! Directories, files and locks that other users can neither enter nor exchange.

#![forbid(unsafe_code)]

pub mod lasting;
pub mod private;
pub mod trusted;
