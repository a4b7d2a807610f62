//! Retained windows on disk. This crate knows neither the kernel nor HTTP.

#![forbid(unsafe_code)]

mod baseline;
mod blocked;
mod file;
mod follow;
mod index;
mod log;
mod readers;
mod restore;
mod retention;
mod state;
mod store;
mod told;
mod windows;
mod writer;

pub use self::baseline::BaseError;
pub use self::file::head::{ClosedBy, StoredMetric, WindowHead};
pub use self::file::part::{Part, PartContent, ages_as_rows};
pub use self::file::stored::{StoredWindow, WindowError, WindowReader};
pub use self::readers::Readers;
pub use self::retention::{AckError, Limits, Missing};
pub use self::store::WindowStore;
pub use self::told::Closed;
pub use self::windows::Windows;
pub use self::writer::{Filed, Listed, WindowWriter};
