//! The REST API: `routes` has every path with its handler. `api/openapi.yaml`, which the daemon serves, describes it.

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;

use crate::api::state::Api;
use crate::api::{daemon, routes};

/// Returns the whole API: the routes, the refusal of early requests and the log of requests.
pub fn router(api: Api) -> Router {
    routes::router()
        .layer(middleware::from_fn_with_state(api.clone(), daemon::refuse_early))
        .layer(middleware::from_fn_with_state(api.clone(), log_request))
        .with_state(api)
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
    api.engine.telemetry.http.answered(&method, route, status, took);
    tracing::info!(
        %method,
        path,
        status = status.as_u16(),
        elapsed_us = took.as_micros() as u64,
        "request"
    );
    response
}
