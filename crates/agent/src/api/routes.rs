//! The routes of the API, in one table. The router is built from the table, and a test compares it
//! with `api/openapi.yaml`.

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::{MethodRouter, delete, get, post, put};

use crate::api::documents::scrape;
use crate::api::error::ProblemAnswer;
use crate::api::nodes::nodes;
use crate::api::rules::{rules, templates};
use crate::api::state::Api;
use crate::api::streams::{changes, events};
use crate::api::{console, daemon, entries, names, pods, probes, replay, windows};
use twinprobe_access::Role;

/// An endpoint: a method of a path, with its handler.
#[derive(Debug)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// The lowest role that may use the route.
    pub role: Role,
    /// The statuses that the handler answers with, except the statuses of the server's own errors
    /// (429, 500, 503). Each route also has the statuses of the guard: [`GUARD_ANSWERS`].
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the description is held against these")
    )]
    pub answers: &'static [u16],
    pub handler: fn() -> MethodRouter<Api>,
}

/// The statuses by which the guard refuses requests of any route.
#[cfg(test)]
const GUARD_ANSWERS: [u16; 4] = [401, 403, 415, 421];

const PROBES: &str = "/v1/probes";
const PROBE: &str = "/v1/probes/{name}";
const METRICS: &str = "/v1/probes/{name}/metrics";
const WINDOWS: &str = "/v1/probes/{name}/windows";
const WINDOW: &str = "/v1/probes/{name}/windows/{seq}";
const SHAPE: &str = "/v1/probes/{name}/windows/{seq}/shape";
const SERIES: &str = "/v1/probes/{name}/series";
const PAST_SERIES: &str = "/v1/probes/{name}/series/history";
const EVENTS: &str = "/v1/probes/{name}/events";
const HISTORY: &str = "/v1/probes/{name}/history";
const REVISIONS: &str = "/v1/probes/{name}/revisions";
const REPLAY: &str = "/v1/replay";
const RULE_REPLAY: &str = "/v1/replay/rule";
/// The routes whose bodies have parts.
pub const REPLAYS: [&str; 2] = [REPLAY, RULE_REPLAY];
const MARK: &str = "/v1/probes/{name}/mark";
const ENTRIES: &str = "/v1/probes/{name}/maps/{map}/entries";
const PODS: &str = "/v1/pods";
const RULE: &str = "/v1/rules/{name}";
const RULE_REVISIONS: &str = "/v1/rules/{name}/revisions";
const RULE_ROLLBACK: &str = "/v1/rules/{name}/rollback";
const TEMPLATE: &str = "/v1/templates/{name}";
const VALIDATE: &str = "/v1/validate";
const ROLLBACK: &str = "/v1/probes/{name}/rollback";

use Role::{Collector, Operator, Viewer};

