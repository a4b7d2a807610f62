//! A typed call per route of the API.

pub mod documents;
mod revisions;
pub mod windows;

use std::net::SocketAddr;

use reqwest::{Method, RequestBuilder};
use serde::Serialize;
use serde_json::{Value, json};
use twinprobe_ebpf_common::request::MapEntry;

use crate::answer::{Answer, EventStream};
use crate::captures::Captures;
use crate::credentials::Credentials;
use crate::error::ClientError;
use crate::server::Server;
use crate::transport::Transport;
use twinprobe_api::{
    Chart, ConfigDocument, MapEntries, ProbeList, ProbeStatus, RuleDocument, RuleTrial,
    ValidationReport,
};

pub(crate) const JSON: &str = "application/json";

/// A metrics document in JSON; its fields depend on the probe.
pub type Document = Value;

/// A client of one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) transport: Transport,
}

/// The number of entries of each metric in a document; all with the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargestEntries<'a> {
    /// The number of entries; one further entry has all others together.
    pub top: Option<usize>,
    /// The number that decides which entries are the largest; `None` for the first counter.
    pub by: Option<&'a str>,
}

impl LargestEntries<'_> {
    fn of(self, request: RequestBuilder) -> RequestBuilder {
        let request = request.query(&self.top.map(|top| ("top", top)).as_slice());
        request.query(&self.by.map(|by| ("by", by)).as_slice())
    }
}

/// Calls of the API. A name stays inside its segment of the path, with any characters. Documents
/// come in the format with the media type `accept`. Errors: [`ClientError::Refused`] with the
/// daemon's reason, or the reason why there was no answer.
impl Client {
    /// Creates a client, without sending a request yet.
    pub fn new(server: Server, credentials: &Credentials) -> Result<Self, ClientError> {
        Ok(Self {
            transport: Transport::new(server, None, credentials, 0)?,
        })
    }

