//! The reasons why the state directory can't be used.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "the state directory {0} is in use by another twinprobe; give each its own --state-dir"
    )]
    InUse(PathBuf),
    #[error(transparent)]
    Open(#[from] twinprobe_store::OpenError),
    #[error("{what} can't be written to the store")]
    Write {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("{what} can't be read from the store")]
    Read {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("{action} {path} failed")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io {
        action,
        path,
        source,
    }
}

/// Returns the bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
