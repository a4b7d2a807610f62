//! The API server, as a node calls it: one connection of HTTP/2 for the watches and all requests.
//! The requests are the requests of the crate `kube`, whose own client has a connection for each
//! watch.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{Stream, TryStreamExt as _, stream};
use http::header::AUTHORIZATION;
use kube::api::WatchEvent;
use kube::core::{Status, request};
use reqwest::{Certificate, Response};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::Mutex;
use tokio_util::io::StreamReader;

use crate::node::options::ApiServerOptions;

/// An API server, with the credentials of a service account.
#[derive(Debug)]
pub struct ApiServer {
    http: reqwest::Client,
    /// The lock for a request until its answer begins. Without it, requests that begin while there
    /// is no connection would open one connection each, and their watches would keep these
    /// connections.
    turn: Mutex<()>,
    root: String,
    token: PathBuf,
    /// The longest spread of an assignment so far, in milliseconds: it grows with the number of
    /// nodes.
    spread_ms: AtomicU32,
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiServerError {
    #[error("the API server refuses it ({code}): {message}")]
    Refused { code: u16, message: String },
    #[error("the API server gives no answer")]
    Exchange(#[from] reqwest::Error),
    #[error("the request can't be made")]
    Request(#[from] request::Error),
    #[error("the answer can't be read")]
    Answer(#[from] serde_json::Error),
    #[error("the watch ends")]
    Watch(#[from] std::io::Error),
    #[error("{}", path.display())]
    Token {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl ApiServerError {
    /// Tells whether the server has forgotten the version from which a watch should continue.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }

    /// Tells whether the same request may succeed later: no answer came, or the server is
    /// overloaded or starting.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Exchange(_)
                | Self::Refused {
                    code: 429 | 500..,
                    ..
                }
        )
    }

    /// Tells whether the object to create is there already.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }
}

impl ApiServer {
    /// Prepares the client. It sends nothing yet.
    pub fn new(options: &ApiServerOptions) -> anyhow::Result<Self> {
        let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
        let authorities = Certificate::from_pem_bundle(&read(&options.api_ca)?)
            .with_context(|| options.api_ca.display().to_string())?;
        // An error means that the process has a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only(authorities)
            // These two options end a connection that has died silently.
            .http2_keep_alive_interval(Duration::from_secs(15))
            .http2_keep_alive_timeout(Duration::from_secs(15))
            .http2_keep_alive_while_idle(true)
            .connect_timeout(Duration::from_secs(10))
            .user_agent(concat!("twinprobe-node/", env!("CARGO_PKG_VERSION")))
            .build()?;
        let root = options.api_server.trim_end_matches('/').to_owned();
        Ok(Self {
            http,
            turn: Mutex::new(()),
            root,
            token: options.api_token.clone(),
            spread_ms: AtomicU32::new(0),
        })
    }

    /// Returns the time over which the nodes spread what all of them send to the server.
    pub fn spread(&self) -> Duration {
        Duration::from_millis(self.spread_ms.load(Ordering::Relaxed).into())
    }

    /// Remembers the spread of an assignment, if it is the longest so far.
    pub fn learn_spread(&self, spread_ms: u32) {
        self.spread_ms.fetch_max(spread_ms, Ordering::Relaxed);
    }

    /// Sends a request, and reads its answer.
    pub async fn call<T: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, ApiServerError> {
        let response = self.send(request, Some(Duration::from_secs(30))).await?;
        Ok(serde_json::from_slice(&response.bytes().await?)?)
    }

    /// Sends the request of a watch, and returns the events.
    pub async fn watch<K: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<
        impl Stream<Item = Result<WatchEvent<K>, ApiServerError>> + Send + use<K>,
        ApiServerError,
    > {
        let response = self.send(request, None).await?;
        let bytes = response.bytes_stream().map_err(std::io::Error::other);
        let lines = BufReader::new(StreamReader::new(bytes)).lines();
        Ok(Box::pin(stream::try_unfold(lines, async |mut lines| {
            let Some(line) = lines.next_line().await? else {
                return Ok(None);
            };
            match serde_json::from_str(&line)? {
                WatchEvent::Error(status) => Err(refused(&status)),
                event => Ok(Some((event, lines))),
            }
        })))
    }

    async fn send(
        &self,
        request: http::Request<Vec<u8>>,
        timeout: Option<Duration>,
    ) -> Result<Response, ApiServerError> {
        let (mut parts, body) = request.into_parts();
        let url = format!("{}{}", self.root, parts.uri);
        parts.uri = url.parse().map_err(|error| {
            ApiServerError::Request(request::Error::BuildRequest(http::Error::from(error)))
        })?;
        // Tokens are exchanged every hour.
        let token = tokio::fs::read_to_string(&self.token).await;
        let token = token.map_err(|source| ApiServerError::Token {
            path: self.token.clone(),
            source,
        })?;
        let mut request = reqwest::Request::try_from(http::Request::from_parts(parts, body))?;
        *request.timeout_mut() = timeout;
        if let Ok(mut header) = http::HeaderValue::try_from(format!("Bearer {}", token.trim())) {
            header.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let turn = self.turn.lock().await;
        let response = self.http.execute(request).await?;
        drop(turn);
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await?;
        let status: Result<Status, _> = serde_json::from_slice(&body);
        let message = status.map_or_else(
            |_| String::from_utf8_lossy(&body).trim().to_owned(),
            |it| it.message,
        );
        Err(ApiServerError::Refused {
            code: code.as_u16(),
            message,
        })
    }
}

fn refused(status: &Status) -> ApiServerError {
    ApiServerError::Refused {
        code: status.code,
        message: status.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_time_has_not_refused() {
        let refused = |code| ApiServerError::Refused {
            code,
            message: String::new(),
        };
        assert!(
            [429, 500, 503, 504]
                .into_iter()
                .all(|code| refused(code).is_passing())
        );
        assert!(
            [400, 403, 404, 409, 410, 422]
                .into_iter()
                .all(|code| !refused(code).is_passing())
        );
    }
}
