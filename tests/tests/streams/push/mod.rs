//! Receivers that take samples over HTTP.

mod certificates;
mod otlp;
mod prometheus;
mod refusals;
mod server;
mod victoria;
