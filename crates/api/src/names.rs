//! Names of addresses and ports, as `GET /v1/names` answers them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The origin of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameOrigin {
    /// The file `/etc/hosts` of the daemon's machine.
    Hosts,
    /// The file `/etc/services` of the daemon's machine.
    Services,
    /// Reverse DNS.
    Dns,
    /// The pods of the node.
    Pods,
    /// An MMDB file.
    Mmdb,
}

impl NameOrigin {
    /// The kinds that an operator chooses from; MMDB files are named one by one.
    pub const CHOICES: [Self; 4] = [Self::Hosts, Self::Services, Self::Dns, Self::Pods];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Services => "services",
            Self::Dns => "dns",
            Self::Pods => "pods",
            Self::Mmdb => "mmdb",
        }
    }
}

/// The answer of `GET /v1/names`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameList {
    /// The kinds of names that the daemon finds; none unless its operator has chosen some.
    pub kinds: Vec<NameOrigin>,
    pub addresses: Vec<AddressNames>,
    pub ports: Vec<PortNames>,
}

/// The names of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressNames {
    pub address: IpAddr,
    pub names: Vec<FoundName>,
    /// True if a name is still being asked for: a later request has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pending: bool,
}

/// The names of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortNames {
    /// The port in the form of the request.
    pub port: String,
    pub names: Vec<FoundName>,
}

/// A name, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundName {
    pub name: String,
    pub from: NameOrigin,
}

/// A port, of one protocol or of any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskedPort {
    /// The protocol in small letters.
    pub protocol: Option<String>,
    pub port: u16,
}

impl FromStr for AskedPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "a port is a number up to 65535, as 443, or has its protocol, as udp/53".to_owned();
        let (protocol, port) = match text.split_once('/') {
            Some((port, protocol)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                (Some(protocol), port)
            }
            Some((protocol, port)) => (Some(protocol), port),
            None => (None, text),
        };
        let is_word = |protocol: &&str| {
            (1..=16).contains(&protocol.len())
                && protocol.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
        match protocol {
            Some(protocol) if !is_word(&protocol) => Err(wrong()),
            protocol => Ok(Self {
                protocol: protocol.map(str::to_ascii_lowercase),
                port,
            }),
        }
    }
}

impl fmt::Display for AskedPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.protocol {
            Some(protocol) => write!(formatter, "{protocol}/{}", self.port),
            None => write!(formatter, "{}", self.port),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_a_protocol_before_or_behind_them() {
        for (text, expected) in [
            ("443", "443"),
            ("udp/53", "udp/53"),
            ("53/UDP", "udp/53"),
            ("0", "0"),
            ("65535", "65535"),
        ] {
            assert_eq!(text.parse::<AskedPort>().unwrap().to_string(), expected);
        }
        for text in [
            "", "65536", "+1", "-1", "https", "/53", "53/", "u p/53", "53/tcp/1",
        ] {
            assert!(
                text.parse::<AskedPort>()
                    .unwrap_err()
                    .contains("up to 65535"),
                "{text}"
            );
        }
    }
}
