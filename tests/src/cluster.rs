//! A real kube-apiserver on a real etcd, without other parts of Kubernetes. kubectl sends the
//! requests.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::wait::{PATIENCE, wait_for};

/// The token of somebody who may do everything.
pub const TOKEN: &str = "admin";

/// An API server that ends with this value.
#[derive(Debug)]
pub struct Cluster {
    // The API server is stopped first: without etcd it would not end.
    server: Ended,
    etcd: Ended,
    port: u16,
    clients: String,
    peers: String,
    bin: PathBuf,
    directory: TempDir,
}

/// A process that is killed with this value.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // A process that has ended already is not a failure.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Starts the server and etcd, whose programs are in `bin`, and waits until the server is
    /// ready.
    pub fn start(bin: &Path) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        rsa_key(&at("sa.key"))?;
        fs::write(
            at("tokens.csv"),
            format!("{TOKEN},admin,1,system:masters\n"),
        )?;
        let [clients, peers, port] = ports()?;
        let (clients, peers) = (
            format!("http://127.0.0.1:{clients}"),
            format!("http://127.0.0.1:{peers}"),
        );
        let at = directory.path();
        let etcd = store(bin, at, &clients, &peers)?;
        let server = serve(bin, at, &clients, port)?;
        let cluster = Self {
            server,
            etcd,
            port,
            clients,
            peers,
            bin: bin.to_owned(),
            directory,
        };
        cluster.wait()?;
        Ok(cluster)
    }

    /// Kills the API server, and starts it again after `meanwhile`.
    ///
    /// # Errors
    ///
    /// Fails if `meanwhile` fails, or the server does not come back.
    pub fn restart(&mut self, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        self.server.0.kill()?;
        self.server.0.wait()?;
        meanwhile()?;
        self.server = serve(&self.bin, self.directory.path(), &self.clients, self.port)?;
        self.wait()
    }

    /// Kills etcd, and starts it again on its data after `meanwhile`.
    ///
    /// # Errors
    ///
    /// As [`Cluster::restart`].
    pub fn restart_etcd(&mut self, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        self.etcd.0.kill()?;
        self.etcd.0.wait()?;
        meanwhile()?;
        self.etcd = store(&self.bin, self.directory.path(), &self.clients, &self.peers)?;
        self.wait()
    }

    /// The processes of the API server and of etcd.
    #[must_use]
    pub fn processes(&self) -> [u32; 2] {
        [self.server.0.id(), self.etcd.0.id()]
    }

    fn wait(&self) -> Result<()> {
        wait_for("the API server is ready", PATIENCE, || {
            self.kubectl(&["get", "--raw", "/readyz"], "")
        })
        .with_context(|| self.log())?;
        Ok(())
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The file with the authority of the server's certificate.
    #[must_use]
    pub fn authorities(&self) -> PathBuf {
        self.directory.path().join("certificates/apiserver.crt")
    }

    /// Writes a file with which programs find the server, with the rights of this token.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be written.
    pub fn kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(name);
        let cluster = serde_json::json!({ "server": self.url(), "certificate-authority": self.authorities() });
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": cluster }],
            "users": [{ "name": "it", "user": { "token": token } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        });
        fs::write(&path, text.to_string())?;
        Ok(path)
    }

    /// Runs kubectl with this input, and returns its output.
    ///
    /// # Errors
    ///
    /// If kubectl fails, this fails with its output.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        self.kubectl_as(TOKEN, arguments, input)
    }

    /// Runs kubectl with the rights of this token.
    ///
    ///
    /// Fails as [`Cluster::kubectl`] does.
    pub fn kubectl_as(&self, token: &str, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.ask(token, arguments, input)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{said}");
        ensure!(!said.contains("Warning"), "{said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn ask(&self, token: &str, arguments: &[&str], input: &str) -> Result<Output> {
        let mut command = Command::new("kubectl");
        command.args(["--server", &self.url(), "--token", token]);
        command
            .args(["--insecure-skip-tls-verify", "--kubeconfig", "/dev/null"])
            .args(arguments);
        // kubectl caches the server's list of kinds.
        command
            .arg("--cache-dir")
            .arg(self.directory.path().join("cache"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .context("kubectl runs; Debian has it in kubernetes-client")?;
        child
            .stdin
            .take()
            .context("kubectl reads")?
            .write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }

    fn log(&self) -> String {
        let read =
            |name: &str| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        format!(
            "process {}:\n{}\netcd {}:\n{}",
            self.server.0.id(),
            read("server.log"),
            self.etcd.0.id(),
            read("etcd.log")
        )
    }
}

/// Starts etcd. Without flushes of its disk a kill loses nothing; only a loss of power would.
fn store(bin: &Path, directory: &Path, clients: &str, peers: &str) -> Result<Ended> {
    let mut etcd = Command::new(bin.join("etcd"));
    etcd.args([
        "--unsafe-no-fsync",
        "--listen-client-urls",
        clients,
        "--advertise-client-urls",
        clients,
    ]);
    etcd.args([
        "--listen-peer-urls",
        peers,
        "--initial-advertise-peer-urls",
        peers,
    ]);
    etcd.args(["--initial-cluster", &format!("default={peers}")]);
    etcd.arg("--data-dir").arg(directory.join("etcd"));
    started(&mut etcd, &directory.join("etcd.log"))
}

/// Pauses a process, or lets it continue.
///
/// # Errors
///
/// Fails if the process does not exist.
pub fn pause(process: u32, is_paused: bool) -> Result<()> {
    let process = i32::try_from(process)
        .ok()
        .and_then(Pid::from_raw)
        .context("a process")?;
    Ok(kill_process(
        process,
        if is_paused {
            Signal::STOP
        } else {
            Signal::CONT
        },
    )?)
}

/// Starts the API server.
fn serve(bin: &Path, directory: &Path, clients: &str, port: u16) -> Result<Ended> {
    let at = |name: &str| directory.join(name);
    let mut server = Command::new(bin.join("kube-apiserver"));
    server.args([
        "--etcd-servers",
        clients,
        "--bind-address",
        "127.0.0.1",
        "--secure-port",
        &port.to_string(),
    ]);
    server.args([
        "--authorization-mode",
        "RBAC",
        "--service-cluster-ip-range",
        "10.0.0.0/24",
    ]);
    server.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    for (flag, path) in [
        ("--cert-dir", at("certificates")),
        ("--token-auth-file", at("tokens.csv")),
        ("--service-account-key-file", at("sa.key")),
        ("--service-account-signing-key-file", at("sa.key")),
    ] {
        server.arg(flag).arg(path);
    }
    started(&mut server, &at("server.log"))
}

/// Starts a program that writes its log into a file.
///
/// # Errors
///
/// Fails if the file can't be made, or the program does not start.
pub fn started(command: &mut Command, log: &Path) -> Result<Ended> {
    let log = File::options().create(true).append(true).open(log)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn();
    Ok(Ended(child.with_context(|| format!("{command:?}"))?))
}

/// Makes the key of the tokens of service accounts.
fn rsa_key(path: &Path) -> Result<()> {
    let output = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(path)
        .arg("2048")
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns ports that are free.
///
/// # Errors
///
/// Fails if no ports are free.
pub fn ports<const N: usize>() -> Result<[u16; N]> {
    let listeners = (0..N)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<std::io::Result<Vec<_>>>()?;
    let ports = listeners
        .iter()
        .map(|it| Ok(it.local_addr()?.port()))
        .collect::<Result<Vec<u16>>>()?;
    ports.try_into().ok().context("as many ports")
}
