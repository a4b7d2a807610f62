//! A real kube-apiserver on a real etcd, with nothing else of Kubernetes. Requests are those of kubectl.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::wait::{PATIENCE, wait_for};

const TOKEN: &str = "admin";

/// An API server that ends with this value.
#[derive(Debug)]
pub struct Cluster {
    // The server first: without etcd it would not end.
    server: Ended,
    etcd: Ended,
    port: u16,
    directory: TempDir,
}

#[derive(Debug)]
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // A process that has ended already is no failure.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Starts the server and etcd, whose programs are in `bin`, and waits until the server is ready.
    pub fn start(bin: &Path) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        let key = rsa_key(&at("sa.key"))?;
        fs::write(at("tokens.csv"), format!("{TOKEN},admin,1,system:masters\n"))?;
        let [clients, peers, port] = ports()?;
        let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
        let mut etcd = Command::new(bin.join("etcd"));
        etcd.args([
            "--unsafe-no-fsync",
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ]);
        etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        etcd.args(["--initial-cluster", &format!("default={peers}")]).arg("--data-dir").arg(at("etcd"));
        let etcd = started(&mut etcd, &at("etcd.log"))?;
        let mut server = Command::new(bin.join("kube-apiserver"));
        server.args([
            "--etcd-servers",
            &clients,
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            &port.to_string(),
        ]);
        server.args(["--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24"]);
        server.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        for (flag, path) in [
            ("--cert-dir", at("certificates")),
            ("--token-auth-file", at("tokens.csv")),
            ("--service-account-key-file", key.clone()),
            ("--service-account-signing-key-file", key),
        ] {
            server.arg(flag).arg(path);
        }
        let server = started(&mut server, &at("server.log"))?;
        let cluster = Self { server, etcd, port, directory };
        wait_for("the API server is ready", PATIENCE, || cluster.kubectl(&["get", "--raw", "/readyz"], ""))
            .with_context(|| cluster.log())?;
        Ok(cluster)
    }

    /// Runs kubectl with this input, and returns its output.
    ///
    /// # Errors
    ///
    /// Fails with what kubectl has said if it fails.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.ask(arguments, input)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{said}");
        ensure!(!said.contains("Warning"), "{said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn ask(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let mut command = Command::new("kubectl");
        command.args(["--server", &format!("https://127.0.0.1:{}", self.port), "--token", TOKEN]);
        command.args(["--insecure-skip-tls-verify", "--kubeconfig", "/dev/null"]).args(arguments);
        // kubectl keeps what the server has told of its kinds.
        command.arg("--cache-dir").arg(self.directory.path().join("cache"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("kubectl runs; Debian has it in kubernetes-client")?;
        child.stdin.take().context("kubectl reads")?.write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }

    fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        format!(
            "process {}:\n{}\netcd {}:\n{}",
            self.server.0.id(),
            read("server.log"),
            self.etcd.0.id(),
            read("etcd.log")
        )
    }
}

fn started(command: &mut Command, log: &Path) -> Result<Ended> {
    let log = File::create(log)?;
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    Ok(Ended(child.with_context(|| format!("{command:?}"))?))
}

/// Makes the key of the tokens of service accounts.
fn rsa_key(path: &Path) -> Result<PathBuf> {
    let output = Command::new("openssl").args(["genrsa", "-out"]).arg(path).arg("2048").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(path.to_owned())
}

/// Returns ports that are free.
fn ports<const N: usize>() -> Result<[u16; N]> {
    let listeners = (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
    let ports = listeners.iter().map(|it| Ok(it.local_addr()?.port())).collect::<Result<Vec<u16>>>()?;
    ports.try_into().ok().context("as many ports")
}
