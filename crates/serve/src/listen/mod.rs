//! The addresses of the daemon, and TLS on them.

pub mod listener;
pub mod options;
pub mod tls;
