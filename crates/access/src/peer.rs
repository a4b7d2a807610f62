//! The other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

/// The other end of a connection. The server puts it into the extensions of each request.
#[derive(Clone, Debug)]
pub struct Peer {
    pub origin: PeerOrigin,
    /// The subject alternative names of the client's certificate, with their kinds, if an authority of `--client-ca` signed it.
    pub names: Arc<[String]>,
}

/// The way by which a peer reached the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOrigin {
    Unix { uid: u32, gid: u32, pid: Option<i32> },
    Tcp { client: SocketAddr, local: SocketAddr, encrypted: bool },
}

impl PeerOrigin {
    /// The origin as the audit log and the history show it.
    pub fn shown(&self) -> Value {
        match self {
            Self::Unix { uid, gid, pid } => json!({ "uid": uid, "gid": gid, "pid": pid }),
            Self::Tcp { client, encrypted, .. } => json!({ "address": client.to_string(), "tls": encrypted }),
        }
    }
}
