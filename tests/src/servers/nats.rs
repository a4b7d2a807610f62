//! NATS with JetStream: the real server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::{free_port, tool};
use crate::pidfd::{open_pidfd, send_signal};
use crate::wait::{PATIENCE, wait_for};

/// A server. It is killed on drop.
pub struct NatsServer {
    child: Option<Child>,
    port: u16,
    directory: PathBuf,
}

impl NatsServer {
    pub fn new(directory: &Path) -> Result<Self> {
        let mut server = Self { child: None, port: free_port()?, directory: directory.to_owned() };
        server.start()?;
        Ok(server)
    }

    pub fn start(&mut self) -> Result<()> {
        let mut command = Command::new(tool("bin/nats-server")?);
        command.args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"]).arg(&self.directory);
        self.child = Some(command.stderr(Stdio::null()).stdout(Stdio::null()).spawn()?);
        wait_for("nats-server", PATIENCE, || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).map(drop).context("it listens")
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
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
