//! A stream that finds the daemons of a Service, with the objects of deploy/kubernetes/stream.yaml.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use twinprobe_tests::cluster::{Cluster, Ended};
use twinprobe_tests::netns::Namespace;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::topology::veth_pair;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Running};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, helper};

use crate::scene::{NAMESPACE, refused};

/// The port of the API, and the token of the stream there.
const PORT: u16 = 9470;
const TOKEN: &str = "a-token-of-the-stream";
/// The objects as people apply them.
const OBJECTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../deploy/kubernetes/stream.yaml"
);

/// A daemon with its own cable to the host, like a pod of a DaemonSet.
pub struct Member {
    pub name: String,
    address: String,
    pub daemon: Daemon,
    topology: Topology,
}

impl Member {
    /// Starts a daemon with the probe `p`, whose configuration gets these fields. `at` is part of
    /// its name and address.
    pub fn new(at: u8, files: &Path, fields: &Value) -> Result<Self> {
        let (name, topology) = (format!("n{at}"), Topology::new()?);
        let (here, there) = (format!("tps{}x{at}", std::process::id()), "api0");
        let address = format!("198.18.{at}.2");
        let host = Namespace::current()?;
        veth_pair(&host, &here, topology.monitor(), there)?;
        for (namespace, interface, number) in
            [(&host, here.as_str(), 1), (topology.monitor(), there, 2)]
        {
            namespace.run("ip", &["link", "set", interface, "arp", "on"])?;
            let address = format!("198.18.{at}.{number}/30");
            namespace.run("ip", &["address", "add", &address, "dev", interface])?;
        }
        let file = |name: &str| files.join(name).display().to_string();
        let mut options = DaemonOptions::default();
        for argument in [
            "--node-name",
            &name,
            "--listen",
            &format!("{address}:{PORT}"),
            "--host",
            &format!("twinprobe.{NAMESPACE}.svc"),
            "--tls-cert",
            &file("cert"),
            "--tls-key",
            &file("key"),
            "--tokens",
            &file("tokens"),
        ] {
            options = options.argument(argument);
        }
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let mut config = counter_config("mon0", "XDP_PASS");
        for (field, value) in fields.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
        daemon.put("/v1/probes/p", &config).expect(201);
        Ok(Self {
            name,
            address,
            daemon,
            topology,
        })
    }

    /// Sends this many packets in a second, until the value is dropped.
    pub fn traffic(&self, rate: u64) -> Result<Running> {
        let generator = Generator::new(
            self.topology.generator(),
            "gen0",
            GeneratorOptions::default(),
        )?;
        Ok(generator.spawn(Load {
            rate: Some(rate),
            ..Load::default()
        }))
    }

    /// Closes a window, and waits until the stream has acknowledged it.
    fn is_streamed(&self) -> Result<()> {
        self.daemon
            .post("/v1/probes/p/windows", &json!({}))
            .expect(201);
        wait_for("an acknowledgement", PATIENCE, || {
            let list = self.daemon.json("/v1/probes/p/windows?collector=archive");
            ensure!(
                list["windows"].as_array().is_some_and(Vec::is_empty),
                "{list}"
            );
            Ok(())
        })
    }

    fn endpoint(&self) -> Value {
        json!({ "addresses": [self.address], "nodeName": self.name, "conditions": { "ready": true } })
    }
}

/// Writes the certificate of all daemons, which names only the Service, and their token with this
/// role.
pub fn credentials(files: &Path, role: &str) -> Result<()> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let (key, service) = (KeyPair::generate()?, format!("twinprobe.{NAMESPACE}.svc"));
    let certificate = CertificateParams::new(vec![service])?.signed_by(&key, &authority)?;
    let digest = Sha256::digest(TOKEN)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    for (name, text) in [
        ("ca", authority.pem()),
        ("cert", certificate.pem()),
        ("key", key.serialize_pem()),
        ("tokens", format!("stream {role} {digest}\n")),
        ("token", TOKEN.to_owned()),
    ] {
        fs::write(files.join(name), text)?;
    }
    Ok(())
}

/// Tells the cluster the daemons of the Service, as its controller does.
pub fn endpoints(cluster: &Cluster, members: &[&Member]) -> Result<()> {
    let endpoints: Vec<Value> = members.iter().map(|member| member.endpoint()).collect();
    let labels = json!({ "kubernetes.io/service-name": "twinprobe" });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "twinprobe-1", "namespace": NAMESPACE, "labels": labels },
        "ports": [{ "name": "metrics", "port": 9471 }, { "name": "api", "port": PORT }],
        "endpoints": endpoints,
    });
    cluster
        .kubectl(&["apply", "-f", "-"], &slice.to_string())
        .map(drop)
}

