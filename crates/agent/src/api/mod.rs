//! The REST API: paths to handlers. `api/openapi.yaml` describes it; the daemon serves that file.

mod body;
mod capabilities;
mod error;
mod events;
mod export;
mod extract;
mod negotiate;
mod probes;
mod readiness;
mod revisions;
mod scrape;
mod windows;

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use self::error::Problem;
pub use self::readiness::Readiness;
use crate::engine::Engine;

const OPENAPI: &str = include_str!("../../../../api/openapi.yaml");

/// What handlers share.
#[derive(Clone, Debug)]
pub struct Api {
    pub engine: Arc<Engine>,
    pub readiness: Arc<Readiness>,
}

pub fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/probes", get(probes::list))
        .route("/v1/probes/{name}", get(probes::get).put(probes::put).delete(probes::delete))
        // A HEAD would close a window, or take events, that nobody gets to see.
        .route("/v1/probes/{name}/metrics", get(probes::metrics).head(method_not_allowed))
        .route("/v1/probes/{name}/windows", get(windows::list).post(windows::close))
        .route("/v1/probes/{name}/windows/{seq}", get(windows::get).delete(windows::acknowledge))
        .route("/v1/probes/{name}/events", get(events::events).head(method_not_allowed))
        .route("/v1/probes/{name}/revisions", get(revisions::list))
        .route("/v1/probes/{name}/rollback", post(revisions::roll_back))
        .route("/v1/capabilities", get(capabilities::get))
        .route("/v1/validate", post(probes::validate))
        .route("/metrics", get(scrape::scrape).head(method_not_allowed))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readiness::readyz))
        .route("/openapi.yaml", get(openapi))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "no such path; see /openapi.yaml"))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(api.clone(), readiness::refuse_early))
        .layer(middleware::from_fn_with_state(api.clone(), log_request))
        .with_state(api)
}

async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take that method; see /openapi.yaml")
}

async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/yaml")], OPENAPI)
}

async fn log_request(
    State(api): State<Api>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let started = std::time::Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let (status, took) = (response.status(), started.elapsed());
    let route = route.as_ref().map(MatchedPath::as_str);
    api.engine.telemetry().http.answered(&method, route, status, took);
    tracing::info!(
        %method,
        path,
        status = status.as_u16(),
        elapsed_us = took.as_micros() as u64,
        "request"
    );
    response
}
