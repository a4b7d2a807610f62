//! The reasons why a call failed.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::server::Server;
use twinprobe_api::Problem;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("could not reach the daemon at {server}; is `twinprobe serve` running?")]
    Connect { server: Server, source: HttpCause },
    /// The answer is missing or broke off. `call` is the method and the path.
    #[error("{call} failed")]
    Exchange { call: String, source: HttpCause },
    /// The answer is larger than the client takes.
    #[error("the answer to {call} has more than {most} bytes")]
    TooLarge { call: String, most: usize },
    /// The daemon refused the request, and gave the reason.
    #[error("{0}")]
    Refused(Box<Problem>),
    #[error("the server answered {call} with an unexpected document")]
    Content {
        call: String,
        source: serde_json::Error,
    },
    /// A name that no request can contain, such as `.` and `..`, which have another meaning in a
    /// URL.
    #[error("{0:?} is not a possible name of a probe")]
    Name(String),
    /// A credential that can't be used; the first part says which.
    #[error("the {0} can't be used")]
    Credential(&'static str, #[source] Option<HttpCause>),
    #[error("could not read {}", path.display())]
    Capture { path: PathBuf, source: io::Error },
    #[error("could not prepare for HTTP")]
    Setup(#[source] HttpCause),
}

/// The reason that the HTTP library gives, without the words of the errors above it.
#[derive(Debug, thiserror::Error)]
#[error("{}", innermost(.0))]
pub struct HttpCause(pub(crate) reqwest::Error);

fn innermost(mut error: &dyn Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl ClientError {
    /// The answer to `call` is missing or broke off.
    pub(crate) fn exchange(call: &str, error: reqwest::Error) -> Self {
        Self::Exchange {
            call: call.to_owned(),
            source: HttpCause(error),
        }
    }
}
