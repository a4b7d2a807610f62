//! `GET /v1/capabilities`: what this daemon can do on this machine.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::Api;

/// Answers `GET /v1/capabilities`.
pub(super) async fn get(State(api): State<Api>) -> Response {
    Json(api.engine.capabilities()).into_response()
}
