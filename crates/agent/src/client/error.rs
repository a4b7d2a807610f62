//! Why a command failed.

use std::io;

use super::files::FileError;
use super::http::HttpError;
use super::problem::Problem;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    File(#[from] FileError),
    /// The daemon said no and why.
    #[error("{0}")]
    Refused(Problem),
    #[error("the server answered {what} with something else than JSON")]
    NotJson { what: String, source: serde_json::Error },
    /// Each has been printed already.
    #[error("{failed} of {total} probes were refused")]
    Several { failed: usize, total: usize },
    #[error("probe {name} was deleted")]
    Deleted { name: String },
    #[error("could not prepare for being interrupted")]
    Signal(#[source] io::Error),
    #[error("could not write the output")]
    Output(#[from] io::Error),
}
