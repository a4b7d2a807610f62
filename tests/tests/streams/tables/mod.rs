//! Receivers that are databases: tables made from the shapes of windows.

mod clickhouse;
mod large;
pub mod layouts;
mod postgres;
