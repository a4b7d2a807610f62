//! The API server asks before it takes a `MonitoringProbe`. The operator checks everything that
//! needs no kernel, so that people read a mistake where they make it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use axum::routing::{get, post};
use axum::serve::Listener;
use axum::{Json, Router};
use clap::Args;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::control::checked::{check_rule, mistakes, plan};
use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::MonitoringRule;

/// The time that a client has for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Options of the webhook.
#[derive(Debug, Args)]
pub struct WebhookOptions {
    /// Address of the webhook, for requests of the API server and of kubelet; without it there is
    /// no webhook
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["webhook_cert", "webhook_key"])]
    webhook: Option<SocketAddr>,
    /// File with the certificate of the webhook and its chain (PEM)
    #[arg(long, value_name = "FILE")]
    webhook_cert: Option<PathBuf>,
    /// File with the private key of the webhook (PEM)
    #[arg(long, value_name = "FILE")]
    webhook_key: Option<PathBuf>,
}

/// Answers the API server's questions, if there are options for it.
/// `judges` is true if the operator may reach the daemons.
pub async fn answer(options: &WebhookOptions, judges: bool) -> anyhow::Result<()> {
    let WebhookOptions {
        webhook: Some(address),
        webhook_cert: Some(certificate),
        webhook_key: Some(key),
    } = options
    else {
        return std::future::pending().await;
    };
    let served = ServedCertificate::read(certificate, key)?;
    let tcp = TcpListener::bind(address)
        .await
        .with_context(|| format!("--webhook {address}"))?;
    let (ready, accepted) = channel(16);
    let local = tcp.local_addr()?;
    tokio::spawn(accept(tcp, served, ready));
    let validate = move |Json(review): Json<Value>| async move { validate(&review, judges) };
    let routes = Router::new()
        .route("/validate", post(validate))
        .route("/healthz", get(async || "ok\n"));
    tracing::info!(address = %local, "the webhook listens");
    axum::serve(Handshakes { accepted, local }, routes)
        .await
        .context("the webhook")
}

/// The certificate that clients see. Kubernetes renews the files of a Secret, and a renewed
/// certificate counts from the next connection on.
struct ServedCertificate {
    certificate: PathBuf,
    key: PathBuf,
    /// The state of the files at the last reading.
    seen: FileTimes,
    acceptor: TlsAcceptor,
}

/// The lengths of two files and the times of their last changes; `None` for a file that is not
/// there.
type FileTimes = [Option<(u64, SystemTime)>; 2];

impl ServedCertificate {
    fn read(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let seen = times(certificate, key);
        let acceptor = TlsAcceptor::from(Arc::new(tls(certificate, key)?));
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            seen,
            acceptor,
        })
    }

    /// The present certificate. Files with mistakes change nothing.
    fn acceptor(&mut self) -> TlsAcceptor {
        let now = times(&self.certificate, &self.key);
        if now != self.seen {
            self.seen = now;
            match tls(&self.certificate, &self.key) {
                Ok(renewed) => {
                    self.acceptor = TlsAcceptor::from(Arc::new(renewed));
                    tracing::info!("the webhook has a new certificate");
                }
                Err(error) => {
                    tracing::warn!(
                        ?error,
                        "the webhook's new certificate can't be used; the old one stays"
                    );
                }
            }
        }
        self.acceptor.clone()
    }
}

fn times(certificate: &Path, key: &Path) -> FileTimes {
    [certificate, key].map(|path| {
        let found = path.metadata().ok()?;
        Some((found.len(), found.modified().ok()?))
    })
}

fn tls(certificate: &Path, key: &Path) -> anyhow::Result<ServerConfig> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .with_context(|| certificate.display().to_string())?;
    if chain.is_empty() {
        bail!("{}: no certificate in PEM", certificate.display());
    }
    let private = PrivateKeyDer::from_pem_file(key).with_context(|| key.display().to_string())?;
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .context("--webhook-cert")
}

/// Makes the handshake with each client in a separate task, so that no client delays the others.
async fn accept(
    tcp: TcpListener,
    mut served: ServedCertificate,
    ready: Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    loop {
        let (socket, address) = match tcp.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a connection can't be accepted"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, ready) = (served.acceptor(), ready.clone());
        tokio::spawn(async move {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(socket)).await {
                // The receiver ends with the operator.
                let _ = ready.send((stream, address)).await;
            }
        });
    }
}

