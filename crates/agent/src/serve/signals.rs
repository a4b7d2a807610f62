//! The signals that the daemon obeys while it runs: some stop it, and one makes it read files
//! again.

use std::io;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use twinprobe_access::Access;
use twinprobe_serve::Tls;

use crate::folder::changes::WatchedFiles;
use crate::nodes::file::NodesFile;

/// The signals that stop the daemon.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for SIGTERM, SIGINT or the end of a server.
    pub async fn wait(&mut self, servers: &mut JoinSet<()>) -> anyhow::Result<()> {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            Some(ended) = servers.join_next() => ended.context("a server ended")?,
        }
        Ok(())
    }
}

/// Reads replaceable files again while the daemon runs, at each SIGHUP and at each change of
/// `files`.
pub async fn reload(
    mut hangup: Signal,
    mut files: Option<WatchedFiles>,
    tls: Option<Arc<Tls>>,
    access: Arc<Access>,
    nodes: Option<Arc<NodesFile>>,
) {
    loop {
        match &mut files {
            Some(files) => tokio::select! {
                _ = hangup.recv() => {}
                () = files.changed() => {}
            },
            None => drop(hangup.recv().await),
        }
        let (access, nodes) = (Arc::clone(&access), nodes.clone());
        let read = move || {
            access.reload();
            nodes.iter().for_each(|file| file.reload());
        };
        // An error means that the daemon ends.
        let _ = tokio::task::spawn_blocking(read).await;
        match tls.as_ref().map(|tls| tls.reload()) {
            Some(Err(error)) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "certificates can't be read; the daemon keeps the old ones"
                );
            }
            Some(Ok(())) => tracing::info!("the certificates were read again"),
            None => {}
        }
    }
}
