//! The reasons why a command failed.

use std::io;
use std::path::PathBuf;

use twinprobe_client::ClientError;

use crate::files::FileError;
use crate::library::LibraryError;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("nothing can be compiled here: {0}")]
    NoCompiler(String),
    #[error("{0}")]
    NotCompiled(String),
    #[error("could not write {}", path.display())]
    Written { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("could not read {}", path.display())]
    Credential { path: PathBuf, source: io::Error },
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Convert(twinprobe_client::ConvertError),
    /// Some probes of several were refused. Each refusal has been printed already.
    #[error("{failed} of {total} probes were refused")]
    Several { failed: usize, total: usize },
    #[error("{} has {total} configurations, and one is replayed at a time", path.display())]
    OneProbe { path: PathBuf, total: usize },
    #[error("probe {name} was deleted")]
    Deleted { name: String },
    #[error("could not prepare for being interrupted")]
    Signal(#[source] io::Error),
    #[error("could not write the output")]
    Output(#[from] io::Error),
}
