//! Remote write into Prometheus.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::server::{Server, ask, send_all};
use crate::scene::{COLLECTOR, Node, Stream, configuration, free_port, kill_in_turn, stream};
use twinprobe_tests::certificates::Certificates;

/// `hunter2` by bcrypt.
const HASH: &str = "$2b$04$TVI4aPHswhHCBgw5pz.v0e2u3Hr4QXIAzpqYM30lwf/adfoDHL9q6";

/// A Prometheus that takes remote writes, with TLS, client certificates and a password.
pub struct Prometheus {
    pub server: Server,
    pub directory: TempDir,
    pub certificates: Certificates,
    port: u16,
}

impl Prometheus {
    pub fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (certificates, port) = (Certificates::new(directory.path())?, free_port()?);
        let path = |name: &str| directory.path().join(name);
        fs::write(path("config"), "global: {}\n")?;
        fs::write(path("password"), "hunter2\n")?;
        let file = |name: &str| certificates.path(name).display().to_string();
        let web = json!({
            "tls_server_config": {
                "cert_file": file("server"), "key_file": file("server-key"), "client_ca_file": file("authority"),
                "client_auth_type": "RequireAndVerifyClientCert",
            },
            "basic_auth_users": { "archive": HASH },
        });
        fs::write(path("web"), web.to_string())?;
        let arguments = [
            format!("--config.file={}", path("config").display()),
            format!("--storage.tsdb.path={}", path("data").display()),
            format!("--web.config.file={}", path("web").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--web.enable-remote-write-receiver".to_owned(),
        ];
        let program = Path::new("/usr/bin/prometheus");
        let server = Server::start(program, arguments.into(), port, directory.path())?;
        let prometheus = Self {
            server,
            directory,
            certificates,
            port,
        };
        prometheus.wait()?;
        Ok(prometheus)
    }

