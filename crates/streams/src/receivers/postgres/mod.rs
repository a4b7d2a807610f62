//! PostgreSQL: windows as rows, in tables made from the shapes of windows.

pub mod columns;
pub mod link;
pub mod options;
pub mod receiver;
pub mod tables;
pub mod text;
