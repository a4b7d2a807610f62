//! Export: large tables in three formats, what they cost others, and windows through the file.

pub mod formats;
pub mod peers;
pub mod section;
pub mod windows;
