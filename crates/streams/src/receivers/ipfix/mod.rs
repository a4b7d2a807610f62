//! IPFIX (RFC 7011): templates made from the shapes of windows, over TCP, TLS and UDP.

pub mod element;
pub mod message;
pub mod metric;
pub mod options;
pub mod session;
pub mod standard;
pub mod transport;
pub mod value;
pub mod window;