/// The routes of the API, by path.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    route("GET", PROBES, Viewer, &[200, 400], || get(probes::list)),
    route("GET", PROBE, Viewer, &[200, 400, 404], || get(probes::get)),
    route("PUT", PROBE, Operator, &[200, 201, 400, 408, 409, 412, 413, 422, 429, 503, 507], || put(probes::put)),
    route("DELETE", PROBE, Operator, &[204, 400, 404, 412, 429, 507], || delete(probes::delete)),
    route("GET", REVISIONS, Operator, &[200, 400, 404], || get(probes::revisions)),
    route("GET", HISTORY, Operator, &[200, 400, 404], || get(probes::history)),
    route("GET", "/v1/history", Operator, &[200], || get(probes::whole_history)),
    route("POST", ROLLBACK, Operator, &[200, 400, 404, 408, 409, 412, 413, 422, 429, 503, 507], || post(probes::roll_back)),
    route("POST", MARK, Operator, &[204, 400, 404, 507], || post(probes::mark)),
    route("GET", ENTRIES, Operator, &[200, 400, 404], || get(entries::get)),
    route("PUT", ENTRIES, Operator, &[200, 400, 404, 408, 409, 412, 413, 422, 429, 503, 507], || put(entries::put)),
    route("GET", PODS, Operator, &[200], || get(pods::get)),
    route("PUT", PODS, Operator, &[200, 400, 408, 413, 422, 503, 507], || put(pods::put)),
    route("GET", "/v1/nodes", Collector, &[200, 404], || get(nodes::list)),
    route("GET", "/v1/nodes/series", Collector, &[200, 400, 404], || get(nodes::series)),
    route("GET", "/v1/nodes/windows", Collector, &[200, 400, 404], || get(nodes::windows)),
    route("GET", "/v1/names", Collector, &[200, 400], || get(names::get)),
    route("GET", "/v1/rules", Operator, &[200], || get(rules::list)),
    route("GET", RULE, Operator, &[200, 400, 404], || get(rules::get)),
    route("PUT", RULE, Operator, &[200, 201, 400, 408, 409, 412, 413, 422, 429, 503, 507], || put(rules::put)),
    route("DELETE", RULE, Operator, &[204, 400, 404, 412, 507], || delete(rules::delete)),
    route("GET", RULE_REVISIONS, Operator, &[200, 400, 404], || get(rules::revisions)),
    route("POST", RULE_ROLLBACK, Operator, &[200, 400, 404, 408, 409, 412, 413, 422, 429, 503, 507], || post(rules::roll_back)),
    route("GET", "/v1/templates", Operator, &[200], || get(templates::list)),
    route("GET", TEMPLATE, Operator, &[200, 400, 404], || get(templates::get)),
    route("PUT", TEMPLATE, Operator, &[200, 201, 400, 408, 409, 412, 413, 422, 429, 503, 507], || put(templates::put)),
    route("DELETE", TEMPLATE, Operator, &[204, 400, 404, 409, 412, 507], || delete(templates::delete)),
    route("POST", VALIDATE, Operator, &[200, 400, 408, 413, 422, 429, 503], || post(probes::validate)),
    route("POST", REPLAY, Operator, &[200, 400, 406, 408, 413, 422, 429, 503, 507], || post(replay::replay::replay)),
    route("POST", RULE_REPLAY, Operator, &[200, 400, 408, 413, 422, 429, 503, 507], || post(replay::rule::replay)),
    // A HEAD would close a window, or take events, that no client receives.
    route("GET", METRICS, Collector, &[200, 400, 404, 406, 409, 507], || get(probes::metrics).head(method_not_allowed)),
    route("GET", WINDOWS, Collector, &[200, 400, 404, 406], || get(windows::list)),
    route("POST", WINDOWS, Collector, &[201, 400, 404, 406, 409, 507], || post(windows::close)),
    route("GET", WINDOW, Collector, &[200, 400, 404, 406], || get(windows::get)),
    route("DELETE", WINDOW, Collector, &[204, 400, 404, 507], || delete(windows::acknowledge)),
    route("GET", SHAPE, Collector, &[200, 400, 404], || get(windows::shape)),
    route("GET", SERIES, Collector, &[200, 400, 404], || get(windows::series)),
    route("GET", PAST_SERIES, Collector, &[200, 400, 404, 409, 502], || get(windows::history)),
    route("GET", EVENTS, Collector, &[200, 400, 404, 406, 409, 429], || get(events::events).head(method_not_allowed)),
    route("GET", "/v1/changes", Viewer, &[200, 400, 404, 429], || get(changes::changes).head(method_not_allowed)),
    route("GET", "/v1/capabilities", Viewer, &[200], || get(daemon::capabilities)),
    route("GET", "/metrics", Collector, &[200, 406], || get(scrape::scrape).head(method_not_allowed)),
    route("GET", "/healthz", Viewer, &[200], || get(daemon::healthz)),
    route("GET", "/readyz", Viewer, &[200, 503], || get(daemon::readyz)),
    route("GET", "/openapi.yaml", Viewer, &[200], || get(daemon::openapi)),
    route("GET", "/metrics.xsd", Viewer, &[200], || get(daemon::xml_schema)),
];

