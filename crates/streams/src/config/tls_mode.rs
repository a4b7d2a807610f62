//! The encryption of a receiver's connections.

#![allow(dead_code, reason = "receivers with a URL say it by the scheme")]

use std::net::IpAddr;

use serde::Deserialize;

/// The encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    Disable,
    /// The certificate of the server is verified.
    Require,
}

/// True if this name or address, without a port, is one of this machine: connections to it do not
/// leave the machine.
pub fn is_here(host: &str) -> bool {
    let is_loopback = host
        .trim_matches(['[', ']'])
        .parse()
        .is_ok_and(|address: IpAddr| address.is_loopback());
    host == "localhost" || is_loopback
}
