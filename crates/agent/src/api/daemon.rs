//! Answers about the daemon itself: that it lives, and the description of this API.

use axum::http::header;
use axum::response::IntoResponse;

/// `api/openapi.yaml`, the description of every path.
pub(super) const OPENAPI: &str = include_str!("../../../../api/openapi.yaml");

/// Answers `GET /healthz`: a daemon that answers at all lives.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Answers `GET /openapi.yaml`.
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/yaml")], OPENAPI)
}
