//! The bodies of windows and baselines.

pub mod content;
pub mod described;
pub mod draft;
pub mod format;
pub mod head;
pub mod opened;
pub mod part;
pub mod rebuilt;
pub mod stored;
pub mod verified;
