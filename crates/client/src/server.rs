//! The address of a daemon, and files with several of them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use reqwest::Url;

/// An address: `unix:/path`, `https://host:port` or `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Unix(PathBuf),
    /// A URL without path and query.
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

    /// Tells whether others on the way could read the data.
    pub fn is_exposed(&self) -> bool {
        matches!(self, Self::Http(url) if is_exposed(url))
    }
}

pub(crate) fn is_exposed(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let is_own = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && !is_own
}

/// A daemon in the user's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedServer {
    pub name: String,
    pub server: Server,
    /// The labels at which selectors of a fleet look.
    pub labels: BTreeMap<String, String>,
    /// The line of the file; 0 without a file.
    pub line: usize,
}

impl NamedServer {
    pub fn unnamed(server: Server) -> Self {
        Self {
            name: server.to_string(),
            server,
            labels: BTreeMap::new(),
            line: 0,
        }
    }

    /// Reads the daemons of a file: `URL`, or `NAME URL` and labels `KEY=VALUE` on each line; `#`
    /// begins a comment. An error names the file and the line.
    pub fn list(path: &Path, text: &str) -> Result<Vec<Self>, String> {
        let mut found: Vec<Self> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let at = |what: String| format!("{}:{}: {what}", path.display(), number + 1);
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let (name, address, labels) = match &words[..] {
                [] => continue,
                [address] => (*address, *address, &[][..]),
                [name, address, labels @ ..] => (*name, *address, labels),
            };
            let server: Result<Server, _> = address.parse();
            let server = server.map_err(|error| at(format!("{address}: {error}")))?;
            let mut pairs = BTreeMap::new();
            for label in labels {
                let pair = label.split_once('=').filter(|(key, _)| !key.is_empty());
                let (key, value) = pair.ok_or_else(|| {
                    at(format!(
                        "{label:?} can't be a label; write URL, or NAME URL, or NAME URL KEY=VALUE"
                    ))
                })?;
                pairs.insert(key.to_owned(), value.to_owned());
            }
            if found.iter().any(|other| other.name == name) {
                return Err(at(format!("there are two servers {name:?}")));
            }
            found.push(Self {
                name: name.to_owned(),
                server,
                labels: pairs,
                line: number + 1,
            });
        }
        if found.is_empty() {
            return Err(format!("{} names no server", path.display()));
        }
        Ok(found)
    }
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
            (
                Server::DEFAULT,
                Ok(Server::Unix("/run/twinprobe/twinprobe.sock".into())),
            ),
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
    fn only_http_beyond_this_machine_is_exposed() {
        let exposed = |text: &str| text.parse::<Server>().unwrap().is_exposed();
        assert!(exposed("http://gw-1:9470") && exposed("http://192.0.2.1:9470"));
        for text in [
            "unix:/s",
            "https://gw-1:9470",
            "http://127.0.0.1:9470",
            "http://[::1]:1",
            "http://localhost",
        ] {
            assert!(!exposed(text), "{text}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_read() {
        for text in [
            Server::DEFAULT,
            "http://[::1]:8080",
            "http://host",
            "https://host:8443",
        ] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
    }
}
