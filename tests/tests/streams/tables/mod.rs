//! Receivers that are databases: tables made from the shapes of windows.

mod clickhouse;
pub mod layouts;
mod postgres;