/// Clients after their handshake.
struct Handshakes {
    accepted: Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    local: SocketAddr,
}

impl Listener for Handshakes {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// Answers an AdmissionReview.
fn validate(review: &Value, judges: bool) -> Json<Value> {
    let request = &review["request"];
    let refusal = judge(&request["object"], judges).err();
    let mut response = json!({ "uid": request["uid"], "allowed": refusal.is_none() });
    if let Some(message) = refusal {
        response["status"] = json!({ "code": 422, "reason": "Invalid", "message": message });
    }
    Json(
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }),
    )
}

/// Checks an object. The error names each field.
fn judge(object: &Value, judges: bool) -> Result<(), String> {
    // An object that is being deleted has nothing to check.
    if object.is_null() || !object["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let checked = if object["kind"] == "MonitoringRule" {
        check_rule(name, &read::<MonitoringRule>(object)?, judges)
    } else {
        plan(name, &read::<MonitoringProbe>(object)?).map(drop)
    };
    checked.map_err(|rejection| mistakes(&rejection))
}

fn read<K: DeserializeOwned>(object: &Value) -> Result<K, String> {
    serde_json::from_value(object.clone()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_of_probes_are_named_with_their_fields() {
        let probe = |spec: Value| {
            let kind = ("twinprobe.dev/v1alpha1", "MonitoringProbe");
            judge(
                &json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": "p" }, "spec": spec }),
                false,
            )
        };
        assert_eq!(
            probe(json!({ "library": "top-talkers", "attach": { "interfaces": ["eth*"] } })),
            Ok(())
        );
        let refused =
            probe(json!({ "library": "no-such", "rollout": { "windows": 2000 } })).unwrap_err();
        assert!(
            refused.contains("spec.rollout.windows: 2000 is not a number of windows"),
            "{refused}"
        );
        assert!(refused.contains("spec.library: "), "{refused}");
        let config = json!({ "interface": "eth0", "ingress": { "source": "int x;", "metrics": [{ "name": "a b", "map": "m" }] } });
        let refused = probe(json!({ "config": config })).unwrap_err();
        assert!(
            refused.contains("spec.config.ingress.metrics[0].name: "),
            "{refused}"
        );
        assert_eq!(judge(&Value::Null, false), Ok(()));
    }

    #[test]
    fn mistakes_of_rules_are_named_with_their_fields() {
        let spec = |spec: Value, judges: bool| {
            let metadata = json!({ "name": "r" });
            judge(
                &json!({ "apiVersion": "twinprobe.dev/v1alpha1", "kind": "MonitoringRule", "metadata": metadata,
                "spec": spec }),
                judges,
            )
        };
        let rule = |rule: Value| spec(json!({ "rule": rule }), false);
        let marks = json!({ "watch": "p", "when": "sum(ingress.m) > 1", "do": [{ "mark": "x" }] });
        assert_eq!(rule(marks.clone()), Ok(()));
        let refused = rule(json!({ "watch": "p", "when": "sum(ingress.m) >", "for": 0, "do": [] }))
            .unwrap_err();
        assert!(
            refused.contains("spec.rule.when: ") && refused.contains("spec.rule.for: 0"),
            "{refused}"
        );
        assert!(refused.contains("spec.rule.do: 0 actions"), "{refused}");

        let fleet = |more: Value, judges: bool| {
            let mut rule = marks.clone();
            rule.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            spec(json!({ "scope": "fleet", "rule": rule }), judges)
        };
        assert_eq!(fleet(json!({}), true), Ok(()));
        assert_eq!(
            fleet(json!({ "scope": "fleet", "on": "all" }), true),
            Ok(())
        );
        let refused = fleet(json!({}), false).unwrap_err();
        assert!(
            refused.contains("spec.scope: ") && refused.contains("--daemons-token-file"),
            "{refused}"
        );
        for (more, field) in [
            (json!({ "scope": "node" }), "spec.rule.scope: "),
            (json!({ "on": "some" }), "spec.rule.on: "),
        ] {
            let refused = fleet(more, true).unwrap_err();
            assert!(refused.contains(field), "{refused}");
        }
        let mut within = marks.clone();
        within["scope"] = json!("fleet");
        let refused = rule(within).unwrap_err();
        assert!(
            refused.contains("spec.rule.scope: ") && refused.contains("beside `rule`"),
            "{refused}"
        );
    }
}
