//! Connections to receivers over HTTP: their address, certificates and secrets.

pub mod access;
pub mod options;
