//! The configuration of a stream.

pub mod document;
#[allow(dead_code, reason = "which receivers there are depends on features")]
pub mod duration;
pub mod mistake;
pub mod size;
pub mod stream;
pub mod tls_mode;
