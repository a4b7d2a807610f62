//! A daemon, with a client that begins anew after failures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use twinprobe_client::{Client, ClientError, Server};

use super::credentials::CredentialFiles;

/// Requests for windows to one daemon at the same time, and connections that stay open for them.
const REQUESTS: usize = 8;
/// Polls that wait at one daemon at the same time. Each holds a connection. A daemon gives 64 to one client.
const POLLS: usize = 24;

/// The time that an answer may take, beside the time that a request asks for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason why a daemon gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{}", with_cause(.0))]
    Client(#[from] ClientError),
    #[error("the daemon at {0} did not answer within {seconds} s", seconds = PATIENCE.as_secs())]
    Slow(Server),
}

/// The text of an error, with its cause.
fn with_cause(error: &ClientError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl AskError {
    /// The status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Client(ClientError::Refused(problem)) => Some(problem.status),
            Self::Client(_) | Self::Slow(_) => None,
        }
    }
}

/// The address of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonAddress {
    pub server: Server,
    /// The address of the server's host, if DNS does not know it.
    pub at: Option<SocketAddr>,
}

impl From<Server> for DaemonAddress {
    fn from(server: Server) -> Self {
        Self { server, at: None }
    }
}

/// A daemon that windows come from.
#[derive(Debug)]
pub struct SourceDaemon {
    /// The name for logs and metrics.
    pub name: String,
    address: DaemonAddress,
    files: CredentialFiles,
    client: Mutex<Client>,
    pub requests: Semaphore,
    pub polls: Semaphore,
}

impl SourceDaemon {
    /// Makes a client; contacts nothing.
    pub fn new(
        name: String,
        address: DaemonAddress,
        files: CredentialFiles,
    ) -> Result<Arc<Self>, ClientError> {
        let client = Self::connect(&address, &files)?;
        let (requests, polls) = (Semaphore::new(REQUESTS), Semaphore::new(POLLS));
        Ok(Arc::new(Self { name, address, files, client: Mutex::new(client), requests, polls }))
    }

    fn connect(
        DaemonAddress { server, at }: &DaemonAddress,
        files: &CredentialFiles,
    ) -> Result<Client, ClientError> {
        let credentials = files.read().map_err(|(_, message)| {
            tracing::warn!(%server, message, "credentials can't be used");
        });
        Client::keeping(server.clone(), *at, &credentials.unwrap_or_default(), REQUESTS)
    }

    pub fn client(&self) -> Client {
        self.client.lock().clone()
    }

    /// Waits for the answer to a call, but not forever.
    pub async fn ask<T>(&self, call: impl Future<Output = Result<T, ClientError>>) -> Result<T, AskError> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(AskError::Slow(self.address.server.clone())),
        }
    }

    /// Call this after a failure: the next requests use credentials as they are now, and new connections.
    pub fn renew(&self) {
        match Self::connect(&self.address, &self.files) {
            Ok(client) => *self.client.lock() = client,
            Err(error) => tracing::warn!(server = self.name, %error, "no new connection is possible"),
        }
    }
}
