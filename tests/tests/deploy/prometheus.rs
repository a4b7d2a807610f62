//! deploy/prometheus: rules under promtool, and the dashboard's queries on data that a real
//! Prometheus has scraped from a real daemon.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::probes;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Namespace, Topology, helper};

use crate::tools::{root, run, tools};

#[test]
fn the_alerts_are_tested_and_the_configuration_is_valid() -> Result<()> {
    let Some(bin) = tools(&["prometheus", "promtool"])? else {
        return Ok(());
    };
    for (what, file) in [
        ("check", "rules.yml"),
        ("test", "tests.yml"),
        ("config", "prometheus.yml"),
    ] {
        let mut command = Command::new(bin.join("promtool"));
        command.current_dir(root().join("deploy/prometheus"));
        match what {
            "config" => command.args(["check", "config", file]),
            what => command.args([what, "rules", file]),
        };
        run(&mut command)?;
    }
    Ok(())
}

/// A Prometheus that scrapes a daemon at 127.0.0.1:9469 every second, and is ended with this value.
struct Prometheus<'a> {
    process: Child,
    directory: TempDir,
    place: &'a Namespace,
}

impl<'a> Prometheus<'a> {
    /// Starts Prometheus with the shipped configuration, except for the time between two scrapes.
    fn start(bin: &Path, place: &'a Namespace, flags: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let config = fs::read_to_string(root().join("deploy/prometheus/prometheus.yml"))?;
        ensure!(config.contains("scrape_interval: 15s") && config.contains("localhost:9469"));
        let config = config
            .replace("scrape_interval: 15s", "scrape_interval: 1s")
            .replace("localhost", "127.0.0.1");
        fs::write(directory.path().join("prometheus.yml"), config)?;
        fs::copy(
            root().join("deploy/prometheus/rules.yml"),
            directory.path().join("rules.yml"),
        )?;
        let mut command = Command::new(bin.join("prometheus"));
        command
            .arg(format!(
                "--config.file={}",
                directory.path().join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg("--web.listen-address=127.0.0.1:9090")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log"))?);
        let process = place
            .enter(|| command.spawn())?
            .context("prometheus starts")?;
        let prometheus = Self {
            process,
            directory,
            place,
        };
        wait_for("the first scrape", PATIENCE, || {
            let answer = prometheus.ask("/api/v1/query", "up{job=\"twinprobe\"}")?;
            ensure!(answer["data"]["result"][0]["value"][1] == "1", "{answer}");
            Ok(())
        })
        .with_context(|| {
            fs::read_to_string(prometheus.directory.path().join("log")).unwrap_or_default()
        })?;
        Ok(prometheus)
    }

    fn ask(&self, path: &str, query: &str) -> Result<Value> {
        let (query, url) = (
            format!("query={query}"),
            format!("http://127.0.0.1:9090{path}"),
        );
        let arguments = [
            "--silent",
            "--max-time",
            "60",
            "--get",
            "--data-urlencode",
            &query,
            &url,
        ];
        Ok(serde_json::from_str(
            &self.place.output("curl", &arguments)?,
        )?)
    }

    /// Returns the number that a query has for an answer.
    fn number(&self, query: &str) -> Result<f64> {
        let answer = self.ask("/api/v1/query", query)?;
        let number = answer["data"]["result"][0]["value"][1]
            .as_str()
            .and_then(|text| text.parse().ok());
        number.with_context(|| format!("{query}: {answer}"))
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns every query of the dashboard with the title of its panel.
fn queries(dashboard: &Value) -> Result<Vec<(String, String)>> {
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("panels")? {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let expression = text(&target["expr"])
                .replace("$__rate_interval", "5s")
                .replace("$__range", "60s")
                .replace("$instance", ".*")
                .replace("$probe", ".*")
                .replace("$stream", ".*");
            queries.push((text(&panel["title"]), expression));
        }
    }
    ensure!(queries.len() > 20, "{queries:?}");
    Ok(queries)
}

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a stream of the daemon's windows into files, with its page where the shipped
/// configuration scrapes it.
fn stream(daemon: &Daemon, place: &Namespace) -> Result<Running> {
    let directories = daemon.directories();
    let mut command = Command::new(helper("twinprobe-stream")?);
    command.arg(format!("--from=unix:{}", directories.socket().display()));
    command.arg(format!(
        "--to=file://{}",
        directories.temporary().join("windows").display()
    ));
    command
        .args(["--listen=127.0.0.1:9471", "--log-level=warn"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    Ok(Running(place.enter(|| command.spawn())??))
}

#[test]
fn every_query_of_the_dashboard_has_an_answer() -> Result<()> {
    let Some(bin) = tools(&["prometheus", "promtool"])? else {
        return Ok(());
    };
    let topology = Topology::new()?;
    let options = DaemonOptions::default()
        .argument("--listen-metrics")
        .argument("127.0.0.1:9469");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    for name in ["protocol-mix", "top-talkers", "tcp-flags", "packet-sizes"] {
        let config = probes::configuration(name, "mon0")?;
        daemon
            .put(&format!("/v1/probes/{name}"), &config)
            .expect(201);
    }
    let _stream = stream(&daemon, topology.monitor())?;
    let prometheus = Prometheus::start(&bin, topology.monitor(), &[])?;
    let ask = |path: &str, query: &str| prometheus.ask(path, query);
    let spread = Spread {
        addresses: 20,
        ports: 4,
        ..Spread::default()
    };
    let mut generator = Generator::new(
        topology.generator(),
        "gen0",
        GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        },
    )?;
    let mut sent = 0;
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(
        root().join("deploy/prometheus/grafana-dashboard.json"),
    )?)?;
    for (panel, query) in queries(&dashboard)? {
        // Rates need several scrapes, so packets are sent until there is an answer.
        wait_for(&panel, PATIENCE, || {
            generator.send(500)?;
            sent += 500;
            let answer = ask("/api/v1/query", &query)?;
            assert_eq!(answer["status"], "success", "{panel}: {query}: {answer}");
            let some = answer["data"]["result"]
                .as_array()
                .is_some_and(|list| !list.is_empty());
            ensure!(some, "{panel}: no answer to {query}");
            Ok(())
        })?;
    }
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        let script = root()
            .join("deploy/prometheus/picture.py")
            .display()
            .to_string();
        let picture = topology
            .monitor()
            .output("python3", &[&script, "http://127.0.0.1:9090", "10"])?;
        fs::write(root().join("docs/figures/dashboard.svg"), picture)?;
    }
    // Counters are counters, to the packet.
    wait_for("all packets in Prometheus", PATIENCE, || {
        let answer = ask(
            "/api/v1/query",
            r#"sum(net_talkers_all_packets_total{direction="ingress"})"#,
        )?;
        ensure!(
            answer["data"]["result"][0]["value"][1] == json!(sent.to_string()),
            "{sent} were sent: {answer}"
        );
        Ok(())
    })?;
    let types = ask("/api/v1/metadata", "")?;
    for family in [
        "net_protocol_mix_packets",
        "net_talker_bytes",
        "net_tcp_handshakes_begun",
    ] {
        let kind = &types["data"][format!("{family}_total")][0]["type"];
        let kind = if kind.is_null() {
            &types["data"][family][0]["type"]
        } else {
            kind
        };
        ensure!(kind == "counter", "{family}: {kind}");
    }
    for (family, described) in types["data"].as_object().context("metadata")? {
        ensure!(
            described[0]["type"] != "unknown",
            "{family} is of an unknown type"
        );
    }
    Ok(())
}

/// A server that asks for native histograms gets protobuf: counts and sums are exact, quantiles
/// within a bucket.
#[test]
fn native_histograms_are_exact_in_a_prometheus_that_asks_for_them() -> Result<()> {
    let Some(bin) = tools(&["prometheus", "promtool"])? else {
        return Ok(());
    };
    let topology = Topology::new()?;
    let options = DaemonOptions::default()
        .argument("--listen-metrics")
        .argument("127.0.0.1:9469");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let config = probes::configuration("packet-sizes", "mon0")?;
    daemon.put("/v1/probes/packet-sizes", &config).expect(201);
    let prometheus = Prometheus::start(
        &bin,
        topology.monitor(),
        &["--enable-feature=native-histograms"],
    )?;
    let of = r#"net_packet_size_bytes{direction="ingress",interface="mon0"}"#;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let mut sent = 0;
    // Counts of frames come from several scrapes. The last one has them all.
    for _ in 0..3 {
        generator.send(500)?;
        sent += 500;
        wait_for("the frames in Prometheus", PATIENCE, || {
            let counted = prometheus.number(&format!("histogram_count({of})"))?;
            ensure!(counted == f64::from(sent), "{counted} of {sent} frames");
            Ok(())
        })?;
    }
    let bytes = prometheus.number(r#"sum(net_size_class_bytes_total{direction="ingress"})"#)?;
    let size = bytes / f64::from(sent);
    assert_eq!(prometheus.number(&format!("histogram_sum({of})"))?, bytes);
    // All frames are alike, and a bucket ends at twice its lower bound.
    let median = prometheus.number(&format!("histogram_quantile(0.5, {of})"))?;
    ensure!(
        size / 2.0 <= median && median <= 2.0 * size,
        "{median} where all are {size}"
    );
    let classic = prometheus.ask("/api/v1/query", "net_packet_size_bytes_bucket")?;
    assert_eq!(
        classic["data"]["result"],
        json!([]),
        "it took the text format"
    );
    // The daemon's own histograms have other bounds, and keep their buckets.
    let own = prometheus.number(r#"sum(twinprobe_compilation_seconds_bucket{le="+Inf"})"#)?;
    ensure!(own >= 1.0, "{own} compilations");
    Ok(())
}
