//! Answers about the daemon itself: that it lives, whether it is ready, its capabilities, and the
//! description of this API. The daemon listens before it has taken over the probes that run, so
//! that an early client learns its state.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api::error::ProblemAnswer;
use crate::api::state::{Api, READY, STOPPING};

/// `api/openapi.yaml`, the description of every path.
pub const OPENAPI: &str = include_str!("../../../../api/openapi.yaml");

/// `api/metrics.xsd`, the schema of metrics documents in XML.
const XML_SCHEMA: &str = include_str!("../../../../api/metrics.xsd");

/// Answers `GET /healthz`: a daemon that answers is alive.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Answers `GET /openapi.yaml`.
pub async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/yaml")], OPENAPI)
}

/// Answers `GET /metrics.xsd`.
pub async fn xml_schema() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/xml")], XML_SCHEMA)
}

/// Answers `GET /v1/capabilities`.
pub async fn capabilities(State(api): State<Api>) -> Response {
    Json(api.engine.capabilities()).into_response()
}

/// The paths that are answered before the daemon has taken over the stored probes.
pub const ALWAYS: [&str; 3] = ["/healthz", "/readyz", "/openapi.yaml"];

/// Answers `GET /readyz`: 200 once every stored probe is in place, and 503 before that and while
/// the daemon stops.
pub async fn readyz(State(api): State<Api>) -> Response {
    match api.readiness.0.load(Ordering::Acquire) {
        READY => "ready\n".into_response(),
        state => refusal(state),
    }
}

/// Answers requests with 503 until the stored probes are in place, except requests for [`ALWAYS`]:
/// an early request would find only some of the probes. A daemon that stops before it is ready also
/// has only some of the probes.
pub async fn refuse_early(State(api): State<Api>, request: Request, next: Next) -> Response {
    let state = api.readiness.0.load(Ordering::Acquire);
    if state & READY == 0 && !ALWAYS.contains(&request.uri().path()) {
        return refusal(state);
    }
    next.run(request).await
}

pub fn refusal(state: u8) -> Response {
    if state & STOPPING != 0 {
        return ProblemAnswer::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")
            .into_response();
    }
    let problem = ProblemAnswer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the stored probes are being taken over or deployed; running probes continue meanwhile",
    );
    let mut response = problem.into_response();
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
