//! Counters of requests by route and method. All paths without a route count as one path, and all
//! unknown methods as one method: otherwise clients could make any number of labels.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use twinprobe_serve::ConnectionCounts;

/// The buckets of answer times in seconds. The last ones are for requests that wait for windows.
const SECONDS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: String,
}

/// The counters and durations of requests.
#[derive(Debug)]
pub struct Http {
    pub connections: ConnectionCounts,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
}

impl Http {
    pub fn new(registry: &mut Registry) -> Self {
        let http = Self {
            connections: ConnectionCounts::new(registry),
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        registry.register(
            "twinprobe_http_requests",
            "Requests answered",
            http.requests.clone(),
        );
        let (name, seconds) = ("twinprobe_http_request_duration", http.seconds.clone());
        let help = "Time until the header of an answer; the body follows as a stream";
        registry.register_with_unit(name, help, Unit::Seconds, seconds);
        http
    }

    /// Counts an answer. `route` is the router's pattern, if the path has one.
    pub fn answered(
        &self,
        method: &Method,
        route: Option<&str>,
        status: StatusCode,
        took: Duration,
    ) {
        let (method, route) = (known(method), route.unwrap_or("none").to_owned());
        let request = RequestLabels {
            method,
            route: route.clone(),
            status: status.as_u16(),
        };
        self.requests.get_or_create(&request).inc();
        self.seconds
            .get_or_create(&RouteLabels { method, route })
            .observe(took.as_secs_f64());
    }
}

fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}
