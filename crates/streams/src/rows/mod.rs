//! Windows as rows of tables, in databases and in files of Parquet.

// The receivers of a build decide which of these modules it needs.
#![allow(dead_code, reason = "a receiver without tables needs none of this")]

pub mod cell;
pub mod columns;
#[cfg(feature = "parquet-rows")]
pub mod direct;
pub mod entries;
pub mod head;
#[cfg(feature = "tables")]
pub mod identifier;
#[cfg(feature = "parquet-rows")]
pub mod names;
#[cfg(feature = "parquet-rows")]
pub mod objects;
#[cfg(feature = "parquet-rows")]
pub mod parquet;
#[cfg(feature = "tables")]
pub mod shapes;
pub mod shown;
#[cfg(feature = "parquet-rows")]
pub mod tables;
