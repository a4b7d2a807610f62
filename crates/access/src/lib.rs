//! The rights of clients: credentials, principals, roles, hosts, and the record of requests. The
//! guard in the daemon's `api::router` asks here before any handler runs.

#![forbid(unsafe_code)]

mod access;
mod audit;
mod client_roles;
mod hosts;
mod lines;
pub mod names;
mod options;
mod peer;
mod principal;
mod refusal;
mod role;
#[cfg(test)]
mod tests;
pub mod tokens;

pub use self::access::Access;
pub use self::audit::log::AuditLog;
pub use self::audit::record::{Record, RecordNotes};
pub use self::lines::check_name;
pub use self::options::AccessOptions;
pub use self::peer::{KnownProcess, Peer, PeerOrigin};
pub use self::principal::{Principal, Who};
pub use self::refusal::Refusal;
pub use self::role::Role;
