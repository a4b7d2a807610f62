//! Requests over a Unix socket or TCP. TLS is rustls with ring, which needs nothing but a C
//! compiler to build.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use reqwest::header::ACCEPT;
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Method, Request, RequestBuilder, Response, Url};

use crate::credentials::Credentials;
use crate::error::{ClientError, HttpCause};
use crate::server::Server;
use twinprobe_api::Problem;

/// The time for a connection. The kernel alone would try for two minutes to reach a host without
/// power.
const CONNECT: Duration = Duration::from_secs(5);
/// The time between two attempts at a Unix socket whose queue of connections is full.
const AGAIN: Duration = Duration::from_millis(50);

/// The HTTP client for one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    server: Server,
    /// The URL below which the paths of the API are.
    root: Url,
    /// The most bytes of an answer.
    pub most: usize,
    /// The role that requests have at most; `None` for the whole role of the credential.
    pub role: Option<&'static str>,
}

impl Transport {
    /// Creates the HTTP client, which keeps up to `idle` connections that no request uses. Opens no
    /// connection yet. `at` is the address of the server's host, if DNS does not know it.
    pub fn new(
        server: Server,
        at: Option<SocketAddr>,
        credentials: &Credentials,
        idle: usize,
    ) -> Result<Self, ClientError> {
        let (builder, root) = match &server {
            Server::Unix(path) => (
                credentials
                    .add_to(builder(idle), false)
                    .unix_socket(path.as_path()),
                Url::parse("http://localhost").expect("a constant URL"),
            ),
            Server::Http(url) => {
                let builder = credentials.add_to(builder(idle), url.scheme() == "https");
                let builder = match (at, url.host_str()) {
                    (Some(at), Some(host)) => builder.resolve(host, at),
                    _ => builder,
                };
                (builder, url.clone())
            }
        };
        let http = builder
            .build()
            .map_err(|error| ClientError::Setup(HttpCause(error)))?;
        Ok(Self {
            http,
            server,
            root,
            most: usize::MAX,
            role: None,
        })
    }

    /// Returns a transport for another daemon that shares this HTTP client, if the other daemon
    /// also uses TLS, or neither does. So the authorities of the system are read once.
    pub fn elsewhere(&self, server: &Server) -> Option<Self> {
        match (&self.server, server) {
            (Server::Http(here), Server::Http(there)) if here.scheme() == there.scheme() => {
                Some(Self {
                    server: server.clone(),
                    root: there.clone(),
                    ..self.clone()
                })
            }
            _ => None,
        }
    }

