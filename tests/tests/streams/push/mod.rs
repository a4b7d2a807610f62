//! Receivers that take samples over HTTP.

mod history;
mod otlp;
mod prometheus;
mod refusals;
mod second;
pub mod server;
mod victoria;
