//! Windows as rows of tables, and tables as files of Parquet.

// Which of these a build needs depends on its receivers.
#![allow(dead_code, reason = "a receiver without tables needs none of this")]

pub mod cell;
pub mod columns;
#[cfg(feature = "parquet-rows")]
pub mod names;
#[cfg(feature = "parquet-rows")]
pub mod objects;
#[cfg(feature = "parquet-rows")]
pub mod parquet;
#[cfg(feature = "parquet-rows")]
pub mod tables;
