//! The REST API: `routes` has every path with its handler. `api/openapi.yaml`, which the daemon
//! serves, describes it.

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequestParts as _, MatchedPath, RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};

use crate::api::error::ProblemAnswer;
use crate::api::extract::Syntax;
use crate::api::replay::parts as replay_parts;
use crate::api::routes::{REPLAYS, ROUTES};
use crate::api::state::Api;
use crate::api::{daemon, routes};
use twinprobe_access::Peer;
use twinprobe_access::Principal;
use twinprobe_access::Record;
use twinprobe_access::Refusal;
use twinprobe_access::Role;

/// The paths that are served without credentials at the addresses of `--listen-metrics`.
const OPEN: [&str; 3] = ["/metrics", "/healthz", "/readyz"];

/// Returns the whole API: the routes, the refusal of early requests, the guard, and the log of
/// requests.
pub fn router(api: Api) -> Router {
    let guard = middleware::from_fn_with_state(api.clone(), guard);
    let console = routes::console().layer(middleware::from_fn_with_state(api.clone(), open));
    complete(routes::router(ROUTES.iter()), api, |routes| {
        routes.layer(guard).merge(console)
    })
}

/// Returns what `--listen-metrics` serves.
pub fn metrics_router(api: Api) -> Router {
    let check_target = middleware::from_fn_with_state(api.clone(), check_target);
    let open = ROUTES.iter().filter(|route| OPEN.contains(&route.path));
    complete(routes::router(open), api, |routes| {
        routes.layer(check_target)
    })
}

fn complete(
    routes: Router<Api>,
    api: Api,
    guard: impl FnOnce(Router<Api>) -> Router<Api>,
) -> Router {
    guard(routes.layer(middleware::from_fn_with_state(
        api.clone(),
        daemon::refuse_early,
    )))
    .layer(middleware::from_fn_with_state(api.clone(), log_request))
    .with_state(api)
}

/// Refuses requests to `--listen-metrics` from pages of other servers. Only failures are recorded:
/// all clients may read these pages, and scrapers do so all the time.
async fn check_target(State(api): State<Api>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>() else {
        return unknown_peer();
    };
    let mut record = Record::begin(api.access.audit(), peer, &parts, None);
    let is_open = OPEN.contains(&parts.uri.path());
    let response = match api.access.check_target(peer, &parts.uri, &parts.headers) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refused(&mut record, refusal),
    };
    // A daemon that is not ready answers with this status at the paths that it serves.
    let status = response.status();
    if is_open && (status.is_success() || status == StatusCode::SERVICE_UNAVAILABLE) {
        record.forget();
    } else {
        record.end(status);
    }
    response
}

fn refused(record: &mut Record, refusal: Refusal) -> Response {
    record.refuse(&refusal);
    ProblemAnswer::from(refusal).into_response()
}

/// Passes on requests for the web console, which needs no credential, and records them.
async fn open(State(api): State<Api>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>() else {
        return unknown_peer();
    };
    let mut record = Record::begin(api.access.audit(), peer, &parts, None);
    let response = match api.access.check_target(peer, &parts.uri, &parts.headers) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refused(&mut record, refusal),
    };
    record.end(response.status());
    response
}

fn unknown_peer() -> Response {
    ProblemAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, "the client is not known").into_response()
}

/// Passes on permitted requests, with their [`Principal`] and the `Notes` of their record, and
/// records every request. A request without a [`Peer`] is refused, because its origin is unknown.
async fn guard(State(api): State<Api>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>().cloned() else {
        return unknown_peer();
    };
    let params = RawPathParams::from_request_parts(&mut parts, &())
        .await
        .ok();
    let name = params
        .iter()
        .flatten()
        .find(|(param, _)| *param == "name")
        .map(|(_, name)| name.to_owned());
    let mut record = Record::begin(api.access.audit(), &peer, &parts, name);
    let path = parts.extensions.get::<MatchedPath>();
    let needed = path.map(|path| routes::needed(&parts.method, path.as_str()));
    let is_change = path.is_some_and(|path| routes::changes(&parts.method, path.as_str()));
    let response = match admit(&api, &peer, &parts, &body, needed.flatten(), &mut record) {
        Err(refusal) => refused(&mut record, refusal),
        // A handler may accept methods that the table lacks. Such a method has no role.
        Ok(_) if needed == Some(None) => routes::method_not_allowed().await.into_response(),
        Ok(principal) => match if is_change { record.announce() } else { Ok(()) } {
            Ok(()) => {
                parts.extensions.insert(principal);
                parts.extensions.insert(record.notes.clone());
                next.run(Request::from_parts(parts, body)).await
            }
            Err(error) => ProblemAnswer::unrecorded(&error).into_response(),
        },
    };
    record.end(response.status());
    response
}

/// Decides whether a request is passed on to its handler. A client without a credential does not
/// learn which paths exist.
fn admit(
    api: &Api,
    peer: &Peer,
    parts: &Parts,
    body: &Body,
    needed: Option<Role>,
    record: &mut Record,
) -> Result<Principal, Refusal> {
    api.access.check_target(peer, &parts.uri, &parts.headers)?;
    let principal = api.access.authenticate(peer, &parts.headers)?;
    record.set_principal(&principal);
    if let Some(role) = needed {
        principal.need(role)?;
        let has_parts = parts
            .extensions
            .get::<MatchedPath>()
            .is_some_and(|path| REPLAYS.contains(&path.as_str()));
        if has_parts {
            replay_parts::boundary(&parts.headers)?;
        } else if !body.is_end_stream() {
            Syntax::of(&parts.headers)?;
        }
    }
    Ok(principal)
}

/// The number of bytes of a path that the log shows.
const LOGGED: usize = 256;

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
    api.engine
        .telemetry
        .http
        .answered(&method, route, status, took);
    api.answered.notify_one();
    tracing::info!(
        %method,
        path = &path[..path.floor_char_boundary(LOGGED)],
        status = status.as_u16(),
        elapsed_us = took.as_micros() as u64,
        "request"
    );
    response
}
