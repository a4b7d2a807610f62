//! Windows as rows of tables, and tables as files of Parquet.

pub mod cell;
pub mod columns;
pub mod names;
pub mod objects;
pub mod parquet;
pub mod tables;
