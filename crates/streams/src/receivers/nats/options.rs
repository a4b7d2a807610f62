//! The options of NATS.

use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;
use serde::Deserialize;

use crate::config::tls_mode::{TlsMode, is_here};
use crate::receiver::SendError;
use crate::receivers::kind::ReceiverUrl;

/// The default prefix of subjects.
const PREFIX: &str = "twinprobe";

/// Options of a stream of JetStream.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NatsOptions {
    /// Addresses of servers in one cluster: `nats://HOST:PORT`, `tls://HOST:PORT`, or `HOST:PORT`.
    pub servers: Vec<String>,
    /// The name of the stream.
    pub stream: String,
    /// The prefix of subjects.
    #[serde(default = "prefix")]
    pub subject: String,
    /// True if the receiver makes a missing stream.
    #[serde(default = "yes")]
    pub create: bool,
    /// A file of the tool `nsc`, with a JWT and its key.
    credentials_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    nkey_file: Option<PathBuf>,
    /// The mode of TLS. The default is `require` for servers with `tls://`, with certificates, and
    /// for secrets that leave this machine. In all other cases the server decides.
    tls: Option<TlsMode>,
    /// The certificates of the authorities that have signed the servers' certificates (PEM).
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

fn prefix() -> String {
    PREFIX.to_owned()
}

const fn yes() -> bool {
    true
}

impl NatsOptions {
    /// Reads `nats://HOST/STREAM`.
    pub fn of_url(url: &ReceiverUrl) -> Result<Self, String> {
        if url.authority.is_empty() || url.path.is_empty() || url.path.contains('/') {
            return Err(format!("{}://HOST/STREAM is expected", url.scheme));
        }
        let servers: Vec<String> = url
            .authority
            .split(',')
            .map(|host| format!("{}://{host}", url.scheme))
            .collect();
        let value = serde_json::json!({ "servers": servers, "stream": url.path });
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// Checks the rules that types do not express. Returns the field and its mistake.
    pub fn checked(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, message: &str| Err((field, message.to_owned()));
        if self.servers.is_empty() {
            return wrong(
                "servers",
                "at least one address is needed, as in nats://HOST:4222",
            );
        }
        if self.servers.iter().any(|server| server.contains('@')) {
            return wrong(
                "servers",
                "an address has no user and no password; name files with them",
            );
        }
        let is_name = |c: char| !c.is_whitespace() && !".*>/\\".contains(c);
        if self.stream.is_empty() || !self.stream.chars().all(is_name) {
            return wrong(
                "stream",
                "a name without spaces and without any of . * > / \\ is expected",
            );
        }
        if self.subject.is_empty() || self.subject.contains(['*', '>', ' ']) {
            return wrong("subject", "a subject without wildcards is expected");
        }
        match (&self.user, &self.password_file, &self.cert, &self.key) {
            (Some(_), None, ..) => return wrong("user", "a user needs `passwordFile`"),
            (None, Some(_), ..) => return wrong("passwordFile", "a password needs `user`"),
            (_, _, Some(_), None) => return wrong("cert", "a certificate needs `key`"),
            (_, _, None, Some(_)) => return wrong("key", "a key needs `cert`"),
            _ => {}
        }
        if self.tls == Some(TlsMode::Disable) && self.names_tls() {
            return wrong(
                "tls",
                "`tls: disable` does not fit tls://, `ca` and `cert`: leave it out",
            );
        }
        Ok(())
    }

    fn names_tls(&self) -> bool {
        let is_tls = |server: &String| server.starts_with("tls://");
        self.ca.is_some() || self.cert.is_some() || self.servers.iter().any(is_tls)
    }

    /// Tells whether a connection without TLS is refused, because others could read its secrets.
    pub fn is_encrypted(&self) -> bool {
        let secrets = [
            &self.credentials_file,
            &self.token_file,
            &self.password_file,
            &self.nkey_file,
        ];
        let leaves = || self.servers.iter().any(|server| !is_here(host(server)));
        let by_default =
            || self.names_tls() || secrets.iter().any(|secret| secret.is_some()) && leaves();
        self.tls
            .map_or_else(by_default, |tls| tls == TlsMode::Require)
    }

    /// Returns everything that decides where messages are sent. The account follows from the
    /// credentials.
    pub fn place(&self) -> String {
        let Self {
            servers,
            stream,
            subject,
            credentials_file,
            token_file,
            user,
            nkey_file,
            cert,
            ..
        } = self;
        format!(
            "{:?}",
            (
                servers,
                stream,
                subject,
                credentials_file,
                token_file,
                user,
                nkey_file,
                cert
            )
        )
    }

    /// Reads the files with secrets, which may have changed since the last time.
    pub fn credentials(&self) -> Result<ConnectOptions, SendError> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.map(|text| text.trim().to_owned())
                .map_err(|error| SendError::caused(&path.display().to_string(), &error))
        };
        let mut connect = ConnectOptions::new().require_tls(self.is_encrypted());
        if let Some(path) = &self.credentials_file {
            let unusable = |error| SendError::caused(&path.display().to_string(), &error);
            connect = connect.credentials(&read(path)?).map_err(unusable)?;
        }
        if let Some(path) = &self.token_file {
            connect = connect.token(read(path)?);
        }
        if let (Some(user), Some(path)) = (&self.user, &self.password_file) {
            connect = connect.user_and_password(user.clone(), read(path)?);
        }
        if let Some(path) = &self.nkey_file {
            connect = connect.nkey(read(path)?);
        }
        if let Some(path) = &self.ca {
            connect = connect.add_root_certificates(path.clone());
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            connect = connect.add_client_certificate(cert.clone(), key.clone());
        }
        Ok(connect)
    }
}

/// Returns the host of `SCHEME://HOST:PORT`, `HOST:PORT` or `HOST`.
fn host(server: &str) -> &str {
    let place = server
        .split_once("://")
        .map_or(server, |(_, place)| place)
        .trim_end_matches('/');
    match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => place,
    }
}
