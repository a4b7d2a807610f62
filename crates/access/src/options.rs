//! The options of `serve` about the rights of clients.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::role::Role;

#[derive(Clone, Debug, clap::Args)]
pub struct AccessOptions {
    /// Tokens of clients, one per line: NAME ROLE SHA256HEX; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Roles of clients with a certificate of --client-ca, one per line: SAN ROLE; read again on
    /// SIGHUP
    #[arg(long, value_name = "FILE")]
    pub client_roles: Option<PathBuf>,
    /// Group that owns Unix sockets and whose members may connect
    #[arg(long, value_name = "NAME")]
    pub socket_group: Option<String>,
    /// Role of clients that connect to a Unix socket
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Role::Admin)]
    pub socket_role: Role,
    /// Name by which clients reach the daemon over TCP, beside its IP addresses. Repeatable
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// File that records each request in a line of JSON; opened again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Refuse a change that can't be recorded in --audit-log; the log has a line before and after
    /// each change
    #[arg(long, requires = "audit_log")]
    pub audit_required: bool,
}

impl AccessOptions {
    /// Returns the number of the group of `--socket-group`, which is its name in `/etc/group` or
    /// the number itself.
    pub fn socket_gid(&self) -> anyhow::Result<Option<u32>> {
        let Some(name) = &self.socket_group else {
            return Ok(None);
        };
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let number = groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name))
                .then(|| fields.nth(1)?.parse().ok())
                .flatten()
        });
        let number = number.or_else(|| name.parse().ok());
        number
            .map(Some)
            .with_context(|| format!("--socket-group {name}: /etc/group has no such group"))
    }
}
