//! Retained windows on disk. This crate knows neither the kernel nor HTTP.

#![forbid(unsafe_code)]

mod baseline;
mod blocked;
mod file;
mod follow;
mod index;
mod restore;
mod state;
mod store;
mod windows;
mod writer;

pub use self::baseline::{BaseError, Part, PartContent, ages_as_rows};
pub use self::file::head::{ClosedBy, StoredMetric, WindowHead};
pub use self::file::stored::{StoredWindow, WindowError, WindowReader};
pub use self::store::WindowStore;
pub use self::windows::{AckError, Entry, Limits, Listing, Missing, Statistics, Windows};
pub use self::writer::WindowWriter;
