//! deploy/prometheus: rules under promtool, and the dashboard's queries on what a real Prometheus has scraped of a real
//! daemon.

use std::fs;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::probes;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::tools::{root, run, tools};

#[test]
fn the_alerts_are_tested_and_the_configuration_is_valid() -> Result<()> {
    let Some(bin) = tools(&["prometheus", "promtool"])? else { return Ok(()) };
    for (what, file) in [("check", "rules.yml"), ("test", "tests.yml"), ("config", "prometheus.yml")] {
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

/// A Prometheus that is ended with this value.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
                .replace("$probe", ".*");
            queries.push((text(&panel["title"]), expression));
        }
    }
    ensure!(queries.len() > 20, "{queries:?}");
    Ok(queries)
}

#[test]
fn every_query_of_the_dashboard_has_an_answer() -> Result<()> {
    let Some(bin) = tools(&["prometheus", "promtool"])? else { return Ok(()) };
    let topology = Topology::new()?;
    let options = DaemonOptions::default().argument("--listen-metrics").argument("127.0.0.1:9469");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    for name in ["protocol-mix", "top-talkers", "tcp-flags", "packet-sizes"] {
        let config = probes::configuration(name, "mon0")?;
        daemon.put(&format!("/v1/probes/{name}"), &config).expect(201);
    }
    let directory = tempfile::tempdir()?;
    // The shipped configuration, but for the time between two scrapes.
    let config = fs::read_to_string(root().join("deploy/prometheus/prometheus.yml"))?;
    ensure!(config.contains("scrape_interval: 15s") && config.contains("localhost:9469"));
    let config =
        config.replace("scrape_interval: 15s", "scrape_interval: 1s").replace("localhost", "127.0.0.1");
    fs::write(directory.path().join("prometheus.yml"), config)?;
    fs::copy(root().join("deploy/prometheus/rules.yml"), directory.path().join("rules.yml"))?;
    let mut command = Command::new(bin.join("prometheus"));
    command
        .arg(format!("--config.file={}", directory.path().join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
        .arg("--web.listen-address=127.0.0.1:9090")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(directory.path().join("log"))?);
    let started = topology.monitor().enter(|| command.spawn())?;
    let _prometheus = Prometheus(started.context("prometheus starts")?);
    let log = || fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    let ask = |path: &str, query: &str| -> Result<Value> {
        let (query, url) = (format!("query={query}"), format!("http://127.0.0.1:9090{path}"));
        let arguments = ["--silent", "--max-time", "60", "--get", "--data-urlencode", &query, &url];
        Ok(serde_json::from_str(&topology.monitor().output("curl", &arguments)?)?)
    };
    wait_for("the first scrape", PATIENCE, || {
        let answer = ask("/api/v1/query", "up")?;
        ensure!(answer["data"]["result"][0]["value"][1] == "1", "{answer}");
        Ok(())
    })
    .with_context(log)?;
    let spread = Spread { addresses: 20, ports: 4, ..Spread::default() };
    let mut generator = Generator::new(
        topology.generator(),
        "gen0",
        GeneratorOptions { spread, ..GeneratorOptions::default() },
    )?;
    let mut sent = 0;
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(root().join("deploy/prometheus/grafana-dashboard.json"))?)?;
    for (panel, query) in queries(&dashboard)? {
        // Rates are of several scrapes. Packets come until there is an answer.
        wait_for(&panel, PATIENCE, || {
            generator.send(500)?;
            sent += 500;
            let answer = ask("/api/v1/query", &query)?;
            assert_eq!(answer["status"], "success", "{panel}: {query}: {answer}");
            let some = answer["data"]["result"].as_array().is_some_and(|list| !list.is_empty());
            ensure!(some, "{panel}: no answer to {query}");
            Ok(())
        })?;
    }
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        let script = root().join("deploy/prometheus/picture.py").display().to_string();
        let picture = topology.monitor().output("python3", &[&script, "http://127.0.0.1:9090", "10"])?;
        fs::write(root().join("docs/figures/dashboard.svg"), picture)?;
    }
    // Counters are counters, to the packet.
    wait_for("all packets in Prometheus", PATIENCE, || {
        let answer = ask("/api/v1/query", r#"sum(talkers_all_packets_total{direction="ingress"})"#)?;
        ensure!(
            answer["data"]["result"][0]["value"][1] == json!(sent.to_string()),
            "{sent} were sent: {answer}"
        );
        Ok(())
    })?;
    let types = ask("/api/v1/metadata", "")?;
    for family in ["protocol_mix_packets", "talker_bytes", "tcp_handshakes_begun"] {
        let kind = &types["data"][format!("{family}_total")][0]["type"];
        let kind = if kind.is_null() { &types["data"][family][0]["type"] } else { kind };
        ensure!(kind == "counter", "{family}: {kind}");
    }
    for (family, described) in types["data"].as_object().context("metadata")? {
        ensure!(described[0]["type"] != "unknown", "{family} is of an unknown type");
    }
    Ok(())
}
