//! The reasons why a request could not be answered.

use std::error::Error;
use std::io::{self, ErrorKind};

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};
use twinprobe_kernel::{AttachError, KernelError};
use twinprobe_windows::{BaseError, WindowError};

use crate::engine::turns::Crowded;
use crate::limits::queue::Busy;
use crate::limits::streams::TooManyStreams;
use crate::store::error::StoreError;
use crate::store::room::RoomError;
use twinprobe_access::Refusal;

/// An error after which the rest of a table can't be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// `meant` has the known names that are near.
    #[error("there is no probe named {name}{meant}")]
    NotFound { name: String, meant: String },
    #[error("the configuration was refused")]
    Rejected(Rejection),
    /// The role of the sender does not permit the request.
    #[error(transparent)]
    Forbidden(#[from] Refusal),
    /// A condition of the request does not hold.
    #[error("{0}")]
    Precondition(String),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Crowded(#[from] Crowded),
    #[error(transparent)]
    Streams(#[from] TooManyStreams),
    /// The request conflicts with the present state of the probe or of its interfaces.
    #[error("{0}")]
    Conflict(String),
    /// The probe has no such window, revision or event metric.
    #[error("{0}")]
    Missing(String),
    #[error("probe {name} is not running: {reason}")]
    NotRunning { name: String, reason: String },
    #[error(
        "the kernel did not verify and load the program within {0:?}; simplify it, and see the kernel's log"
    )]
    LoadStuck(std::time::Duration),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk, or the part of it that probes may use, is full.
    #[error("{0}")]
    NoRoom(String),
    #[error("the maps could not be read: {0}")]
    Broken(#[from] Broken),
    #[error("probe {0} has no windows: reading its metrics resets nothing; use snapshot or init")]
    NoWindows(String),
    #[error("{0}")]
    NoCollector(String),
    /// A parameter of the request has an impossible value.
    #[error("{0}")]
    Query(String),
    /// The server of `--history` has given no usable answer.
    #[error("{0}")]
    History(String),
    #[error(
        "the acknowledgement of windows of probe {name} could not be stored and is lost when the daemon \
            ends; repeat it: {kind}"
    )]
    NotWritten { name: String, kind: ErrorKind },
    #[error(transparent)]
    Close(CloseError),
    /// A capture can't be read.
    #[error("{}", .0.message)]
    Capture(Finding),
    /// A compressed capture is too large once it is decompressed.
    #[error("{}", .0.message)]
    CaptureTooLarge(Finding),
    #[error("the capture can't be kept for the replay: {0}")]
    Spool(io::Error),
    #[error("the program can't be run on a packet of the capture: {0}")]
    Replay(io::Error),
    /// The probe was replaced or deleted while a request waited for it.
    #[error("the probe was deleted")]
    Gone,
    #[error("the daemon is stopping")]
    Stopping,
    #[error("nothing can be compiled here: {0}")]
    NoCompiler(String),
    #[error("an internal task ended early")]
    Task(#[from] tokio::task::JoinError),
}

impl EngineError {
    /// Tells whether the disk or its quota is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::NoRoom(_) => true,
            Self::NotWritten { kind, .. } => is_full(*kind),
            Self::Spool(error) => is_full(error.kind()),
            // The kernel reports the same error if its own tables are full.
            Self::Kernel(_) | Self::Close(CloseError::Kernel(_)) | Self::Replay(_) => false,
            error => is_caused_by_full(error),
        }
    }
}

const fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Tells whether a full disk is among the causes of an error.
fn is_caused_by_full(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref::<io::Error>() {
        Some(error) if is_full(error.kind()) => true,
        // `source` of an I/O error skips the wrapped error, so this code looks at the wrapped error
        // itself.
        Some(error) => error
            .get_ref()
            .is_some_and(|inner| is_caused_by_full(inner)),
        None => error.source().is_some_and(is_caused_by_full),
    }
}

impl From<CloseError> for EngineError {
    fn from(error: CloseError) -> Self {
        match error {
            CloseError::Kernel(error) => Self::Kernel(error),
            error => Self::Close(error),
        }
    }
}

impl From<RoomError> for EngineError {
    fn from(error: RoomError) -> Self {
        match error {
            RoomError::NoRoom(message) => Self::NoRoom(message),
            RoomError::Store(error) => Self::Store(error),
            RoomError::Disk(error) => Self::Spool(error),
        }
    }
}

impl From<Rejection> for EngineError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<AttachError> for EngineError {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Occupied(message) => Self::Conflict(message),
            AttachError::Kernel(error) => Self::Kernel(error),
            error @ (AttachError::Unsupported(_) | AttachError::Failed { .. }) => {
                let message = with_causes(&error);
                Self::Rejected(
                    Finding {
                        field: None,
                        ..Finding::new(Stage::Attach, "", message)
                    }
                    .into(),
                )
            }
        }
    }
}

pub fn describe(error: &EngineError) -> String {
    match error {
        EngineError::Rejected(rejection) => {
            let messages: Vec<&str> = rejection
                .findings
                .iter()
                .map(|f| f.message.as_str())
                .collect();
            messages.join("; ")
        }
        other => with_causes(other),
    }
}

/// The reason why a window was not closed. The content of the window stays in the kernel, and the
/// next attempt continues with it.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("the window can't be stored and stays in the kernel, nothing of it is lost: {0}")]
    Store(#[from] io::Error),
    #[error(transparent)]
    Window(#[from] WindowError),
    #[error(transparent)]
    Base(#[from] BaseError),
}