    /// Creates a client that keeps up to this many idle connections for later requests. A
    /// connection may lead to a daemon that has ended: then the request fails, and the caller
    /// repeats it. `at` is the address of the server's host, if DNS does not know it.
    pub fn keeping(
        server: Server,
        at: Option<SocketAddr>,
        credentials: &Credentials,
        connections: usize,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            transport: Transport::new(server, at, credentials, connections)?,
        })
    }

    /// Returns a client whose requests are limited to this role.
    #[must_use]
    pub fn at_most(&self, role: &'static str) -> Self {
        let mut limited = self.clone();
        limited.transport.role = Some(role);
        limited
    }

    /// Creates a client for each of several daemons. Clients over TLS share the authorities of the
    /// system.
    pub fn many<'a>(
        servers: impl Iterator<Item = &'a Server>,
        credentials: &Credentials,
    ) -> Result<Vec<Self>, ClientError> {
        let mut clients: Vec<Self> = Vec::new();
        for server in servers {
            let known = clients
                .iter()
                .find_map(|client| client.transport.elsewhere(server));
            clients.push(match known {
                Some(transport) => Self { transport },
                None => Self::new(server.clone(), credentials)?,
            });
        }
        Ok(clients)
    }

    /// A client like this one that takes answers of at most this many bytes.
    #[must_use]
    pub fn taking(mut self, most: usize) -> Self {
        self.transport.most = most;
        self
    }

    /// `PUT /v1/probes/{name}`: creates (201) or replaces (200) a probe. The list of its revisions
    /// shows `message`.
    pub async fn put(
        &self,
        name: &str,
        config: &ConfigDocument,
        message: Option<&str>,
    ) -> Result<Answer<ProbeStatus>, ClientError> {
        self.whole(explained(self.probe(Method::PUT, name, [], JSON)?, message).json(config))
            .await
    }

    /// `GET /v1/probes`.
    pub async fn probes(&self) -> Result<Answer<ProbeList>, ClientError> {
        self.whole(self.transport.request(Method::GET, ["v1", "probes"], JSON))
            .await
    }

    /// `GET /v1/probes?traffic=true`: the probes, and the traffic of their interfaces.
    pub async fn probes_and_traffic(&self) -> Result<Answer<ProbeList>, ClientError> {
        let request = self.transport.request(Method::GET, ["v1", "probes"], JSON);
        self.whole(request.query(&[("traffic", "true")])).await
    }

    /// `GET /v1/probes/{name}`.
    pub async fn status(&self, name: &str) -> Result<Answer<ProbeStatus>, ClientError> {
        self.whole(self.probe(Method::GET, name, [], JSON)?).await
    }

    /// `GET /v1/probes/{name}?revision=true`: the status, and the windows of the present
    /// configuration. The status has the configuration itself if `config` is true.
    pub async fn status_and_windows(
        &self,
        name: &str,
        config: bool,
    ) -> Result<Answer<ProbeStatus>, ClientError> {
        let request = self.probe(Method::GET, name, [], JSON)?;
        self.whole(request.query(&[("revision", true), ("config", config)]))
            .await
    }

    /// `DELETE /v1/probes/{name}`. The history shows `message`.
    pub async fn delete(&self, name: &str, message: Option<&str>) -> Result<(), ClientError> {
        let request = explained(self.probe(Method::DELETE, name, [], JSON)?, message);
        self.transport.send(request).await.map(drop)
    }

    /// `GET /v1/probes/{name}/maps/{map}/entries`.
    pub async fn entries(&self, name: &str, map: &str) -> Result<Answer<MapEntries>, ClientError> {
        self.whole(self.probe(Method::GET, name, ["maps", map, "entries"], JSON)?)
            .await
    }

    /// `PUT /v1/probes/{name}/maps/{map}/entries`: gives the map exactly these entries.
    pub async fn put_entries(
        &self,
        name: &str,
        map: &str,
        entries: &[MapEntry],
        message: Option<&str>,
    ) -> Result<Answer<MapEntries>, ClientError> {
        let request = self.probe(Method::PUT, name, ["maps", map, "entries"], JSON)?;
        self.whole(explained(request, message).json(&json!({ "entries": entries })))
            .await
    }

    /// `POST /v1/validate`.
    pub async fn validate(
        &self,
        config: &ConfigDocument,
    ) -> Result<Answer<ValidationReport>, ClientError> {
        self.whole(
            self.transport
                .request(Method::POST, ["v1", "validate"], JSON)
                .json(config),
        )
        .await
    }

    /// `POST /v1/replay`: returns the document of a window over captured packets. The files are
    /// read while they are sent.
    pub async fn replay(
        &self,
        config: &ConfigDocument,
        captures: &Captures,
        accept: &str,
    ) -> Result<Answer<Document>, ClientError> {
        let form = captures.form(&[("config", text(config))]).await?;
        self.whole(
            self.transport
                .request(Method::POST, ["v1", "replay"], accept)
                .multipart(form),
        )
        .await
    }

    /// `POST /v1/replay/rule`: returns the actions that a rule would have taken over captured
    /// packets. The probe is `config`, else the one that `query` names, else the one that the rule
    /// watches. `query` has the parameters of the call.
    pub async fn try_rule(
        &self,
        rule: &RuleDocument,
        config: Option<&ConfigDocument>,
        captures: &Captures,
        query: &[(&str, String)],
    ) -> Result<Answer<RuleTrial>, ClientError> {
        let config = config.map(|config| ("config", text(config)));
        let documents: Vec<_> = config.into_iter().chain([("rule", text(rule))]).collect();
        let request = self
            .transport
            .request(Method::POST, ["v1", "replay", "rule"], JSON)
            .query(query);
        self.whole(request.multipart(captures.form(&documents).await?))
            .await
    }

    /// `GET /v1/probes/{name}/metrics`: reads the probe, which may close a window.
    pub async fn metrics(
        &self,
        name: &str,
        accept: &str,
        largest: LargestEntries<'_>,
    ) -> Result<Answer<Document>, ClientError> {
        self.whole(largest.of(self.probe(Method::GET, name, ["metrics"], accept)?))
            .await
    }

    /// `GET /v1/probes/{name}/metrics?peek=true`: the counts of the open window so far. Takes
    /// nothing from other readers.
    pub async fn peek(
        &self,
        name: &str,
        accept: &str,
        largest: LargestEntries<'_>,
    ) -> Result<Answer<Document>, ClientError> {
        let request = self.probe(Method::GET, name, ["metrics"], accept)?;
        self.whole(largest.of(request.query(&[("peek", "true")])))
            .await
    }

    /// `GET /v1/probes/{name}/series`: numbers of a metric over the retained windows. `query` has
    /// the parameters of the call.
    pub async fn series(
        &self,
        name: &str,
        query: &[(&str, String)],
    ) -> Result<Answer<Chart>, ClientError> {
        self.whole(
            self.probe(Method::GET, name, ["series"], JSON)?
                .query(query),
        )
        .await
    }

    /// `GET /v1/probes/{name}/series/history`: the same from the server of `serve --history`.
    pub async fn past_series(
        &self,
        name: &str,
        query: &[(&str, String)],
    ) -> Result<Answer<Chart>, ClientError> {
        self.whole(
            self.probe(Method::GET, name, ["series", "history"], JSON)?
                .query(query),
        )
        .await
    }

    /// `GET /v1/probes/{name}/events`: a line of JSON per event, of `metric` or of all.
    pub async fn events(
        &self,
        name: &str,
        metric: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let request = self.probe(Method::GET, name, ["events"], "application/x-ndjson")?;
        let request = request.query(&metric.map(|metric| ("metric", metric)).as_slice());
        let (call, response) = self.transport.send(request).await?;
        Ok(EventStream { call, response })
    }

    /// `GET /v1/capabilities`: the abilities of the kernel and the compiler.
    pub async fn capabilities(&self) -> Result<Answer<Value>, ClientError> {
        self.whole(
            self.transport
                .request(Method::GET, ["v1", "capabilities"], JSON),
        )
        .await
    }

    /// `GET /metrics`: the samples of the daemon and of all probes, in OpenMetrics.
    pub async fn scrape(&self) -> Result<String, ClientError> {
        self.text("metrics").await
    }

    /// `GET /healthz`.
    pub async fn health(&self) -> Result<String, ClientError> {
        self.text("healthz").await
    }

    /// `GET /readyz`; a daemon that is not ready refuses with 503.
    pub async fn ready(&self) -> Result<String, ClientError> {
        self.text("readyz").await
    }

    /// `GET /openapi.yaml`: the description of the API.
    pub async fn description(&self) -> Result<String, ClientError> {
        self.text("openapi.yaml").await
    }

    /// `GET /metrics.xsd`: the schema of documents in XML.
    pub async fn xml_schema(&self) -> Result<String, ClientError> {
        self.text("metrics.xsd").await
    }

    async fn text(&self, path: &str) -> Result<String, ClientError> {
        let answer: Answer<String> = self
            .whole(self.transport.request(Method::GET, [path], "*/*"))
            .await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Returns a request for the path of a probe, or for the path `rest` below the path of the
    /// probe.
    fn probe<const N: usize>(
        &self,
        method: Method,
        name: &str,
        rest: [&str; N],
        accept: &str,
    ) -> Result<RequestBuilder, ClientError> {
        if matches!(name, "." | "..") {
            return Err(ClientError::Name(name.to_owned()));
        }
        Ok(self.transport.request(
            method,
            ["v1", "probes", name].into_iter().chain(rest),
            accept,
        ))
    }

    pub(crate) async fn whole<T>(&self, request: RequestBuilder) -> Result<Answer<T>, ClientError> {
        let (call, response) = self.transport.send(request).await?;
        Answer::receive(call, response, self.transport.most).await
    }
}

fn text(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("a document is JSON")
}

pub(crate) fn explained(request: RequestBuilder, message: Option<&str>) -> RequestBuilder {
    request.query(&message.map(|message| ("message", message)).as_slice())
}

#[cfg(test)]
mod tests;
