//! The daemon's HTTP server: addresses, connections, TLS and what they may take (`listen`, `connection`), and who may do
//! what (`access`). This crate knows no probe and no route.

#![forbid(unsafe_code)]

mod access;
mod connection;
mod file;
mod listen;
mod peer;
#[cfg(test)]
#[path = "../../../fuzz/runner.rs"]
mod runner;

pub use self::access::access::Access;
pub use self::access::audit::log::AuditLog;
pub use self::access::audit::record::{Notes, Record};
pub use self::access::lines::check_name;
pub use self::access::options::AccessOptions;
pub use self::access::principal::{Principal, Who};
pub use self::access::refusal::Refusal;
pub use self::access::role::Role;
pub use self::access::tokens;
pub use self::connection::body::TooSlow;
pub use self::connection::connections::Connections;
pub use self::connection::counts::ConnectionCounts;
pub use self::listen::listener::Listener;
pub use self::listen::options::{Address, ListenOptions};
pub use self::listen::tls::Tls;
pub use self::peer::Peer;
