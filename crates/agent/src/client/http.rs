//! One request over a socket or TCP, and its answer.

use std::io;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::problem::Problem;
use super::{ClientError, Server};

pub(super) const JSON: &str = "application/json";

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("could not reach the daemon at {server}; is `twinprobe serve` running?")]
    Connect { server: Server, source: io::Error },
    #[error("could not ask for {path}")]
    Request { path: String, source: hyper::http::Error },
    #[error("{method} {path} failed")]
    Exchange { method: Method, path: String, source: hyper::Error },
    #[error("there was no answer to GET {path}")]
    Late { path: String },
}

/// An answer with a status of success.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub body: Bytes,
    path: String,
}

impl Reply {
    pub fn json(&self) -> Result<Value, ClientError> {
        self.parse()
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body)
            .map_err(|source| ClientError::NotJson { what: self.path.clone(), source })
    }
}

/// Asks; an answer that is no success is [`ClientError::Refused`].
pub(super) async fn send(
    server: &Server,
    method: Method,
    path: &str,
    accept: &str,
    body: Option<&Value>,
) -> Result<Reply, ClientError> {
    let mut received = Vec::new();
    let status = transfer(server, method, path, accept, body, &mut |_, bytes| {
        received.extend_from_slice(bytes);
        Ok(())
    })
    .await?;
    if status.is_success() {
        Ok(Reply { status, body: received.into(), path: path.to_owned() })
    } else {
        Err(ClientError::Refused(Problem::read(status, &received)))
    }
}

/// Asks, and hands on the answer as it comes, until it ends or `sink` fails.
pub(super) async fn follow(
    server: &Server,
    path: &str,
    accept: &str,
    mut sink: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), ClientError> {
    let mut refusal = Vec::new();
    let status = transfer(server, Method::GET, path, accept, None, &mut |status, bytes| {
        if status.is_success() {
            return sink(bytes);
        }
        refusal.extend_from_slice(bytes);
        Ok(())
    })
    .await?;
    if status.is_success() { Ok(()) } else { Err(ClientError::Refused(Problem::read(status, &refusal))) }
}

async fn transfer(
    server: &Server,
    method: Method,
    path: &str,
    accept: &str,
    body: Option<&Value>,
    sink: &mut impl FnMut(StatusCode, &[u8]) -> io::Result<()>,
) -> Result<StatusCode, ClientError> {
    let request = Request::builder()
        .method(&method)
        .uri(path)
        .header(HOST, server.authority())
        .header(ACCEPT, format!("{accept}, application/problem+json"));
    let request = match body {
        Some(body) => request.header(CONTENT_TYPE, JSON).body(Full::new(Bytes::from(body.to_string()))),
        None => request.body(Full::default()),
    };
    let request = request.map_err(|source| HttpError::Request { path: path.to_owned(), source })?;
    let connect = |source| HttpError::Connect { server: server.clone(), source };
    let exchange = match server {
        Server::Unix(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(connect)?;
            exchange(stream, request, sink).await
        }
        Server::Http { host, port } => {
            // The brackets of an IPv6 literal belong to the URL only.
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, *port)).await.map_err(connect)?;
            exchange(stream, request, sink).await
        }
    };
    exchange.map_err(|error| match error {
        Broken::Exchange(source) => HttpError::Exchange { method, path: path.to_owned(), source }.into(),
        Broken::Sink(error) => ClientError::Output(error),
    })
}

/// Which end failed.
enum Broken {
    Exchange(hyper::Error),
    Sink(io::Error),
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    sink: &mut impl FnMut(StatusCode, &[u8]) -> io::Result<()>,
) -> Result<StatusCode, Broken> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Broken::Exchange)?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await.map_err(Broken::Exchange)?;
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if let Some(bytes) = frame.map_err(Broken::Exchange)?.data_ref() {
                sink(status, bytes).map_err(Broken::Sink)?;
            }
        }
        Ok(status)
    }
    .await;
    connection.abort();
    answer
}

/// The path of a probe's resource. Names are the user's: whatever they hold stays inside its segment.
pub(super) fn probe_path(name: &str, rest: &str) -> String {
    format!("/v1/probes/{}{rest}", encoded(name))
}

/// As a segment of a path or a value in a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            b'.' if text != "." && text != ".." => out.push('.'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::probe_path;

    #[test]
    fn names_stay_inside_their_segment() {
        assert_eq!(probe_path("flow-features_2.1", "/metrics"), "/v1/probes/flow-features_2.1/metrics");
        assert_eq!(probe_path("a/b c?#ä", ""), "/v1/probes/a%2Fb%20c%3F%23%C3%A4");
        assert_eq!(probe_path("..", ""), "/v1/probes/%2E%2E");
    }
}
