//! The options of PostgreSQL.

use std::path::PathBuf;

use serde::Deserialize;
use tokio_postgres::error::SqlState;

use crate::config::tls_mode::{TlsMode, is_here};
use crate::names::part;
use crate::receiver::SendError;
use crate::receivers::kind::ReceiverOptions as _;

/// The directory where the sockets of Debian's servers are.
const SOCKETS: &str = "/run/postgresql";

/// Options of a database.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PostgresOptions {
    /// The addresses of servers in one cluster (HOST or HOST:PORT), or the directory of a socket.
    #[serde(default = "sockets")]
    pub hosts: Vec<String>,
    /// The port of hosts that name no port.
    #[serde(default = "port")]
    pub port: u16,
    pub database: String,
    /// The user. The default is the value of `PGUSER`, or else the user of the process.
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    /// The schema of the tables, which the stream makes if it is missing.
    #[serde(default = "schema")]
    pub schema: String,
    /// The mode of TLS. The default is `require`, except for hosts on this machine.
    tls: Option<TlsMode>,
    /// Authorities that have signed the server's certificate (PEM).
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

fn sockets() -> Vec<String> {
    vec![SOCKETS.to_owned()]
}

const fn port() -> u16 {
    5432
}

fn schema() -> String {
    "twinprobe".to_owned()
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresHost {
    /// The host: a name, an address without brackets, or an absolute directory.
    pub host: String,
    pub port: u16,
}

impl PostgresOptions {
    pub fn check_tls(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, message: &str| Err((field, message.to_owned()));
        let files = [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)];
        for (field, file) in files {
            if file.is_some() && !self.is_encrypted() {
                return wrong(field, "certificates need TLS: write `tls: require`");
            }
        }
        if self.key.is_some() && self.cert.is_none() {
            return wrong("key", "a key needs `cert`");
        }
        if self.is_encrypted() && self.places().any(|place| place.is_socket()) {
            let is_asked = self.tls.is_some();
            return wrong(
                if is_asked { "tls" } else { "hosts" },
                "a socket of this machine has no TLS; write `tls: disable`, or hosts only",
            );
        }
        Ok(())
    }

    /// Tells whether the connection is encrypted, which is the default over a network.
    pub fn is_encrypted(&self) -> bool {
        let by_default = || self.places().any(|place| !place.is_here());
        self.tls
            .map_or_else(by_default, |tls| tls == TlsMode::Require)
    }

    /// The servers.
    pub fn places(&self) -> impl Iterator<Item = PostgresHost> {
        self.hosts.iter().filter_map(|host| self.place(host))
    }

    pub fn place(&self, host: &str) -> Option<PostgresHost> {
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (host, self.port),
        };
        let host = host.trim_matches(['[', ']']);
        let is_name =
            !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
        // The client would look up a path that is not absolute as a host name.
        let is_place = is_name && port != 0 && (host.starts_with('/') || !host.contains('/'));
        is_place.then(|| PostgresHost {
            host: host.to_owned(),
            port,
        })
    }

    /// Returns an error that names the server, and says what to do about it.
    pub fn failed(&self, error: &tokio_postgres::Error) -> SendError {
        let target = self.target();
        let Some(told) = error.as_db_error() else {
            let text = SendError::caused(&target, error).to_string();
            let hint = match &text {
                text if text.contains("password missing") => {
                    "; the server wants a password: name a file with it as `passwordFile`"
                }
                text if text.contains("TLS") => {
                    "; `ca` names the authorities of the server, `tls: disable` turns TLS off"
                }
                _ => "",
            };
            return SendError::new(format!("{text}{hint}"));
        };
        let hint = match told.code() {
            code if *code == SqlState::INVALID_PASSWORD => {
                "; see `user` and `passwordFile`".to_owned()
            }
            code if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                "; see `user`, `tls`, and the server's pg_hba.conf".to_owned()
            }
            code if *code == SqlState::INVALID_CATALOG_NAME => {
                "; make it with CREATE DATABASE, or see `database`".to_owned()
            }
            code if *code == SqlState::INSUFFICIENT_PRIVILEGE => format!(
                "; the user needs CREATE on the database, or USAGE and CREATE on the schema {} and rights on its tables",
                self.schema
            ),
            code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => "; see `hosts`".to_owned(),
            _ => String::new(),
        };
        let detail = told
            .detail()
            .map(|detail| format!(" ({detail})"))
            .unwrap_or_default();
        SendError::new(format!("{target}: {}{detail}{hint}", told.message()))
    }
}