    /// Waits until Prometheus has read its own files.
    pub fn wait(&self) -> Result<()> {
        wait_for("Prometheus", PATIENCE, || self.ask("vector(1)").map(drop))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn base(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The receiver of a stream, with these changes.
    pub fn receiver(&self, more: &Value) -> Value {
        let mut options = json!({
            "url": format!("{}/api/v1/write", self.base()), "user": "archive", "passwordFile": self.path("password"),
            "ca": self.certificates.path("authority"), "cert": self.certificates.path("client"),
            "key": self.certificates.path("client-key"),
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        if let Some(options) = options.as_object_mut() {
            options.retain(|_, value| !value.is_null());
        }
        json!([{ "prometheus": options }])
    }

    /// Arguments of curl with which Prometheus answers.
    pub fn credentials(&self) -> Vec<String> {
        let file = |name: &str| self.certificates.path(name).display().to_string();
        [
            ["--cacert", &file("authority")],
            ["--cert", &file("client")],
            ["--key", &file("client-key")],
            ["--user", "archive:hunter2"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    pub fn ask(&self, query: &str) -> Result<f64> {
        ask(&self.base(), query, &self.credentials())
    }

    /// The sum of all windows.
    pub fn packets(&self, node: &str) -> Result<u64> {
        Ok(self.ask(&format!(
            "sum(sum_over_time(packets{{node=\"{node}\"}}[1h]))"
        ))? as u64)
    }
}

/// Stream, Prometheus and daemon are killed at any moment. Each window is one sample, and the sums
/// are the sent packets.
#[test]
fn series_have_each_packet_once_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut prometheus = Prometheus::new()?;
    let mut node = Node::new("gw-1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let to = prometheus.receiver(&json!({}));
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
    let mut restart = || {
        prometheus.server.kill()?;
        prometheus.server.again()?;
        prometheus.wait()
    };
    kill_in_turn(&mut node, &config, scaled(9, 300), Some(&mut restart))?;
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let told = send_all(&config)?;
    ensure!(!told.contains("refuses"), "{told}");
    let counted = prometheus.packets("gw-1.example")?;
    ensure!(counted == sent, "{sent} were sent, {counted} are there");
    let of_windows = "{node=\"gw-1.example\",probe=\"p\"}[1h])";
    let [samples, last] = ["count", "max"].map(|what| {
        prometheus.ask(&format!(
            "{what}_over_time(twinprobe_window_seq{of_windows}"
        ))
    });
    let (samples, last) = (samples?, last?);
    ensure!(
        samples as u64 == last as u64 && last > 9.0,
        "{samples} samples, the last is of window {last}"
    );
    Ok(())
}

/// Names and labels are the same as in the daemon's export; a second run finds all samples already
/// there.
#[test]
fn samples_are_named_as_in_the_export() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (prometheus, node) = (Prometheus::new()?, Node::new("node-0")?);
    let collectors = [COLLECTOR, "second"];
    node.deploy(&json!({ "collectors": collectors }));
    let generator = node.traffic()?;
    for _ in 0..5 {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let sent = generator.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let to = prometheus
        .receiver(&json!({ "labels": { "site": "turin", "probe": "own" }, "maxBytes": 4096 }));
    let told = send_all(&configuration(directory.path(), &[&node], &to, &json!({}))?)?;
    ensure!(
        told.contains("sent 6 windows") && !told.contains("hunter2"),
        "{told}"
    );
    let labels = "{node=\"node-0\",site=\"turin\",probe=\"own\",exported_probe=\"p\",direction=\"ingress\",interface=\"mon0\"}";
    let query = format!("sum(sum_over_time(packets{labels}[1h]))");
    ensure!(prometheus.ask(&query)? as u64 == sent, "{sent}");
    let duration = prometheus.ask("sum(sum_over_time(twinprobe_window_seconds[1h]))")?;
    ensure!(
        duration > 0.0 && prometheus.ask("count(twinprobe_probe_info)")? as u64 == 1,
        "{duration}"
    );
    // Another collector sends the same windows: all except the newest are older than the existing
    // samples.
    let again = configuration(
        directory.path(),
        &[&node],
        &to,
        &json!({ "name": "second" }),
    )?;
    let told = send_all(&again)?;
    ensure!(
        told.contains("5 there already") && !told.contains("refuses"),
        "{told}"
    );
    ensure!(prometheus.ask(&query)? as u64 == sent);
    Ok(())
}

/// The log names the setting that an operator must change, and nothing is acknowledged until it is
/// changed. A dry run contacts nothing.
#[test]
fn refusals_about_access_lose_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (prometheus, node) = (Prometheus::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let config = configuration(
        directory.path(),
        &[&node],
        &prometheus.receiver(&json!({})),
        &json!({}),
    )?;
    let output = stream(&["-f", &config.display().to_string(), "--dry-run"])?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && told.contains("p/1 -> https://127.0.0.1"),
        "{told}"
    );
    let [nowhere, elsewhere] = ["/nowhere", "/api/v1/query"].map(|path| prometheus.base() + path);
    let (password, wrong) = (prometheus.path("password"), prometheus.path("wrong"));
    fs::write(&wrong, "hunter3\n")?;
    for (more, expected) in [
        (
            json!({ "ca": prometheus.certificates.path("other") }),
            "UnknownIssuer",
        ),
        // TLS 1.3: the server asks for the certificate after the handshake, and may close before
        // its alert is read.
        (
            json!({ "cert": null, "key": null }),
            "the receiver does not take windows",
        ),
        (json!({ "passwordFile": wrong }), "401 Unauthorized"),
        (json!({ "url": nowhere }), "404 Not Found"),
        // This answer does not depend on the data, but on the connection.
        (
            json!({ "url": elsewhere }),
            "refuses even an empty message: 400",
        ),
        (
            json!({ "key": prometheus.path("none") }),
            "none: No such file",
        ),
    ] {
        let config = configuration(
            directory.path(),
            &[&node],
            &prometheus.receiver(&more),
            &json!({}),
        )?;
        let running = Stream::start(&config)?;
        wait_for("the reason", PATIENCE, || {
            let log = running.log();
            ensure!(
                log.contains(expected) && !log.contains("hunter"),
                "{more}: {log}"
            );
            Ok(())
        })?;
        ensure!(node.unacknowledged() == 1, "{more}");
    }
    // The file with the secret is read again after a failure.
    fs::write(&password, "hunter3\n")?;
    let config = configuration(
        directory.path(),
        &[&node],
        &prometheus.receiver(&json!({})),
        &json!({}),
    )?;
    let running = Stream::start(&config)?;
    wait_for("the refusal", PATIENCE, || {
        ensure!(running.log().contains("401"), "{}", running.log());
        Ok(())
    })?;
    fs::write(&password, "hunter2\n")?;
    wait_for("the acknowledgement", PATIENCE, || {
        ensure!(node.unacknowledged() == 0, "{}", running.log());
        Ok(())
    })?;
    running.terminate()
}
