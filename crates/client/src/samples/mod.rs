//! Servers with the API of Prometheus, which store the samples of daemons.

pub mod answer;
pub mod server;