impl PostgresHost {
    /// Tells whether the host is the directory of a socket.
    pub fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Tells whether connections stay on this machine.
    fn is_here(&self) -> bool {
        self.is_socket() || is_here(&self.host)
    }

    pub fn shown(&self) -> String {
        let Self { host, port } = self;
        match host {
            host if self.is_socket() => format!("{}:{port}", part(host)),
            host if host.contains(':') => format!("[{host}]:{port}"),
            host => format!("{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_url(url: &str) -> Result<PostgresOptions, String> {
        let options = PostgresOptions::from_url(&url.parse()?)?;
        options.check().map_err(|(_, message)| message)?;
        Ok(options)
    }

    #[test]
    fn urls_name_servers_and_a_database() {
        for (url, target, is_encrypted) in [
            (
                "postgres://db.example/w",
                "postgres://db.example:5432/w",
                true,
            ),
            (
                "postgresql://a:1,[::2]:2/w",
                "postgres://a:1,[::2]:2/w",
                true,
            ),
            ("postgres://[::1]/w", "postgres://[::1]:5432/w", false),
            (
                "postgres:///w",
                "postgres://%2Frun%2Fpostgresql:5432/w",
                false,
            ),
            (
                "postgres://%2Ftmp%2Fx:5433/w",
                "postgres://%2Ftmp%2Fx:5433/w",
                false,
            ),
        ] {
            let options = of_url(url).unwrap();
            assert_eq!(
                (&*options.target(), options.is_encrypted()),
                (target, is_encrypted)
            );
        }
        for url in ["postgres://db.example", "postgres://db.example/a/b"] {
            assert!(
                of_url(url).unwrap_err().contains("DATABASE is expected"),
                "{url}"
            );
        }
        assert!(
            of_url("postgres://user:secret@db/w")
                .unwrap_err()
                .contains("a password")
        );
        assert!(
            of_url("postgres://db:port/w")
                .unwrap_err()
                .contains("is not a host")
        );
        assert!(
            of_url("postgres://db.example,%2Ftmp/w")
                .unwrap_err()
                .contains("has no TLS")
        );
    }

    #[test]
    fn mistakes_name_their_field() {
        for (more, field) in [
            (serde_json::json!({ "hosts": [] }), "hosts"),
            (serde_json::json!({ "hosts": ["u:p@db"] }), "hosts"),
            (serde_json::json!({ "hosts": ["a/b"] }), "hosts"),
            (serde_json::json!({ "port": 0 }), "port"),
            (serde_json::json!({ "database": "" }), "database"),
            (serde_json::json!({ "schema": "pg_x" }), "schema"),
            (serde_json::json!({ "schema": "x".repeat(64) }), "schema"),
            (
                serde_json::json!({ "hosts": ["db"], "tls": "disable", "ca": "/ca" }),
                "ca",
            ),
            (serde_json::json!({ "hosts": ["db"], "key": "/key" }), "key"),
            (serde_json::json!({ "tls": "require" }), "tls"),
        ] {
            let mut value = serde_json::json!({ "database": "w" });
            for (name, part) in more.as_object().unwrap() {
                value[name] = part.clone();
            }
            let options: PostgresOptions = serde_json::from_value(value).unwrap();
            assert_eq!(options.check().unwrap_err().0, field, "{more}");
        }
    }
}
