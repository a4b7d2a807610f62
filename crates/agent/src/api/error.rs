//! Every error of the daemon as an RFC 9457 problem document, in one place.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use twinprobe_ebpf_common::finding::with_causes;

use crate::config::ParseError;
use crate::engine::EngineError;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};

/// `application/problem+json`.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    errors: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            log: None,
        }
    }

    fn refused(rejection: Rejection) -> Self {
        let detail = match rejection.findings.first().map(|finding| finding.stage) {
            None | Some(Stage::Config) => "the configuration is invalid",
            Some(Stage::Compile) => "the source does not compile",
            Some(Stage::Load) => "the program can't be loaded",
            Some(Stage::Attach) => "the probe can't be attached",
        };
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
        Self { errors: rejection.findings, log: rejection.log, ..problem }
    }
}

impl From<ParseError> for Problem {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Malformed { message, line, column } => {
                let (line, column) = (u32::try_from(line).ok(), u32::try_from(column).ok());
                let finding =
                    Finding { stage: Stage::Config, field: None, line, column, message: message.clone() };
                let problem =
                    Self::new(StatusCode::BAD_REQUEST, format!("the body is not a JSON document: {message}"));
                Self { errors: vec![finding], ..problem }
            }
            ParseError::Invalid(rejection) => Self::refused(rejection),
        }
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Rejected(rejection) => Self::refused(rejection),
            EngineError::NotFound(_) => {
                Self::new(StatusCode::NOT_FOUND, format!("{error}; GET /v1/probes lists them"))
            }
            EngineError::NoEvents(message) | EngineError::NoRevision(message) => {
                Self::new(StatusCode::NOT_FOUND, message)
            }
            EngineError::NoWindow { probe, reason } => Self::new(
                StatusCode::NOT_FOUND,
                format!("{reason}; GET /v1/probes/{probe}/windows lists them"),
            ),
            EngineError::NoCollector(message) => Self::new(StatusCode::BAD_REQUEST, message),
            EngineError::NoWindows(_) => Self::new(StatusCode::CONFLICT, error.to_string()),
            EngineError::Close(_) | EngineError::NotWritten { .. } => {
                let detail = with_causes(&error);
                tracing::error!(error = detail, "a request failed");
                let status = match error.is_full() {
                    true => StatusCode::INSUFFICIENT_STORAGE,
                    false => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Self::new(status, detail)
            }
            EngineError::Conflict(message) => {
                let finding = Finding {
                    stage: Stage::Attach,
                    field: None,
                    line: None,
                    column: None,
                    message: message.clone(),
                };
                Self { errors: vec![finding], ..Self::new(StatusCode::CONFLICT, message) }
            }
            EngineError::Stopping => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            EngineError::NoCompiler(_) => {
                let message = error.to_string();
                let finding = Finding {
                    stage: Stage::Compile,
                    field: None,
                    line: None,
                    column: None,
                    message: message.clone(),
                };
                Self { errors: vec![finding], ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
            }
            EngineError::NotRunning { .. } => Self::new(StatusCode::CONFLICT, error.to_string()),
            EngineError::LoadStuck(_)
            | EngineError::Kernel(_)
            | EngineError::Broken(_)
            | EngineError::Store(_)
            | EngineError::Task(_) => {
                let detail = with_causes(&error);
                tracing::error!(error = detail, "a request failed");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self)).into_response();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}
