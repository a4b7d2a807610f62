//! The readiness of the daemon to answer requests. The daemon listens before it has taken over the probes that run, so
//! that an early client learns what the daemon is doing.

use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::error::Problem;

const STARTING: u8 = 0;
const READY: u8 = 1;
const STOPPING: u8 = 2;

/// The paths that are answered before the stored probes are in place.
const ALWAYS: [&str; 3] = ["/healthz", "/readyz", "/openapi.yaml"];

/// The state of the daemon: starting, ready or stopping.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// Notes that every stored probe is in place, or is listed with the reason why it is not.
    pub fn set_ready(&self) {
        self.0.store(READY, Ordering::Release);
    }

    /// Notes that the daemon ends once the requests under way are answered.
    pub fn set_stopping(&self) {
        self.0.store(STOPPING, Ordering::Release);
    }
}

pub(super) async fn readyz(State(api): State<Api>) -> Response {
    match api.readiness.0.load(Ordering::Acquire) {
        READY => "ready\n".into_response(),
        STOPPING => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping").into_response(),
        _ => starting(),
    }
}

/// Answers requests with 503 until the stored probes are in place, except those in [`ALWAYS`]: an early request would
/// find only some of the probes.
pub(super) async fn refuse_early(State(api): State<Api>, request: Request, next: Next) -> Response {
    let starting_up = api.readiness.0.load(Ordering::Acquire) == STARTING;
    if starting_up && !ALWAYS.contains(&request.uri().path()) {
        return starting();
    }
    next.run(request).await
}

fn starting() -> Response {
    let problem = Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the stored probes are being taken over or deployed; what runs goes on meanwhile",
    );
    let mut response = problem.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