/// The configuration of the ConfigMap, with the paths and the receiver of this machine.
fn configuration(objects: &str, cluster: &Cluster, folder: &Path) -> Result<Value> {
    let documents = yaml_serde::Deserializer::from_str(objects);
    let objects: Result<Vec<Value>, _> = documents.map(serde::Deserialize::deserialize).collect();
    let map = objects?
        .into_iter()
        .find(|object| object["kind"] == "ConfigMap")
        .context("a ConfigMap")?;
    let text = map["data"]["stream.yaml"]
        .as_str()
        .context("a configuration")?;
    let mut config: Value = yaml_serde::from_str(text)?;
    ensure!(config["from"]["kubernetes"] == true, "{config}");
    let file = |name: &str| folder.join(name);
    config["from"]["kubernetes"] = json!({
        "namespace": NAMESPACE, "apiServer": cluster.url(), "apiCa": cluster.authorities(),
        "apiTokenFile": file("account"),
    });
    (config["from"]["ca"], config["from"]["tokenFile"]) = (json!(file("ca")), json!(file("token")));
    config["to"] = json!([{ "file": { "directory": file("windows"), "every": "100ms" } }]);
    config["listen"] = json!("127.0.0.1:0");
    Ok(config)
}

fn stream(folder: &TempDir, config: &Value) -> Result<Command> {
    fs::write(folder.path().join("stream.json"), config.to_string())?;
    let mut command = Command::new(helper("twinprobe-stream")?);
    command.arg("-f").arg(folder.path().join("stream.json"));
    Ok(command)
}

#[test]
fn a_stream_follows_the_daemons_behind_a_service() -> Result<()> {
    let mut cluster =
        Cluster::start(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes/bin"))?;
    cluster.kubectl(&["create", "namespace", NAMESPACE], "")?;
    let objects = fs::read_to_string(OBJECTS)?;
    cluster.kubectl(&["apply", "-f", "-"], &objects)?;
    let folder = tempfile::tempdir()?;
    credentials(folder.path(), "collector")?;
    let account = cluster.kubectl(
        &["-n", NAMESPACE, "create", "token", "twinprobe-stream"],
        "",
    )?;
    fs::write(folder.path().join("account"), &account)?;
    refused(
        cluster.kubectl_as(account.trim(), &["-n", NAMESPACE, "get", "secrets"], ""),
        "forbidden",
    )?;

    let fields = json!({ "window": { "collectors": ["archive"] } });
    let members = (0..3).map(|at| Member::new(at, folder.path(), &fields));
    let members: Vec<Member> = members.collect::<Result<_>>()?;
    let [first, second, third] = &members[..] else {
        unreachable!("three daemons")
    };
    endpoints(&cluster, &[first, second])?;
    let config = configuration(&objects, &cluster, folder.path())?;
    let log = folder.path().join("stream.log");
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let running = Ended(
        stream(&folder, &config)?
            .stderr(File::create(&log)?)
            .spawn()?,
    );
    (first.is_streamed().and_then(|()| second.is_streamed())).with_context(said)?;

    // A daemon starts, another one ends, and the API server is down for a while.
    endpoints(&cluster, &[second, third])?;
    third.is_streamed().with_context(said)?;
    cluster.restart(|| second.is_streamed())?;
    first
        .daemon
        .post("/v1/probes/p/windows", &json!({}))
        .expect(201);
    second.is_streamed().with_context(said)?;
    let left = first.daemon.json("/v1/probes/p/windows?collector=archive");
    assert_eq!(
        left["windows"].as_array().map(Vec::len),
        Some(1),
        "{}",
        said()
    );
    endpoints(&cluster, &[first, second, third])?;
    wait_for("the daemon that comes back", PATIENCE, || {
        let left = first.daemon.json("/v1/probes/p/windows?collector=archive");
        ensure!(
            left["windows"].as_array().is_some_and(Vec::is_empty),
            "{left}\n{}",
            said()
        );
        Ok(())
    })?;
    drop(running);

    // A stream with `--once` asks each daemon once, and ends.
    third
        .daemon
        .post("/v1/probes/p/windows", &json!({}))
        .expect(201);
    let output = stream(&folder, &config)?.arg("--once").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && text.contains("sent 1 windows"),
        "{text}"
    );
    fs::write(folder.path().join("account"), "nothing")?;
    let output = stream(&folder, &config)?.arg("--dry-run").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        text.contains("from.kubernetes") && text.contains("(401)"),
        "{text}"
    );
    Ok(())
}
