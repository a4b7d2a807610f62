//! A receiver in a separate process, and its answers.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::pidfd::{open_pidfd, send_signal};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::stream;

/// A server; a drop kills the process.
pub struct Server {
    child: Option<Child>,
    program: String,
    arguments: Vec<String>,
    log: std::path::PathBuf,
    port: u16,
}

impl Server {
    /// Starts a program that listens on `port` of this machine.
    pub fn start(
        program: &Path,
        arguments: Vec<String>,
        port: u16,
        directory: &Path,
    ) -> Result<Self> {
        let (program, log) = (program.display().to_string(), directory.join("server.log"));
        let mut server = Self {
            child: None,
            program,
            arguments,
            log,
            port,
        };
        server.again()?;
        Ok(server)
    }

    /// Starts the receiver again after its end.
    pub fn again(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(
            command
                .spawn()
                .with_context(|| format!("{} runs", self.program))?,
        );
        let mut has_ended = || {
            Ok::<_, std::io::Error>(
                self.child
                    .as_mut()
                    .map(Child::try_wait)
                    .transpose()?
                    .flatten()
                    .is_some(),
            )
        };
        let listens = wait_for(&self.program, PATIENCE, || {
            if has_ended()? {
                return Ok(false);
            }
            std::net::TcpStream::connect(("127.0.0.1", self.port))
                .map(|_| true)
                .context("it listens")
        })?;
        ensure!(
            listens,
            "{} has ended: {}",
            self.program,
            std::fs::read_to_string(&self.log)?
        );
        Ok(())
    }

    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops the process properly, so that it writes its data to disk.
    pub fn terminate(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            send_signal(&open_pidfd(child.id())?, libc::SIGTERM);
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Asks a server of Prometheus' API for the only value of a query; 0 if there is none. `more` are
/// arguments of curl.
pub fn ask(base: &str, query: &str, more: &[String]) -> Result<f64> {
    let mut command = Command::new("curl");
    command
        .args([
            "-sS",
            "--fail-with-body",
            "-G",
            "--data-urlencode",
            &format!("query={query}"),
        ])
        .args(more);
    let output = command.arg(format!("{base}/api/v1/query")).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answer: Value = serde_json::from_str(&text)?;
    let found = &answer["data"]["result"];
    ensure!(
        found.as_array().is_some_and(|found| found.len() <= 1),
        "{query}: {answer}"
    );
    Ok(found[0]["value"][1].as_str().unwrap_or("0").parse()?)
}

/// Runs a stream to its end. Returns its last words.
pub fn send_all(config: &Path) -> Result<String> {
    let output = stream(&["-f", &config.display().to_string(), "--once"])?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{error}");
    Ok(error)
}
