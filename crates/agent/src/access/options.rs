//! The options of `serve` about who may do what.

use std::path::PathBuf;

use crate::access::role::Role;

#[derive(Clone, Debug, clap::Args)]
pub struct AccessOptions {
    /// Tokens that clients may use, one per line: NAME ROLE SHA256HEX; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Roles of clients with a certificate of --client-ca, one per line: SAN ROLE; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub client_roles: Option<PathBuf>,
    /// The group that owns Unix sockets, whose members may connect
    #[arg(long, value_name = "NAME")]
    pub socket_group: Option<String>,
    /// The role of clients that connect to a Unix socket
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Role::Admin)]
    pub socket_role: Role,
    /// A name by which clients reach the daemon over TCP, beside its IP addresses. Repeatable
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// Where each request is recorded, one line of JSON for each; opened again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
}
