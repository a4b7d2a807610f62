//! The address at which a daemon listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use reqwest::Url;

/// An address: `unix:/path`, `https://host:port` or `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Unix(PathBuf),
    /// A URL that has neither a path nor a query.
    Http(Url),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    #[error("a socket needs an absolute path, as in {}", Server::DEFAULT)]
    RelativePath,
    #[error("no server address; use unix:/path, https://host:port or http://host:port")]
    Unknown,
}

impl Server {
    /// The address at which a daemon listens by default.
    pub const DEFAULT: &'static str = "unix:/run/twinprobe/twinprobe.sock";
}

impl FromStr for Server {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        if let Some(path) = text.strip_prefix("unix:") {
            // Other tools write unix:///path for the same path.
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(ServerError::RelativePath)
            };
        }
        let url = Url::parse(text).map_err(|_| ServerError::Unknown)?;
        match url.scheme() {
            // The URL must have nothing before the host and nothing after the port.
            "http" | "https" if url.as_str() == url.origin().ascii_serialization() + "/" => {
                Ok(Self::Http(url))
            }
            _ => Err(ServerError::Unknown),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http(url) => f.write_str(url.as_str().trim_end_matches('/')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let http = |url: &str| Ok(Server::Http(Url::parse(url).unwrap()));
        for (text, expected) in [
            (Server::DEFAULT, Ok(Server::Unix("/run/twinprobe/twinprobe.sock".into()))),
            ("unix:///tmp/s", Ok(Server::Unix("/tmp/s".into()))),
            ("http://127.0.0.1:8080", http("http://127.0.0.1:8080/")),
            ("http://[::1]:8080/", http("http://[::1]:8080/")),
            ("http://probe.example", http("http://probe.example:80/")),
            ("unix:relative", Err(ServerError::RelativePath)),
            ("https://host:1", http("https://host:1/")),
            ("https://host", http("https://host/")),
            ("https://host:1/path", Err(ServerError::Unknown)),
            ("ftp://host", Err(ServerError::Unknown)),
            ("http://host:1/path", Err(ServerError::Unknown)),
            ("http://host:1/?query", Err(ServerError::Unknown)),
            ("http://somebody@host:1", Err(ServerError::Unknown)),
            ("localhost:80", Err(ServerError::Unknown)),
            ("http://", Err(ServerError::Unknown)),
            ("", Err(ServerError::Unknown)),
        ] {
            assert_eq!(text.parse::<Server>(), expected, "{text}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_read() {
        for text in [Server::DEFAULT, "http://[::1]:8080", "http://host", "https://host:8443"] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
    }
}
