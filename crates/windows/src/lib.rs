//! Retained windows in the store. This crate knows neither the kernel nor HTTP.

#![forbid(unsafe_code)]

mod baseline;
mod body;
mod held;
mod index;
mod readers;
mod retention;
mod rows;
mod source;
mod store;
mod takeover;
mod together;
mod told;
mod windows;
mod writer;

pub use self::baseline::BaseError;
pub use self::body::head::{ClosedBy, SumChanges, WindowHead};
pub use self::body::part::{BaselinePart, PartContent, ages_as_rows};
pub use self::body::stored::{StoredWindow, WindowError, WindowReader};
pub use self::readers::Readers;
pub use self::retention::{AckError, ListBounds, Missing, RetentionLimits};
pub use self::rows::Form;
pub use self::store::{BODIES, WindowStore};
pub use self::takeover::take_over;
pub use self::told::Closed;
pub use self::windows::Windows;
pub use self::writer::{Filed, WindowWriter};
