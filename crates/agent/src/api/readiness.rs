//! The readiness of the daemon to answer requests. The daemon listens before it has taken over the probes that run, so
//! that an early client learns what the daemon is doing.

use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::error::Problem;

/// The paths that are answered before the stored probes are in place.
const ALWAYS: [&str; 3] = ["/healthz", "/readyz", "/openapi.yaml"];

/// The bit that says that every stored probe is in place, or is listed with the reason why it is not.
const READY: u8 = 1;
/// The bit that says that the daemon ends once the requests under way are answered.
const STOPPING: u8 = 2;

/// The state of the daemon, as bits. A daemon may be stopping without having been ready.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// Notes that every stored probe is in place, or is listed with the reason why it is not.
    pub fn set_ready(&self) {
        self.0.fetch_or(READY, Ordering::Release);
    }

    /// Notes that the daemon ends once the requests under way are answered.
    pub fn set_stopping(&self) {
        self.0.fetch_or(STOPPING, Ordering::Release);
    }
}

/// Answers `GET /readyz`: 200 once every stored probe is in place, 503 before and while the daemon stops.
pub(super) async fn readyz(State(api): State<Api>) -> Response {
    match api.readiness.0.load(Ordering::Acquire) {
        READY => "ready\n".into_response(),
        state => refusal(state),
    }
}

/// Answers requests with 503 until the stored probes are in place, except those in [`ALWAYS`]: an early request would
/// find only some of the probes. A daemon that is stopping without having been ready has only some of them, too.
pub(super) async fn refuse_early(State(api): State<Api>, request: Request, next: Next) -> Response {
    let state = api.readiness.0.load(Ordering::Acquire);
    if state & READY == 0 && !ALWAYS.contains(&request.uri().path()) {
        return refusal(state);
    }
    next.run(request).await
}

fn refusal(state: u8) -> Response {
    if state & STOPPING != 0 {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping").into_response();
    }
    let problem = Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the stored probes are being taken over or deployed; what runs goes on meanwhile",
    );
    let mut response = problem.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
