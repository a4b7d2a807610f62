//! OTLP into the OpenTelemetry collector, which writes its data into a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::server::{Server, send_all};
use crate::scene::{COLLECTOR, Node, Stream, configuration, free_port, kill_in_turn, tool};
use twinprobe_tests::certificates::Certificates;

const TOKEN: &str = "hunter2";
/// The number of deltas in `aggregationTemporality`.
const DELTA: u64 = 1;

/// A collector that wants certificates and a token, and accepts messages of at most this many
/// bytes.
struct Collector {
    server: Server,
    directory: TempDir,
    certificates: Certificates,
    port: u16,
}

impl Collector {
    fn new(most: usize) -> Result<Self> {
        let (directory, port) = (tempfile::tempdir()?, free_port()?);
        let certificates = Certificates::new(directory.path())?;
        let path = |name: &str| directory.path().join(name);
        fs::write(path("token"), format!("{TOKEN}\n"))?;
        let tls = json!({
            "cert_file": certificates.path("server"), "key_file": certificates.path("server-key"),
            "client_ca_file": certificates.path("authority"),
        });
        let http = json!({
            "endpoint": format!("127.0.0.1:{port}"), "max_request_body_size": most, "tls": tls,
            "auth": { "authenticator": "bearertokenauth" },
        });
        // With a rotation it writes each message before it answers.
        let file = json!({ "path": path("points"), "rotation": { "max_megabytes": 1_000 } });
        let config = json!({
            "extensions": { "bearertokenauth": { "token": TOKEN } },
            "receivers": { "otlp": { "protocols": { "http": http } } },
            "exporters": { "file": file },
            "service": {
                "extensions": ["bearertokenauth"],
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": { "metrics": { "receivers": ["otlp"], "exporters": ["file"] } },
            },
        });
        fs::write(path("config.yaml"), config.to_string())?;
        let arguments = vec![
            "--config".to_owned(),
            format!("file:{}", path("config.yaml").display()),
        ];
        let server = Server::start(&tool("bin/otelcol")?, arguments, port, directory.path())?;
        Ok(Self {
            server,
            directory,
            certificates,
            port,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn receiver(&self) -> Value {
        json!([{ "otlp": {
            "url": format!("https://127.0.0.1:{}/v1/metrics", self.port), "tokenFile": self.path("token"),
            "ca": self.certificates.path("authority"), "cert": self.certificates.path("client"),
            "key": self.certificates.path("client-key"),
        } }])
    }

    /// All stored points, each once: the resource and the metric, and the point.
    fn points(&self) -> Result<Vec<CollectedPoint>> {
        let mut found = BTreeMap::new();
        let text = fs::read_to_string(self.path("points")).unwrap_or_default();
        // A line that a kill has cut was not answered.
        for message in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            for resource in list(&message["resourceMetrics"]) {
                for scope in resource["scopeMetrics"].as_array().into_iter().flatten() {
                    let seq = &scope["scope"]["attributes"];
                    for metric in list(&scope["metrics"]) {
                        let data = ["sum", "gauge", "histogram"]
                            .iter()
                            .find_map(|name| metric.get(*name));
                        let data = data.with_context(|| metric.to_string())?;
                        for point in list(&data["dataPoints"]) {
                            let identity = [&resource["resource"], seq, &metric["name"], point];
                            let of = (resource["resource"].clone(), metric.clone(), point.clone());
                            let point = CollectedPoint {
                                seq: number_of(seq),
                                ..CollectedPoint::new(of)
                            };
                            found.insert(identity.map(Value::to_string), point);
                        }
                    }
                }
            }
        }
        Ok(found.into_values().collect())
    }
}

/// The number of the window among the attributes of a scope.
fn number_of(attributes: &Value) -> u64 {
    let mut seq = list(attributes).filter(|pair| pair["key"] == "twinprobe.seq");
    let value = seq
        .next()
        .and_then(|pair| pair["value"]["intValue"].as_str()?.parse().ok());
    value.unwrap_or_default()
}

/// A point with its metric and its resource.
struct CollectedPoint {
    /// The number of its window.
    seq: u64,
    resource: BTreeMap<String, String>,
    metric: Value,
    attributes: BTreeMap<String, String>,
    point: Value,
}

impl CollectedPoint {
    fn new((resource, metric, point): (Value, Value, Value)) -> Self {
        let (resource, attributes) = (attributes(&resource), attributes(&point));
        Self {
            seq: 0,
            resource,
            metric,
            attributes,
            point,
        }
    }

    fn is(&self, name: &str) -> bool {
        self.metric["name"] == name
    }

    fn number(&self, field: &str) -> u64 {
        self.point[field]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let pair = |pair: &Value| {
        let value = pair["value"]["stringValue"].as_str().unwrap_or_default();
        (
            pair["key"].as_str().unwrap_or_default().to_owned(),
            value.to_owned(),
        )
    };
    list(&of["attributes"]).map(pair).collect()
}

/// Stream, collector and daemon are killed at any moment. Distinct points add up to the sent
/// packets, and each begins with its window.
#[test]
fn deltas_have_each_packet_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut collector = Collector::new(20 << 20)?;
    let mut node = Node::new("gw-1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let config = configuration(
        directory.path(),
        &[&node],
        &collector.receiver(),
        &json!({}),
    )?;
    let mut restart = || {
        collector.server.kill()?;
        collector.server.again()
    };
    kill_in_turn(&mut node, &config, scaled(9, 300), Some(&mut restart))?;
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    send_all(&config)?;
    let points = collector.points()?;
    let packets: Vec<&CollectedPoint> = points.iter().filter(|point| point.is("packets")).collect();
    let counted: u64 = packets.iter().map(|point| point.number("asInt")).sum();
    ensure!(
        counted == sent,
        "{sent} were sent, {counted} are in {} points",
        packets.len()
    );
    for point in &packets {
        let sum = &point.metric["sum"];
        ensure!(
            sum["aggregationTemporality"] == DELTA && sum["isMonotonic"] == true,
            "{}",
            point.metric
        );
        let named = ["direction", "interface", "probe"].map(|name| point.attributes[name].as_str());
        ensure!(named == ["ingress", "mon0", "p"], "{:?}", point.attributes);
        ensure!(
            point.resource["host.name"] == "gw-1.example"
                && point.resource["service.name"] == "twinprobe"
        );
    }
    let mut times: Vec<[u64; 2]> = packets
        .iter()
        .map(|point| ["startTimeUnixNano", "timeUnixNano"].map(|time| point.number(time)))
        .collect();
    times.sort_unstable();
    times.dedup();
    ensure!(
        times.windows(2).all(|pair| pair[0][1] == pair[1][0]),
        "windows follow each other"
    );
    let mut seqs: Vec<u64> = points
        .iter()
        .filter(|point| point.is("twinprobe_window_seq"))
        .map(|point| point.number("asInt"))
        .collect();
    seqs.sort_unstable();
    ensure!(
        seqs == (1..=times.len() as u64).collect::<Vec<_>>(),
        "{seqs:?}"
    );
    // The attributes of a point's scope and resource identify its window.
    let named = points
        .iter()
        .filter(|point| point.is("twinprobe_window_seq"));
    ensure!(named.clone().all(|point| point.seq == point.number("asInt")
        && !point.resource["twinprobe.instance"].is_empty()));
    Ok(())
}

/// A collector that takes small messages only gets small ones; nothing stops, nothing is missing.
#[test]
fn messages_are_divided_until_they_fit() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (collector, node) = (Collector::new(2_048)?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    for _ in 0..20 {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let told = send_all(&configuration(
        directory.path(),
        &[&node],
        &collector.receiver(),
        &json!({}),
    )?)?;
    ensure!(
        told.contains("sent 21 windows") && !told.contains("refuses"),
        "{told}"
    );
    let points = collector.points()?;
    let counted: u64 = points
        .iter()
        .filter(|point| point.is("packets"))
        .map(|point| point.number("asInt"))
        .sum();
    ensure!(counted == sent, "{sent} were sent, {counted} are there");
    Ok(())
}

/// Without the token or the certificate nothing is acknowledged; with a new token in its file all
/// arrives.
#[test]
fn a_token_is_read_again_after_a_refusal() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (collector, node) = (Collector::new(1 << 20)?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    fs::write(collector.path("token"), "hunter3\n")?;
    let running = Stream::start(&configuration(
        directory.path(),
        &[&node],
        &collector.receiver(),
        &json!({}),
    )?)?;
    wait_for("the refusal", PATIENCE, || {
        ensure!(
            running.log().contains("401 Unauthorized"),
            "{}",
            running.log()
        );
        Ok(())
    })?;
    ensure!(node.unacknowledged() == 1);
    fs::write(collector.path("token"), format!("{TOKEN}\n"))?;
    wait_for("the acknowledgement", PATIENCE, || {
        ensure!(node.unacknowledged() == 0, "{}", running.log());
        Ok(())
    })?;
    ensure!(!running.log().contains("hunter"), "{}", running.log());
    running.terminate()
}
