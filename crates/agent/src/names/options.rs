//! The options of `serve` about names.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use twinprobe_api::NameOrigin;

/// The port of DNS servers.
const DNS: u16 = 53;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct NameOptions {
    /// Kinds of names that `GET /v1/names` returns: hosts (/etc/hosts), services (/etc/services),
    /// dns (reverse DNS), pods (of this node, and Services of its cluster)
    #[arg(long, value_name = "KIND[,KIND...]", value_delimiter = ',', value_parser = kind)]
    pub names: Vec<NameOrigin>,
    /// Server for reverse DNS; by default the servers of /etc/resolv.conf
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = server, requires = "names")]
    pub names_dns: Vec<SocketAddr>,
    /// MMDB file with places (GeoIP) or networks (ASN) of addresses
    #[arg(long, value_name = "FILE")]
    pub names_mmdb: Vec<PathBuf>,
}

fn kind(text: &str) -> Result<NameOrigin, String> {
    let known = NameOrigin::CHOICES
        .into_iter()
        .find(|kind| kind.name() == text);
    known.ok_or_else(|| {
        format!(
            "there are {}",
            NameOrigin::CHOICES.map(NameOrigin::name).join(", ")
        )
    })
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let address = text
        .parse::<IpAddr>()
        .map(|address| SocketAddr::new(address, DNS));
    address.or_else(|_| text.parse()).map_err(|_| {
        "it is not an address such as 192.0.2.53, 192.0.2.53:5353 and [2001:db8::53]:5353"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_port() {
        for (text, expected) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5353", "192.0.2.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), expected);
        }
        assert!(
            server("dns.example").is_err() && kind("ldap").unwrap_err().contains("hosts, services")
        );
    }
}
