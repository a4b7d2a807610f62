//! A daemon that clients reach over TCP with tokens.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::http::{self, Address};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Namespace, Response, Topology, binary};

/// The roles. Each role has all rights of the roles before it.
pub const ROLES: [&str; 4] = ["viewer", "collector", "operator", "admin"];

const RELOADED: &str = "were read again";

pub struct Scene {
    pub daemon: Daemon,
    pub tcp: SocketAddr,
    pub tokens: Tokens,
    topology: Topology,
}

/// A file of tokens.
pub struct Tokens {
    pub path: PathBuf,
    _directory: tempfile::TempDir,
}

/// A token, and its line in the file.
pub struct Token {
    pub secret: String,
    pub line: String,
}

impl Token {
    pub fn new(name: &str, role: &str) -> Result<Self> {
        let made = Command::new(binary()?)
            .args(["token", name, role])
            .output()?;
        ensure!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let text = String::from_utf8(made.stdout)?;
        let (secret, line) = text.trim_end().split_once('\n').context("two lines")?;
        Ok(Self {
            secret: secret.to_owned(),
            line: line.to_owned(),
        })
    }

    pub fn header(&self) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", self.secret))
    }
}

impl Tokens {
    pub fn new(tokens: &[&Token]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let tokens_file = Self {
            path: directory.path().join("tokens"),
            _directory: directory,
        };
        tokens_file.write(tokens)?;
        Ok(tokens_file)
    }

    pub fn write(&self, tokens: &[&Token]) -> Result<()> {
        let lines: Vec<&str> = tokens.iter().map(|token| &*token.line).collect();
        Ok(fs::write(
            &self.path,
            format!("# a test's\n\n{}\n", lines.join("\n")),
        )?)
    }
}

impl Scene {
    pub fn new(tokens: &[&Token], options: DaemonOptions) -> Result<Self> {
        let topology = Topology::new()?;
        topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
        let tokens = Tokens::new(tokens)?;
        let options = options
            .argument("--listen")
            .argument("127.0.0.1:0")
            .argument("--tokens")
            .argument(&tokens.path);
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let mark = "listening on 127.0.0.1:";
        ensure!(daemon.wait_for_log(mark, PATIENCE), "it does not listen");
        let log = daemon.log();
        let port = log
            .split(mark)
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .context("a port")?;
        let tcp = format!("127.0.0.1:{port}").parse()?;
        Ok(Self {
            daemon,
            tcp,
            tokens,
            topology,
        })
    }

    pub fn namespace(&self) -> &Namespace {
        self.daemon.namespace()
    }

    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Sends a request over TCP.
    pub fn over_tcp(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let sent = self
            .namespace()
            .enter(|| http::request(&Address::Tcp(self.tcp), method, path, headers, body));
        sent.expect("the namespace")
            .unwrap_or_else(|error| panic!("{method} {path}: {error:#}"))
    }

    /// Makes the daemon read its files again, and waits for that.
    pub fn reload(&self) -> Result<()> {
        let count = || self.daemon.log().matches(RELOADED).count();
        let before = count();
        self.daemon.signal(libc::SIGHUP);
        wait_for("the files are read again", PATIENCE, || {
            ensure!(count() > before, "{before} times");
            Ok(())
        })
    }
}