/// A path that needs no credential, and the handler of its GET.
type OpenRoute = (&'static str, fn() -> MethodRouter<Api>);

/// The routes of the web console. All clients get the same answers, which say nothing about this
/// host.
const CONSOLE: [OpenRoute; 2] = [
    ("/", || get(console::index)),
    ("/console/{file}", || get(console::file)),
];

/// Returns a router with the web console.
pub fn console() -> Router<Api> {
    CONSOLE
        .iter()
        .fold(Router::new(), |router, (path, handler)| {
            router.route(path, handler())
        })
        .method_not_allowed_fallback(method_not_allowed)
}

const fn route(
    method: &'static str,
    path: &'static str,
    role: Role,
    answers: &'static [u16],
    handler: fn() -> MethodRouter<Api>,
) -> Route {
    Route {
        method,
        path,
        role,
        answers,
        handler,
    }
}

/// Returns a router with these routes. It answers other methods of these paths with 405, and other
/// paths with 404.
pub fn router(routes: impl Iterator<Item = &'static Route>) -> Router<Api> {
    routes
        .fold(Router::new(), |router, route| {
            router.route(route.path, (route.handler)())
        })
        .fallback(async || {
            ProblemAnswer::new(StatusCode::NOT_FOUND, "no such path; see /openapi.yaml")
        })
        .method_not_allowed_fallback(method_not_allowed)
}

/// Returns the role that a request needs; `None` if the table has no such method of the path. HEAD
/// is a GET without the body of its answer.
pub fn needed(method: &Method, path: &str) -> Option<Role> {
    let method = if method == Method::HEAD {
        "GET"
    } else {
        method.as_str()
    };
    ROUTES
        .iter()
        .find(|route| route.method == method && route.path == path)
        .map(|route| route.role)
}

/// Tells whether a request changes probes or windows.
pub fn changes(method: &Method, path: &str) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        && ![VALIDATE, REPLAY, RULE_REPLAY].contains(&path)
}

pub async fn method_not_allowed() -> ProblemAnswer {
    ProblemAnswer::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not support the method; see /openapi.yaml",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::api::daemon::OPENAPI;

    type Line = (String, String, String, Vec<u16>);

    /// Returns the operations that `api/openapi.yaml` describes: method, path, role and statuses.
    fn described() -> BTreeSet<Line> {
        let description: Value = yaml_serde::from_str(OPENAPI).unwrap();
        let mut found = BTreeSet::new();
        for (path, operations) in description["paths"].as_object().unwrap() {
            for (method, operation) in operations
                .as_object()
                .unwrap()
                .iter()
                .filter(|(key, _)| *key != "parameters")
            {
                let responses = operation["responses"].as_object().unwrap();
                assert!(
                    responses.contains_key("default"),
                    "{method} {path} describes the server's own errors"
                );
                let statuses = responses
                    .keys()
                    .filter_map(|status| status.parse().ok())
                    .collect();
                let role = operation["x-role"].as_str().unwrap_or_default().to_owned();
                found.insert((method.to_uppercase(), path.clone(), role, statuses));
            }
        }
        found
    }

    #[test]
    fn the_description_has_every_route_with_its_role_and_statuses() {
        let line = |route: &Route| {
            let mut answers = [route.answers, &GUARD_ANSWERS].concat();
            answers.sort_unstable();
            (
                route.method.to_owned(),
                route.path.to_owned(),
                route.role.to_string(),
                answers,
            )
        };
        let mut routes: BTreeSet<Line> = ROUTES.iter().map(line).collect();
        assert_eq!(
            routes.len(),
            ROUTES.len(),
            "a route stands twice in the table"
        );
        let open = |path: &str, answers: &[u16]| {
            (
                "GET".to_owned(),
                path.to_owned(),
                "none".to_owned(),
                answers.to_vec(),
            )
        };
        routes.extend([
            open("/", &[200, 403, 421]),
            open("/console/{file}", &[200, 403, 404, 421]),
        ]);
        assert_eq!(routes, described());
    }

    /// Each path's router accepts only the methods in the table.
    #[test]
    fn the_handler_of_each_route_takes_its_method() {
        for route in ROUTES {
            let handler = format!("{:?}", (route.handler)());
            let allowed = handler.split("allow_header: ").nth(1).unwrap_or_default();
            assert!(
                allowed.contains(route.method),
                "{} {}: {allowed}",
                route.method,
                route.path
            );
        }
    }
}
