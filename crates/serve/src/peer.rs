//! The other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

/// The other end of a connection. The server puts it into the extensions of each request.
#[derive(Clone, Debug)]
pub struct Peer {
    pub origin: Origin,
    /// The subject alternative names of the client's certificate, with their kinds, if an authority of `--client-ca` signed it.
    pub names: Arc<[String]>,
}

/// The way by which a peer reached the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Unix { uid: u32, gid: u32, pid: Option<i32> },
    Tcp { client: SocketAddr, local: SocketAddr, encrypted: bool },
}
