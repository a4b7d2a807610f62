//! The names of this daemon, by which requests over TCP must address it. A page of another server
//! whose name leads here (DNS rebinding) sends its own name in `Host`, and a page that sends
//! requests elsewhere its own in `Origin`.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::{Authority, Uri};

use crate::refusal::Refusal;

/// The names of `--host`, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    pub fn new(names: &[String]) -> Self {
        Self(
            names
                .iter()
                .map(|name| bare(name).to_ascii_lowercase())
                .collect(),
        )
    }

    /// Refuses a request to the address `local` that names another host, or that comes from another
    /// server's page.
    pub fn check(&self, local: SocketAddr, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        // Several `Host` lines are refused, because a proxy may have looked at another one: no rule
        // defines which one counts.
        if headers.get_all(HOST).iter().count() > 1 {
            return Err(Refusal::Host);
        }
        let written = headers
            .get(HOST)
            .map(|host| host.to_str().ok()?.parse().ok());
        // A request for a proxy also names the host in its first line. Both names must be names of
        // this daemon.
        let named: Option<Vec<Authority>> = uri
            .authority()
            .cloned()
            .map(Some)
            .into_iter()
            .chain(written)
            .collect();
        let named = named.filter(|named| {
            !named.is_empty() && named.iter().all(|host| self.is_ours(host, local))
        });
        let named = named.ok_or(Refusal::Host)?;
        let ports = || named.iter().map(Authority::port_u16);
        for origin in headers.get_all(ORIGIN) {
            let origin: Option<Uri> = origin.to_str().ok().and_then(|origin| origin.parse().ok());
            let is_ours = origin.is_some_and(|origin| {
                let default = match origin.scheme_str() {
                    Some("http") => 80,
                    Some("https") => 443,
                    _ => return false,
                };
                let Some(authority) = origin.authority().filter(|host| self.is_ours(host, local))
                else {
                    return false;
                };
                let port = authority.port_u16().unwrap_or(default);
                port == local.port() || ports().any(|ours| ours.unwrap_or(default) == port)
            });
            if !is_ours {
                return Err(Refusal::Origin);
            }
        }
        Ok(())
    }

    /// Tells whether a client at the address `local` may call the daemon by this name. The port is
    /// not compared, because a tunnel has another one.
    fn is_ours(&self, authority: &Authority, local: SocketAddr) -> bool {
        let local = local.ip().to_canonical();
        // A user before the host, or a port that is not a number, makes a different name.
        let port = authority
            .port_u16()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        if authority.as_str() != format!("{}{port}", authority.host()) {
            return false;
        }
        let host = bare(authority.host());
        if let Ok(ip) = host.parse::<IpAddr>()
            && ip.to_canonical() == local
        {
            return true;
        }
        let host = host.to_ascii_lowercase();
        host == "localhost" && local.is_loopback() || self.0.contains(&host)
    }
}

/// Returns a host without the brackets of an IPv6 address and without the dot that ends a full
/// domain name.
fn bare(host: &str) -> &str {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of this daemon, and names that clients at each of them may call it by.
    const OURS: [(&str, &[&str]); 4] = [
        (
            "127.0.0.1:90",
            &[
                "127.0.0.1",
                "127.0.0.1:90",
                "127.0.0.1:8080",
                "LocalHost:90",
                "localhost.",
            ],
        ),
        ("[::1]:90", &["[::1]:90", "localhost"]),
        (
            "[::ffff:10.0.0.1]:90",
            &["10.0.0.1:90", "[::ffff:10.0.0.1]", "[::ffff:a00:1]"],
        ),
        (
            "10.0.0.1:90",
            &["probe.example:90", "PROBE.EXAMPLE.", "192.0.2.9"],
        ),
    ];
    /// Addresses of this daemon, and names that are those of others.
    const FOREIGN: [(&str, &[&str]); 4] = [
        (
            "127.0.0.1:90",
            &[
                "",
                "evil.example",
                "127.0.0.1.evil.example",
                "localhost.evil.example",
                "127.0.0.2",
            ],
        ),
        (
            "127.0.0.1:90",
            &[
                "evil@127.0.0.1",
                "127.0.0.1@evil.example",
                "127.1",
                "2130706433",
                "0x7f000001",
                "localhost..",
            ],
        ),
        (
            "127.0.0.1:90",
            &[
                "127.0.0.1:x",
                "127.0.0.1 evil",
                "127.0.0.1, evil",
                "é",
                "10.0.0.1",
                "[::1]",
            ],
        ),
        (
            "10.0.0.1:90",
            &["localhost", "probe.example.evil", "example", "10.0.0.2"],
        ),
    ];

    fn check(local: &str, uri: &str, headers: &[(&'static str, &str)]) -> Result<(), Refusal> {
        let hosts = Hosts::new(&["Probe.Example".to_owned(), "192.0.2.9".to_owned()]);
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        hosts.check(local.parse().unwrap(), &uri.parse().unwrap(), &headers)
    }

    #[test]
    fn hosts_are_our_addresses_and_names() {
        let host = |local, host| check(local, "/", &[("host", host)]);
        for (local, ours) in OURS {
            for ours in ours {
                assert_eq!(host(local, ours), Ok(()), "{ours} at {local}");
            }
        }
        for (local, foreign) in FOREIGN {
            for foreign in foreign {
                assert_eq!(
                    host(local, foreign),
                    Err(Refusal::Host),
                    "{foreign} at {local}"
                );
            }
        }
        assert_eq!(check("127.0.0.1:90", "/", &[]), Err(Refusal::Host));
        for second in ["evil.example", "localhost", "127.0.0.1"] {
            let twice = [("host", "127.0.0.1"), ("host", second)];
            assert_eq!(
                check("127.0.0.1:90", "/", &twice),
                Err(Refusal::Host),
                "{second}"
            );
        }
        let ours = [("host", "127.0.0.1")];
        assert_eq!(
            check("127.0.0.1:90", "http://evil.example/", &ours),
            Err(Refusal::Host)
        );
        assert_eq!(check("127.0.0.1:90", "http://127.0.0.1:90/", &ours), Ok(()));
    }

    #[test]
    fn origins_are_this_server() {
        let origin = |origin| {
            check(
                "127.0.0.1:90",
                "/",
                &[("host", "localhost:8080"), ("origin", origin)],
            )
        };
        for ours in [
            "http://localhost:8080",
            "http://127.0.0.1:90",
            "https://localhost:90",
        ] {
            assert_eq!(origin(ours), Ok(()), "{ours}");
        }
        for foreign in [
            "null",
            "",
            "http://localhost",
            "http://localhost:91",
            "http://evil.example:90",
            "ftp://localhost:90",
            "http://evil@localhost:90",
            "localhost:90",
            "http://127.0.0.2:90",
        ] {
            assert_eq!(origin(foreign), Err(Refusal::Origin), "{foreign}");
        }
        let named = [
            ("host", "probe.example"),
            ("origin", "https://probe.example"),
        ];
        assert_eq!(check("10.0.0.1:90", "/", &named), Ok(()));
        let two = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "http://evil.example"),
        ];
        assert_eq!(check("127.0.0.1:90", "/", &two), Err(Refusal::Origin));
    }
}
