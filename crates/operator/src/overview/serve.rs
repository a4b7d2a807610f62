//! The addresses of the overview. The overview requires no credentials, so it listens on this
//! machine only: people reach it through `kubectl port-forward`.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use clap::Args;
use futures_util::StreamExt as _;
use kube::Client;
use kube::api::Api;
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::net::TcpListener;
use twinprobe_api::Problem;

use crate::control::writes::Wished;
use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::MonitoringRule;
use crate::overview::listing::overview;
use crate::overview::metrics::page as page_of;

/// A file of the page.
struct PageFile {
    name: &'static str,
    content: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/page.rs"));

const PAGE: &str = "fleet.html";
/// The page of an operator that was built without the console.
const WITHOUT: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>twinprobe</title></head>
<body><h1>twinprobe</h1>
<p>This operator was built without its page. <a href=\"/v1/fleet\">/v1/fleet</a> has what it would show.</p>
</body></html>
";
/// The page may load what this operator serves, and nothing else; no page may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Options of the overview.
#[derive(Clone, Debug, Args)]
pub struct OverviewOptions {
    /// Serve the overview of the fleet on this loopback address; without this option there is no
    /// overview
    #[arg(long, value_name = "ADDRESS:PORT")]
    overview: Option<SocketAddr>,
    /// Serve /metrics on this address, for everyone who reaches it; without this option there are
    /// none
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_metrics: Option<SocketAddr>,
}

/// The caches that the overview shows.
#[derive(Clone)]
struct Caches {
    probes: Store<MonitoringProbe>,
    rules: Store<MonitoringRule>,
}

/// Serves the overview, if there is an address for it. An operator without the Lease serves the
/// overview, too.
pub async fn serve_overview(client: Client, options: &OverviewOptions) -> anyhow::Result<()> {
    let OverviewOptions {
        overview,
        listen_metrics,
    } = *options;
    if overview.is_none() && listen_metrics.is_none() {
        return std::future::pending().await;
    }
    if let Some(address) = overview.filter(|address| !address.ip().is_loopback()) {
        bail!(
            "--overview {address}: the overview has no credentials; give an address of the loopback interface, such as \
             127.0.0.1:9472, and call it by kubectl port-forward"
        );
    }
    let caches = Caches {
        probes: followed(client.clone()),
        rules: followed(client),
    };
    let numbers = Router::new()
        .route("/metrics", get(metrics))
        .with_state(caches.clone());
    tokio::select! {
        ended = listen("--overview", overview, routes(caches)) => ended,
        ended = listen("--listen-metrics", listen_metrics, numbers) => ended,
    }
}

/// Serves these routes, if there is an address for them.
async fn listen(
    option: &'static str,
    address: Option<SocketAddr>,
    routes: Router,
) -> anyhow::Result<()> {
    let Some(address) = address else {
        return std::future::pending().await;
    };
    let tcp = TcpListener::bind(address)
        .await
        .with_context(|| format!("{option} {address}"))?;
    tracing::info!(address = %tcp.local_addr()?, option, "the operator listens");
    axum::serve(tcp, routes).await.context(option)
}

/// Answers `GET /metrics`.
async fn metrics(State(caches): State<Caches>) -> Response {
    page_of(&overview(&caches.probes, &caches.rules))
}

/// Follows all objects of a kind.
fn followed<K: Wished + Send + Sync + 'static>(client: Client) -> Store<K> {
    let (reader, writer) = store();
    let changes = watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff();
    tokio::spawn(reflector(writer, changes).for_each(|event| {
        if let Err(error) = event {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "the watch of the overview failed; the operator tries again"
            );
        }
        std::future::ready(())
    }));
    reader
}

fn routes(caches: Caches) -> Router {
    Router::new()
        .route("/v1/fleet", get(fleet))
        .route("/", get(async || page(PAGE)))
        .route(
            "/console/{file}",
            get(async |Path(name): Path<String>| page(&name)),
        )
        .fallback(async |uri: Uri| {
            problem(
                StatusCode::NOT_FOUND,
                &format!("there is nothing at {}", uri.path()),
            )
        })
        .layer(from_fn(ours))
        .with_state(caches)
}

/// Answers `GET /v1/fleet`.
async fn fleet(State(caches): State<Caches>) -> Response {
    Json(overview(&caches.probes, &caches.rules)).into_response()
}

/// Refuses requests that name another host. The browser of a person who forwards the port may send
/// requests of other pages.
async fn ours(request: Request, next: Next) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .map_or(host, |(name, port)| match port.parse::<u16>() {
            Ok(_) => name,
            Err(_) => host,
        });
    let address = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    if name != "localhost" && !address.is_ok_and(|address| address.is_loopback()) {
        return problem(
            StatusCode::MISDIRECTED_REQUEST,
            "the overview answers to localhost and addresses of the loopback interface only",
        );
    }
    let mut response = next.run(request).await;
    response.headers_mut().extend(HEADERS);
    response
}

