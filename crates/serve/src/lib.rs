//! The daemon's HTTP server: addresses, connections, TLS and their limits (`listen`, `connection`).
//! This crate knows neither probes nor routes.

#![forbid(unsafe_code)]

mod connection;
mod listen;

pub use self::connection::body::TooSlow;
pub use self::connection::connections::Connections;
pub use self::connection::counts::ConnectionCounts;
pub use self::listen::listener::Listener;
pub use self::listen::options::{Address, ListenOptions};
pub use self::listen::tls::Tls;
