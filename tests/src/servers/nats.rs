//! NATS with JetStream: the real server.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::{free_port, tool};
use crate::certificates::Certificates;
use crate::pidfd::{open_pidfd, send_signal};
use crate::wait::{PATIENCE, wait_for};

/// A server; a drop kills the process.
pub struct NatsServer {
    child: Option<Child>,
    address: String,
    port: u16,
    directory: PathBuf,
    /// The file with the settings of a server with TLS.
    settings: Option<PathBuf>,
}

impl NatsServer {
    pub fn new(directory: &Path) -> Result<Self> {
        let (address, port, directory) =
            ("127.0.0.1".to_owned(), free_port()?, directory.to_owned());
        let mut server = Self {
            child: None,
            address,
            port,
            directory,
            settings: None,
        };
        server.start()?;
        Ok(server)
    }

    /// Starts a server at an address of the thread's network namespace. The server speaks TLS with
    /// clients that have a certificate. Start it again only in the same namespace.
    pub fn secured(directory: &Path, address: &str, files: &Certificates) -> Result<Self> {
        let (port, path) = (free_port()?, directory.with_extension("conf"));
        let [cert, key, ca] = ["server", "server-key", "authority"].map(|name| files.path(name));
        let settings = format!(
            "listen: \"{address}:{port}\"\njetstream {{ store_dir: {directory:?}, max_file_store: 200MB }}\n\
             tls {{ cert_file: {cert:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true }}\n"
        );
        fs::write(&path, settings)?;
        let (address, directory) = (address.to_owned(), directory.to_owned());
        let mut server = Self {
            child: None,
            address,
            port,
            directory,
            settings: Some(path),
        };
        server.start()?;
        Ok(server)
    }

    pub fn start(&mut self) -> Result<()> {
        let mut command = Command::new(tool("bin/nats-server")?);
        match &self.settings {
            Some(settings) => command.arg("-c").arg(settings),
            None => {
                let address = [
                    "-js",
                    "-a",
                    &self.address,
                    "-p",
                    &self.port.to_string(),
                    "-sd",
                ];
                command.args(address).arg(&self.directory)
            }
        };
        self.child = Some(
            command
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .spawn()?,
        );
        wait_for("nats-server", PATIENCE, || {
            TcpStream::connect((&*self.address, self.port))
                .map(drop)
                .context("it listens")
        })
    }

    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("it runs")?.id())
    }

    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn signal(&self, signal: i32) -> Result<()> {
        let child = self.child.as_ref().context("it runs")?;
        send_signal(&open_pidfd(child.id())?, signal);
        Ok(())
    }

    pub fn url(&self) -> String {
        let scheme = if self.settings.is_some() {
            "tls"
        } else {
            "nats"
        };
        format!("{scheme}://{}:{}", self.address, self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
