//! The addresses of the daemon and the limits of connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::bail;

use crate::connection::limits::ConnectionLimits;

/// The addresses of the daemon, and the limits of connections.
#[derive(Clone, Debug, clap::Args)]
pub struct ListenOptions {
    /// Address to listen on; may be given several times
    #[arg(
        long,
        value_name = "unix:/PATH|IP:PORT",
        default_value = "unix:/run/twinprobe/twinprobe.sock"
    )]
    pub listen: Vec<Address>,
    /// Address of /metrics, /healthz and /readyz alone, without credentials; may be given several
    /// times
    #[arg(long, value_name = "IP:PORT")]
    pub listen_metrics: Vec<SocketAddr>,
    /// Certificate, with its chain, for the TCP addresses of --listen (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Authorities whose certificates clients may show (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Listen on TCP without credentials or TLS; then everyone who connects may control this host
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub limits: ConnectionLimits,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Unix(path))
            } else {
                Err("the path of a Unix socket must be absolute".into())
            };
        }
        text.parse()
            .map(Self::Tcp)
            .map_err(|_| "neither unix:/PATH nor IP:PORT".into())
    }
}

impl ListenOptions {
    /// Refuses TCP addresses without credentials, and unencrypted addresses beyond loopback.
    pub fn check(&self, has_tokens: bool) -> anyhow::Result<()> {
        if self.insecure {
            return Ok(());
        }
        for address in &self.listen {
            let Address::Tcp(address) = address else {
                continue;
            };
            if !has_tokens && self.client_ca.is_none() {
                bail!(
                    "everybody who reaches {address} would control this host, each user and container on it included; \
                     add --tokens FILE or --client-ca FILE, listen on a Unix socket, or add --insecure"
                );
            }
            if !address.ip().to_canonical().is_loopback() && self.tls_cert.is_none() {
                bail!(
                    "{address} is reachable from other machines, and tokens and metrics would cross the network in the \
                     clear; add --tls-cert FILE and --tls-key FILE, listen on 127.0.0.1 or a Unix socket, or add \
                     --insecure"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Options {
        #[command(flatten)]
        options: ListenOptions,
    }

    fn options(arguments: &str) -> Result<ListenOptions, clap::Error> {
        Options::try_parse_from(["serve"].into_iter().chain(arguments.split_whitespace()))
            .map(|o| o.options)
    }

    #[test]
    fn addresses_are_unix_paths_or_sockets() {
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        assert_eq!(
            "127.0.0.1:0".parse(),
            Ok(Address::Tcp(([127, 0, 0, 1], 0).into()))
        );
        for bad in ["unix:x", "localhost:80", "80", ""] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn tcp_needs_credentials_and_beyond_loopback_tls() {
        const TLS: &str = "--tls-cert c --tls-key k";
        for (addresses, tokens, others, is_allowed) in [
            ("unix:/run/x", false, "", true),
            ("127.0.0.1:80", false, "", false),
            ("[::1]:80", false, "", false),
            ("127.0.0.1:80", false, "--insecure", true),
            ("127.0.0.1:80", true, "", true),
            ("[::ffff:127.0.0.1]:80", true, "", true),
            ("127.0.0.1:80", false, TLS, false),
            (
                "127.0.0.1:80",
                false,
                "--tls-cert c --tls-key k --client-ca a",
                true,
            ),
            ("0.0.0.0:80", true, "", false),
            ("[::]:80", true, "", false),
            ("192.0.2.1:80", true, "", false),
            ("0.0.0.0:80", false, TLS, false),
            ("0.0.0.0:80", true, TLS, true),
            (
                "0.0.0.0:80",
                false,
                "--tls-cert c --tls-key k --client-ca a",
                true,
            ),
            ("0.0.0.0:80", false, "--insecure", true),
            ("unix:/run/x --listen 127.0.0.1:80", false, "", false),
            ("unix:/run/x --listen-metrics 0.0.0.0:80", false, "", true),
        ] {
            let options = options(&format!("--listen {addresses} {others}")).unwrap();
            assert_eq!(
                options.check(tokens).is_ok(),
                is_allowed,
                "{addresses} {tokens} {others}"
            );
        }
    }

    #[test]
    fn options_that_need_another_are_refused_without_it() {
        for bad in [
            "--tls-cert c",
            "--tls-key k",
            "--client-ca a",
            "--max-connections 0",
            "--header-timeout 0",
            "--write-timeout 1.5",
            "--listen-metrics unix:/run/x",
        ] {
            assert!(options(bad).is_err(), "{bad}");
        }
    }
}
