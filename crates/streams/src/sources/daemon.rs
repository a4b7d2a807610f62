//! A daemon, and a client that is made again after failures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use twinprobe_client::{Client, ClientError, Server};

use super::credentials::CredentialFiles;

/// The most requests for windows to one daemon at the same time. It is also the number of
/// connections that stay open for them.
const REQUESTS: usize = 8;
/// The most requests that wait for windows at one daemon at the same time. Each occupies a
/// connection, and a daemon allows 64 to one client.
const POLLS: usize = 24;

/// The time that an answer may take in addition to the time for which a request asks.
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

/// The URL and other facts by which a client reaches a daemon.
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
    /// True if the daemon's version sends only one window with each answer.
    sends_single: AtomicBool,
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
        let (client, sends_single) = (Mutex::new(client), AtomicBool::new(false));
        Ok(Arc::new(Self {
            name,
            address,
            files,
            client,
            requests,
            polls,
            sends_single,
        }))
    }

    fn connect(
        DaemonAddress { server, at }: &DaemonAddress,
        files: &CredentialFiles,
    ) -> Result<Client, ClientError> {
        let credentials = files.read().map_err(|(_, message)| {
            tracing::warn!(%server, message, "credentials can't be used");
        });
        Client::keeping(
            server.clone(),
            *at,
            &credentials.unwrap_or_default(),
            REQUESTS,
        )
    }

    pub fn client(&self) -> Client {
        self.client.lock().clone()
    }

    /// Waits for the answer to a call, but not forever.
    pub async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, AskError> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(AskError::Slow(self.address.server.clone())),
        }
    }

    /// Tells whether the daemon's version sends only one window with each answer.
    pub fn sends_single(&self) -> bool {
        self.sends_single.load(Ordering::Relaxed)
    }

    /// Notes that the daemon does not know the request for several windows.
    pub fn note_single(&self) {
        if !self.sends_single.swap(true, Ordering::Relaxed) {
            tracing::info!(
                server = self.name,
                "the daemon is of an earlier version: each window is a request"
            );
        }
    }

    /// Call this after a failure: the next requests use credentials as they are now, and new
    /// connections. The daemon may be of another version.
    pub fn renew(&self) {
        self.sends_single.store(false, Ordering::Relaxed);
        match Self::connect(&self.address, &self.files) {
            Ok(client) => *self.client.lock() = client,
            Err(error) => tracing::warn!(server = self.name, %error, "a new connection fails"),
        }
    }
}
