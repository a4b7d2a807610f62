//! The files of windows.

pub mod directory;
pub mod durable;
pub mod format;
pub mod head;
pub mod part;
pub mod spare;
pub mod stored;
