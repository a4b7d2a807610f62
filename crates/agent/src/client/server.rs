//! Where the daemon listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hyper::Uri;

/// `unix:/path` or `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Unix(PathBuf),
    Http { host: String, port: u16 },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    #[error("a socket needs an absolute path, as in {}", Server::DEFAULT)]
    RelativePath,
    #[error("https is not available in this version; use http:// or unix:")]
    Https,
    #[error("no server address; use unix:/path or http://host:port")]
    Unknown,
}

impl Server {
    /// Where a daemon listens unless it is told otherwise.
    pub const DEFAULT: &'static str = "unix:/run/twinprobe/twinprobe.sock";

    /// The `Host` header.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Http { host, port } => format!("{host}:{port}"),
        }
    }
}

impl FromStr for Server {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        if let Some(path) = text.strip_prefix("unix:") {
            // unix:///path, as other tools write it, is the same path.
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(ServerError::RelativePath)
            };
        }
        let uri: Uri = text.parse().map_err(|_| ServerError::Unknown)?;
        match (uri.scheme_str(), uri.host(), uri.path_and_query().map_or("/", |path| path.as_str())) {
            (Some("http"), Some(host), "/") if !host.is_empty() => {
                Ok(Self::Http { host: host.to_owned(), port: uri.port_u16().unwrap_or(80) })
            }
            (Some("https"), ..) => Err(ServerError::Https),
            _ => Err(ServerError::Unknown),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http { host, port } => write!(f, "http://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let http = |host: &str, port| Ok(Server::Http { host: host.to_owned(), port });
        for (text, expected) in [
            (Server::DEFAULT, Ok(Server::Unix("/run/twinprobe/twinprobe.sock".into()))),
            ("unix:///tmp/s", Ok(Server::Unix("/tmp/s".into()))),
            ("http://127.0.0.1:8080", http("127.0.0.1", 8080)),
            ("http://[::1]:8080/", http("[::1]", 8080)),
            ("http://probe.example", http("probe.example", 80)),
            ("unix:relative", Err(ServerError::RelativePath)),
            ("https://host:1", Err(ServerError::Https)),
            ("http://host:1/path", Err(ServerError::Unknown)),
            ("localhost:80", Err(ServerError::Unknown)),
            ("", Err(ServerError::Unknown)),
        ] {
            assert_eq!(text.parse::<Server>(), expected, "{text}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_read() {
        for text in [Server::DEFAULT, "http://[::1]:8080", "http://host:80"] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
    }
}
