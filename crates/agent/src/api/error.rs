//! RFC 9457 problem documents. This module converts every error of the daemon into such a document.

use std::io;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use twinprobe_api::ParseError;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};

use crate::engine::error::{CloseError, EngineError};
use twinprobe_access::Refusal;
use twinprobe_windows::WindowError;

/// `application/problem+json`.
#[derive(Clone, Debug)]
pub struct ProblemAnswer {
    document: Box<twinprobe_api::Problem>,
    /// The kinds of credential that the daemon accepts, if one is missing.
    challenge: Option<&'static str>,
    /// The time in seconds after which another attempt may succeed.
    retry_after: Option<u32>,
}

/// The time in seconds after which a place is likely to be free again.
const PLACE_AFTER: u32 = 5;

/// The answer of a handler.
pub type ApiResult<T> = Result<T, ProblemAnswer>;

impl ProblemAnswer {
    /// Makes a problem without findings; its title is the reason phrase of `status`.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let document = Box::new(twinprobe_api::Problem::new(status, detail));
        Self {
            document,
            challenge: None,
            retry_after: None,
        }
    }

    /// Makes a problem that may be gone after some time.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self {
            retry_after: Some(PLACE_AFTER),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
        }
    }

    /// Makes the problem of a change that the daemon refuses because the audit log has no room.
    pub fn unrecorded(error: &io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let status = match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let detail = format!(
            "the change can't be recorded in the file of --audit-log ({error}), and --audit-required refuses \
             changes without a record: nothing was changed; make room on its disk, or read the pipe"
        );
        Self {
            retry_after: Some(PLACE_AFTER),
            ..Self::new(status, detail)
        }
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn refused(rejection: Rejection) -> Self {
        let detail = match rejection.findings.first().map(|finding| finding.stage) {
            None | Some(Stage::Config) => "the configuration is invalid",
            Some(Stage::Compile) => "the source does not compile",
            Some(Stage::Admission) => "the program has actions that its probe may not have",
            Some(Stage::Load) => "the program can't be loaded",
            Some(Stage::Attach) => "the probe can't be attached",
        };
        let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
        (problem.document.errors, problem.document.log) = (rejection.findings, rejection.log);
        problem
    }

    fn with(mut self, finding: Finding) -> Self {
        self.document.errors.push(finding);
        self
    }

    /// Makes the problem of a capture.
    fn capture(status: StatusCode, finding: Finding) -> Self {
        let detail = format!(
            "{} can't be replayed",
            finding.field.as_deref().unwrap_or("the capture")
        );
        Self::new(status, detail).with(finding)
    }

    /// Makes the problem of a request that failed without a mistake of the client, and logs it.
    fn failed(error: &EngineError) -> Self {
        let detail = with_causes(error);
        tracing::error!(error = detail, "a request failed");
        let status = match error.is_full() {
            true => StatusCode::INSUFFICIENT_STORAGE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, detail)
    }

    /// Makes a problem whose only finding has the same text and is about the whole configuration.
    fn finding(status: StatusCode, stage: Stage, message: String) -> Self {
        let finding = Finding {
            stage,
            field: None,
            line: None,
            column: None,
            message: message.clone(),
            hint: None,
        };
        Self::new(status, message).with(finding)
    }
}

impl From<ParseError> for ProblemAnswer {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Malformed {
                message,
                line,
                column,
            } => {
                let (line, column) = (u32::try_from(line).ok(), u32::try_from(column).ok());
                let detail = format!("the body can't be parsed: {message}");
                let finding = Finding {
                    stage: Stage::Config,
                    field: None,
                    line,
                    column,
                    message,
                    hint: None,
                };
                Self::new(StatusCode::BAD_REQUEST, detail).with(finding)
            }
            ParseError::Invalid(rejection) => Self::refused(rejection),
        }
    }
}

impl From<Refusal> for ProblemAnswer {
    fn from(refusal: Refusal) -> Self {
        let (status, challenge) = match refusal {
            Refusal::NoCredential => (StatusCode::UNAUTHORIZED, Some("Bearer realm=\"twinprobe\"")),
            Refusal::WrongToken => (
                StatusCode::UNAUTHORIZED,
                Some("Bearer realm=\"twinprobe\", error=\"invalid_token\""),
            ),
            Refusal::Role { .. } | Refusal::FolderRole { .. } | Refusal::Origin => {
                (StatusCode::FORBIDDEN, None)
            }
            Refusal::NoRole(_) => (StatusCode::BAD_REQUEST, None),
            Refusal::Host => (StatusCode::MISDIRECTED_REQUEST, None),
            Refusal::MediaType(_) | Refusal::NotMultipart => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, None)
            }
        };
        Self {
            challenge,
            ..Self::new(status, refusal.to_string())
        }
    }
}

impl From<EngineError> for ProblemAnswer {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Rejected(rejection) => Self::refused(rejection),
            EngineError::Forbidden(refusal) => refusal.into(),
            EngineError::Precondition(_) => {
                Self::new(StatusCode::PRECONDITION_FAILED, error.to_string())
            }
            EngineError::Busy(_) | EngineError::Crowded(_) | EngineError::Streams(_) => {
                Self::busy(error.to_string())
            }
            EngineError::NotFound { .. } => Self::new(
                StatusCode::NOT_FOUND,
                format!("{error}; GET /v1/probes lists them"),
            ),
            EngineError::Missing(message) => Self::new(StatusCode::NOT_FOUND, message),
            EngineError::NoCollector(message) | EngineError::Query(message) => {
                Self::new(StatusCode::BAD_REQUEST, message)
            }
            EngineError::History(message) => Self::new(StatusCode::BAD_GATEWAY, message),
            EngineError::NoWindows(_) | EngineError::NotRunning { .. } => {
                Self::new(StatusCode::CONFLICT, error.to_string())
            }
            EngineError::Conflict(message) => {
                Self::finding(StatusCode::CONFLICT, Stage::Attach, message)
            }
            EngineError::Stopping => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            EngineError::NoCompiler(_) => Self::finding(
                StatusCode::SERVICE_UNAVAILABLE,
                Stage::Compile,
                error.to_string(),
            ),
            EngineError::NoRoom(message) => {
                Self::finding(StatusCode::INSUFFICIENT_STORAGE, Stage::Config, message)
            }
            EngineError::Capture(finding) => {
                Self::capture(StatusCode::UNPROCESSABLE_ENTITY, finding)
            }
            EngineError::CaptureTooLarge(finding) => {
                Self::capture(StatusCode::PAYLOAD_TOO_LARGE, finding)
            }
            // While the window was read, the probe was removed, or a client acknowledged the
            // window.
            EngineError::Close(CloseError::Window(WindowError::Gone)) => {
                Self::new(StatusCode::NOT_FOUND, with_causes(&error))
            }
            EngineError::Close(_)
            | EngineError::Spool(_)
            | EngineError::Replay(_)
            | EngineError::NotWritten { .. }
            | EngineError::Gone
            | EngineError::LoadStuck(_)
            | EngineError::Kernel(_)
            | EngineError::Broken(_)
            | EngineError::Store(_)
            | EngineError::Task(_) => Self::failed(&error),
        }
    }
}

impl IntoResponse for ProblemAnswer {
    fn into_response(self) -> Response {
        let status = self.status();
        let Self {
            document,
            challenge,
            retry_after,
        } = self;
        let mut response = (status, Json(&document)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(challenge) = challenge {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static(challenge),
            );
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
