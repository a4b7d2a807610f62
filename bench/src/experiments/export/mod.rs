//! Export: large tables in three formats, their cost for other work, and windows through the file.

pub mod formats;
pub mod peers;
pub mod section;
pub mod windows;
