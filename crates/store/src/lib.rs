//! The daemon's database: one file, one writer, and one commit for all waiting changes. The crates
//! that own the tables define their meaning.

#![forbid(unsafe_code)]

mod commit;
mod connection;
mod database;
mod error;
mod reserve;
#[cfg(test)]
mod tests;

pub use rusqlite::{Connection, Error, OptionalExtension, Result, Row, params};

pub use self::commit::{Change, Durable, Ticket};
pub use self::database::{Database, FILE};
pub use self::error::{OpenError, damaged, disk_full};
