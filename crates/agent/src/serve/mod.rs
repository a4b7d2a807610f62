//! The daemon's run and its server: addresses, connections, TLS and what they may take.

pub mod body;
pub mod connection;
pub mod connections;
pub mod listener;
pub mod options;
#[allow(dead_code, reason = "roles and the audit log are to read all of it")]
pub mod peer;
pub mod progress;
pub mod request;
pub mod serve;
pub mod stream;
pub mod tls;
