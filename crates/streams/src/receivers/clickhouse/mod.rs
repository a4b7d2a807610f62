//! ClickHouse: windows as rows, in tables made from the shapes of windows.

pub mod binary;
pub mod columns;
pub mod link;
pub mod options;
pub mod receiver;
pub mod server;
pub mod tables;