fn page(name: &str) -> Response {
    let media_type = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        _ => "text/css; charset=utf-8",
    };
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => ([(header::CONTENT_TYPE, media_type)], file.content).into_response(),
        None if name == PAGE => ([(header::CONTENT_TYPE, media_type)], WITHOUT).into_response(),
        None => problem(
            StatusCode::NOT_FOUND,
            "the page has no such file; load the page again",
        ),
    }
}

fn problem(status: StatusCode, detail: &str) -> Response {
    let document = Json(Problem::new(status, detail));
    (
        status,
        [(header::CONTENT_TYPE, "application/problem+json")],
        document,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn object<K: serde::de::DeserializeOwned>(
        kind: &str,
        name: &str,
        spec: &Value,
        status: &Value,
    ) -> K {
        let metadata = json!({ "name": name, "generation": 3 });
        let object = json!({ "apiVersion": "twinprobe.dev/v1alpha1", "kind": kind, "metadata": metadata,
            "spec": spec, "status": status });
        serde_json::from_value(object).unwrap()
    }

    fn caches() -> Caches {
        let (probes, mut probe_writer) = store();
        let (rules, mut rule_writer) = store();
        let status = json!({
            "observedGeneration": 3, "revision": "flows-1", "step": "10%",
            "counts": { "selected": 200, "failed": 1 },
            "worst": { "nsPerPacket": 131.5, "node": "n7", "at": "eth0 ingress" },
            "failures": [{ "node": "n9", "stage": "load", "reason": "R1 invalid" }] });
        let probe = object(
            "MonitoringProbe",
            "flows",
            &json!({ "library": "top-talkers" }),
            &status,
        );
        probe_writer.apply_watcher_event(&Event::Apply(probe));
        let rule = json!({ "rule": { "watch": "p", "when": "true", "do": [] } });
        let rule = object(
            "MonitoringRule",
            "alarm",
            &rule,
            &json!({ "observedGeneration": 2, "firing": 4 }),
        );
        rule_writer.apply_watcher_event(&Event::Apply(rule));
        Caches { probes, rules }
    }

    /// Sends a request to the overview on a port of its own. Returns the status and the rest of the
    /// answer.
    async fn ask(method: &str, path: &str, host: &str) -> (u16, String) {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(tcp, routes(caches())).await });
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        server.abort();
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap();
        (status, answer)
    }

    #[tokio::test]
    async fn each_object_has_its_step_counts_worst_cost_and_failures() {
        let (status, answer) = ask("GET", "/v1/fleet", "localhost:9472").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            status == 200 && head.contains("content-security-policy: default-src 'none'"),
            "{answer}"
        );
        let document: Value = serde_json::from_str(body).unwrap();
        let probe = &document["objects"][0];
        assert_eq!(
            (&probe["name"], &probe["step"], &probe["isCurrent"]),
            (&json!("flows"), &json!("10%"), &json!(true))
        );
        assert_eq!(
            (&probe["counts"]["selected"], &probe["worst"]["node"]),
            (&json!(200), &json!("n7"))
        );
        assert_eq!(probe["failures"][0]["reason"], "R1 invalid");
        let rule = &document["objects"][1];
        assert_eq!(
            (&rule["firing"], &rule["isCurrent"]),
            (&json!(4), &json!(false)),
            "{rule}"
        );
    }

    #[tokio::test]
    async fn only_this_machine_may_ask_and_nothing_can_be_changed() {
        for (host, status) in [
            ("127.0.0.1:9472", 200),
            ("[::1]:9472", 200),
            ("localhost", 200),
            ("fleet.example:9472", 421),
            ("10.0.0.7", 421),
            ("", 421),
        ] {
            assert_eq!(ask("GET", "/", host).await.0, status, "{host}");
        }
        assert_eq!(ask("GET", "/v1/probes", "localhost").await.0, 404);
        assert_eq!(ask("GET", "/console/none.js", "localhost").await.0, 404);
        assert_eq!(ask("PUT", "/v1/fleet", "localhost").await.0, 405);
    }

    #[tokio::test]
    async fn an_address_of_the_network_is_refused() {
        let options = OverviewOptions {
            overview: Some("0.0.0.0:9472".parse().unwrap()),
            listen_metrics: None,
        };
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let refusal = serve_overview(client, &options)
            .await
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("127.0.0.1:9472"), "{refusal}");
    }
}