    /// Returns a request for `/first/second/...`. A segment is encoded, so that no character of it
    /// ends the segment.
    pub fn request<'a>(
        &self,
        method: Method,
        path: impl IntoIterator<Item = &'a str>,
        accept: &str,
    ) -> RequestBuilder {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(path);
        }
        let request = self.http.request(method, url);
        let request = request.header(ACCEPT, format!("{accept}, application/problem+json"));
        match self.role {
            Some(role) => request.header("Twinprobe-Role", role),
            None => request,
        }
    }

    /// Sends the request and waits for the head of the answer. Returns the answer, and the
    /// request's method and path.
    pub async fn send(&self, request: RequestBuilder) -> Result<(String, Response), ClientError> {
        let request = request
            .build()
            .map_err(|error| ClientError::Setup(HttpCause(error)))?;
        let call = format!("{} {}", request.method(), request.url().path());
        let response = self.execute(request).await.map_err(|error| {
            if error.is_connect() {
                ClientError::Connect {
                    server: self.server.clone(),
                    source: HttpCause(error),
                }
            } else {
                ClientError::exchange(&call, error)
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok((call, response));
        }
        let body = body(&call, response, self.most).await?;
        Err(ClientError::Refused(Box::new(Problem::read(status, &body))))
    }

    /// Sends the request. A daemon whose queue of connections is full lets TCP wait, but refuses a
    /// Unix socket at once: the client waits instead.
    async fn execute(&self, request: Request) -> reqwest::Result<Response> {
        let began = Instant::now();
        loop {
            let Some(copy) = request.try_clone() else {
                return self.http.execute(request).await;
            };
            match self.http.execute(copy).await {
                Err(error) if is_queue_full(&error) && began.elapsed() < CONNECT => {
                    tokio::time::sleep(AGAIN).await;
                }
                done => return done,
            }
        }
    }
}

/// Tells whether a Unix socket took no connection because too many wait there already (`EAGAIN` of
/// connect(2)).
fn is_queue_full(error: &reqwest::Error) -> bool {
    let mut cause = error.source().filter(|_| error.is_connect());
    while let Some(at) = cause {
        if at
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        {
            return true;
        }
        cause = at.source();
    }
    false
}

/// Reads an answer of at most `most` bytes to its end.
pub(crate) async fn body(
    call: &str,
    mut response: Response,
    most: usize,
) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| ClientError::exchange(call, error))?
    {
        if body.len() + chunk.len() > most {
            return Err(ClientError::TooLarge {
                call: call.to_owned(),
                most,
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

pub(crate) fn builder(idle: usize) -> ClientBuilder {
    // An error means that the process has a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        // By default each request opens a new connection: a kept one might lead to a daemon that
        // has ended.
        .pool_max_idle_per_host(idle)
        .connect_timeout(CONNECT)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn names_stay_inside_their_segment() {
        let transport = Transport::new(
            "http://host:81".parse().unwrap(),
            None,
            &Credentials::default(),
            0,
        )
        .unwrap();
        let url = |name| {
            let request = transport.request(Method::GET, ["v1", "probes", name, "metrics"], "*/*");
            request.build().unwrap().url().to_string()
        };
        assert_eq!(
            url("flow-features_2.1"),
            "http://host:81/v1/probes/flow-features_2.1/metrics"
        );
        assert_eq!(
            url("a/b c?#ä%2F"),
            "http://host:81/v1/probes/a%2Fb%20c%3F%23%C3%A4%252F/metrics"
        );
    }

    #[test]
    fn a_client_fits_daemons_of_the_same_scheme() {
        let server = |text: &str| text.parse::<Server>().unwrap();
        let one = Transport::new(server("http://a:1"), None, &Credentials::default(), 0).unwrap();
        let other = one.elsewhere(&server("http://b:2")).unwrap();
        let request = other.request(Method::GET, ["x"], "*/*").build().unwrap();
        assert_eq!(request.url().as_str(), "http://b:2/x");
        for text in ["https://b:2", "unix:/b"] {
            assert!(one.elsewhere(&server(text)).is_none(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_request_waits_for_a_place_in_the_queue_of_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listening = tokio::net::UnixSocket::new_stream().unwrap();
        listening.bind(&path).unwrap();
        let listener = listening.listen(0).unwrap();
        // The queue of this listener has one place.
        let first = tokio::net::UnixStream::connect(&path).await.unwrap();
        let full = tokio::net::UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let transport =
            Transport::new(Server::Unix(path), None, &Credentials::default(), 0).unwrap();
        let request = transport.request(Method::GET, ["x"], "*/*");
        let asked =
            tokio::spawn(async move { transport.send(request).await.map(|(call, _)| call) });
        tokio::time::sleep(2 * AGAIN).await;
        assert!(!asked.is_finished(), "the request waits");
        drop((first, listener.accept().await.unwrap()));
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(asked.await.unwrap().unwrap(), "GET /x");
    }

    #[tokio::test]
    async fn the_library_speaks_tls() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let served = tokio::spawn(async move {
            let mut first = [0];
            listener
                .accept()
                .await
                .unwrap()
                .0
                .read_exact(&mut first)
                .await
                .unwrap();
            first
        });
        let transport = Transport::new(server, None, &Credentials::default(), 0).unwrap();
        assert!(
            transport
                .send(transport.request(Method::GET, ["x"], "*/*"))
                .await
                .is_err()
        );
        assert_eq!(served.await.unwrap(), [22], "a handshake record");
    }
}
