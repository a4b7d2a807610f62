//! The reasons why attaching may fail.

use std::io;

use crate::sys::call::KernelError;

/// The reason why a program could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("{0}")]
    Occupied(String),
    #[error("{0}")]
    Unsupported(String),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("attaching at {hook} of {interface} failed")]
    Failed {
        hook: &'static str,
        interface: String,
        #[source]
        source: io::Error,
    },
}
