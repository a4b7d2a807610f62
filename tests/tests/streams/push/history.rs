//! `serve --history`: charts from servers that store the samples of daemons.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Namespace, probes};

use super::server::Server;
use crate::scene::{COLLECTOR, Node, configuration, stream};

/// The address of the servers, in the namespaces of the daemons that ask them.
const SERVER: &str = "127.0.0.1:8428";
const HISTORY: [&str; 2] = ["--history", "http://127.0.0.1:8428"];
/// The addresses that send packets.
const SOURCES: u64 = 20;
/// The seconds between two samples, and the step of charts.
const STEP: u64 = 600;

fn victoria(directory: &Path, place: &Namespace) -> Result<Server> {
    let arguments = [
        format!("-storageDataPath={}", directory.join("data").display()),
        format!("-httpListenAddr={SERVER}"),
        "-dedup.minScrapeInterval=1ms".to_owned(),
        "-search.latencyOffset=1ms".to_owned(),
        "-search.disableCache".to_owned(),
    ];
    place.enter(|| {
        Server::start(
            Path::new("/usr/bin/victoria-metrics"),
            arguments.into(),
            8428,
            directory,
        )
    })?
}

/// A Prometheus that accepts remote writes, and scrapes the daemon as well.
fn prometheus(directory: &Path, place: &Namespace) -> Result<Server> {
    let config = json!({ "scrape_configs": [
        { "job_name": "twinprobe", "scrape_interval": "1s", "static_configs": [{ "targets": ["127.0.0.1:9469"] }] },
    ] });
    fs::write(directory.join("config"), config.to_string())?;
    let arguments = [
        format!("--config.file={}", directory.join("config").display()),
        format!("--storage.tsdb.path={}", directory.join("data").display()),
        format!("--web.listen-address={SERVER}"),
        "--web.enable-remote-write-receiver".to_owned(),
    ];
    place.enter(|| {
        Server::start(
            Path::new("/usr/bin/prometheus"),
            arguments.into(),
            8428,
            directory,
        )
    })?
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// A moment in the form of requests.
fn moment(second: u64) -> Result<String> {
    let output = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{second}"), "+%FT%TZ"])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Stores a page in the form of a server that scrapes each minute, over a step that begins with
/// `second`.
fn store(
    place: &Namespace,
    directory: &Path,
    page: &str,
    instance: &str,
    second: u64,
) -> Result<()> {
    let path = directory.join("page");
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let scraped = samples.flat_map(|line| {
        (0..STEP / 60).map(move |minute| format!("{line} {}000\n", second + 30 + 60 * minute))
    });
    fs::write(&path, scraped.collect::<String>())?;
    let labels = format!("extra_label=job=twinprobe&extra_label=instance={instance}");
    let url = format!("http://{SERVER}/api/v1/import/prometheus?{labels}");
    let body = format!("@{}", path.display());
    place
        .output(
            "curl",
            &["-sS", "--fail-with-body", "--data-binary", &body, &url],
        )
        .map(drop)
}

/// Returns two sums over a chart: the sum over its keys, and the sum over all other keys.
fn sums(chart: &Value) -> (u64, u64) {
    let total = |of: &Value| of["total"].as_u64().unwrap_or_default();
    let series = chart["series"].as_array().into_iter().flatten();
    (series.map(total).sum(), total(&chart["others"]))
}

/// Counters that a server has scraped hours ago. Another node has the same probe, and the same
/// keys.
#[test]
fn history_has_what_was_scraped_of_this_node() -> Result<()> {
    let (directory, node) = (tempfile::tempdir()?, Node::with("gw-1.example", &HISTORY)?);
    let place = node.topology.monitor();
    let mut server = victoria(directory.path(), place)?;
    let config = probes::configuration("top-talkers", "mon0")?;
    node.daemon()
        .put("/v1/probes/top-talkers", &config)
        .expect(201);
    let spread = Spread {
        addresses: SOURCES as u32,
        ports: 1,
        ..Spread::default()
    };
    let options = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(node.topology.generator(), "gen0", options)?;
    let begin = (now()? - 6 * 3_600) / STEP * STEP;
    for (point, packets) in [SOURCES, 500 * SOURCES, 100 * SOURCES, 0, 300 * SOURCES]
        .into_iter()
        .enumerate()
    {
        generator.send(packets)?;
        let (page, second) = (
            node.daemon().get("/metrics").expect(200).text().to_owned(),
            begin + point as u64 * STEP,
        );
        ensure!(page.contains("node=\"gw-1.example\""), "{page}");
        store(place, directory.path(), &page, "gw-1:9470", second)?;
        // A second server that scrapes the same target adds nothing.
        store(
            place,
            directory.path(),
            &page,
            "gw-1:9470&extra_label=replica=b",
            second,
        )?;
        // The other node counts ten times as much, so that the largest would be its numbers.
        let more = |line: &str| {
            format!(
                "{line}{}\n",
                if line.starts_with("net_") { "0" } else { "" }
            )
        };
        let other: String = page
            .replace("gw-1.example", "gw-2.example")
            .lines()
            .map(more)
            .collect();
        store(place, directory.path(), &other, "gw-2:9470", second + 1)?;
    }
    let [from, to] = [begin + STEP, begin + 5 * STEP].map(moment);
    let range = format!(
        "direction=ingress&field=packets&step=10m&from={}&to={}",
        from?, to?
    );
    let path = format!("/v1/probes/top-talkers/series/history?metric=talker&top=5&{range}");
    let chart = wait_for("the samples", PATIENCE, || {
        let answer = node.daemon().get(&path);
        ensure!(answer.status == 200, "{}", answer.text());
        let chart = answer.json();
        ensure!(sums(&chart) == (5 * 900, 15 * 900), "{chart}");
        Ok(chart)
    })?;
    ensure!(
        chart["source"] == SERVER && chart["shows"] == "increase" && chart["windows"] == 0,
        "{chart}"
    );
    ensure!(
        chart["seconds"] == json!([600.0, 600.0, 600.0, 600.0]),
        "{chart}"
    );
    ensure!(
        chart["series"][0]["values"] == json!([500, 100, 0, 300]),
        "{chart}"
    );
    ensure!(
        chart["series"][0]["key"]
            .as_str()
            .is_some_and(|key| key.starts_with("198.18.0.")),
        "{chart}"
    );
    ensure!(
        chart["others"]["keys"] == 15
            && chart["others"]["values"] == json!([7_500, 1_500, 0, 4_500]),
        "{chart}"
    );
    // A metric without keys is one line.
    let all = format!("/v1/probes/top-talkers/series/history?metric=talkers_all&{range}");
    ensure!(
        sums(&node.daemon().json(&all)) == (SOURCES * 900, 0),
        "{all}"
    );
    let times = [
        "--from",
        &moment(begin + STEP)?,
        "--to",
        &moment(begin + 5 * STEP)?,
        "--step",
        "10m",
    ];
    let what = [
        "series",
        "top-talkers",
        "talkers_all",
        "--history",
        "--direction",
        "ingress",
        "--field",
        "packets",
    ];
    let told = node.daemon().client(&[&what[..], &times].concat())?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    ensure!(
        told.contains(&format!("from {SERVER}")) && told.contains("10000"),
        "{told}"
    );
    server.kill()?;
    let refused = node.daemon().get(&path).expect(502).json();
    ensure!(
        refused["detail"]
            .as_str()
            .is_some_and(|why| why.contains(SERVER) && why.contains("running")),
        "{refused}"
    );
    Ok(())
}

/// The slots of a histogram come back from the buckets that a server has scraped.
#[test]
fn history_has_the_slots_of_histograms() -> Result<()> {
    let (directory, node) = (tempfile::tempdir()?, Node::with("gw-1.example", &HISTORY)?);
    let place = node.topology.monitor();
    let _server = victoria(directory.path(), place)?;
    let config = probes::configuration("packet-sizes", "mon0")?;
    node.daemon()
        .put("/v1/probes/packet-sizes", &config)
        .expect(201);
    let mut generator = Generator::new(
        node.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?;
    let begin = (now()? - 6 * 3_600) / STEP * STEP;
    for (point, packets) in [10, 500, 0, 300].into_iter().enumerate() {
        generator.send(packets)?;
        let page = node.daemon().get("/metrics").expect(200).text().to_owned();
        store(
            place,
            directory.path(),
            &page,
            "gw-1:9470",
            begin + point as u64 * STEP,
        )?;
    }
    // All frames have one length.
    let document = node.daemon().json("/v1/probes/packet-sizes/metrics");
    let entries = document["ingress"]["packet_size_bytes"]["entries"]
        .as_array()
        .context("entries")?;
    let slot = entries
        .iter()
        .find(|entry| entry["value"] == 810)
        .context("a slot with all frames")?;
    let [from, to] = [begin + STEP, begin + 4 * STEP].map(moment);
    let range = format!(
        "direction=ingress&step=10m&from={}&to={}&top=64",
        from?, to?
    );
    let path = format!("/v1/probes/packet-sizes/series/history?metric=packet_size_bytes&{range}");
    wait_for("the samples", PATIENCE, || {
        let answer = node.daemon().get(&path);
        ensure!(answer.status == 200, "{}", answer.text());
        let chart = answer.json();
        ensure!(sums(&chart) == (800, 0), "{chart}");
        let first = &chart["series"][0];
        ensure!(
            first["key"] == slot["key"] && first["values"] == json!([500, 0, 300]),
            "{chart}"
        );
        ensure!(
            chart["source"] == SERVER && chart["others"].is_null(),
            "{chart}"
        );
        Ok(())
    })
}

/// Sends the windows of two nodes, and asks the first one for its own. The chart has each packet
/// once.
fn windows_of_streams(
    start: impl Fn(&Path, &Namespace) -> Result<Server>,
    path: &str,
) -> Result<(TempDir, Node, Server)> {
    let directory = tempfile::tempdir()?;
    let options = [&HISTORY[..], &["--listen-metrics", "127.0.0.1:9469"]].concat();
    let nodes = [
        Node::with("gw-1.example", &options)?,
        Node::new("gw-2.example")?,
    ];
    let server = start(directory.path(), nodes[0].topology.monitor())?;
    let mut sent = Vec::new();
    for node in &nodes {
        node.deploy(
            &json!({ "interval": "100ms", "align": true, "retain": 10_000, "collectors": [COLLECTOR] }),
        );
        let traffic = node.traffic()?;
        node.wait_for_window(20)?;
        sent.push(traffic.stop()?);
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let to = json!([{ "prometheus": { "url": format!("http://{SERVER}{path}") } }]);
    let config = configuration(directory.path(), &[&nodes[0], &nodes[1]], &to, &json!({}))?;
    let place = nodes[0].topology.monitor();
    let told = place.enter(|| stream(&["-f", &config.display().to_string(), "--once"]))??;
    ensure!(
        told.status.success(),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    // The last windows are in the step that is under way.
    let (from, to) = (moment(now()? - 600)?, moment(now()? + 60)?);
    let chart = format!("/v1/probes/p/series/history?metric=packets&from={from}&to={to}&step=2s");
    wait_for("all windows", PATIENCE, || {
        let answer = nodes[0].daemon().get(&chart);
        ensure!(answer.status == 200, "{}", answer.text());
        ensure!(
            sums(&answer.json()) == (sent[0], 0),
            "{} were sent: {}",
            sent[0],
            answer.text()
        );
        Ok(())
    })?;
    let [node, _] = nodes;
    Ok((directory, node, server))
}

#[test]
fn victoria_has_the_history_of_windows() -> Result<()> {
    windows_of_streams(victoria, "/api/v1/write").map(drop)
}

/// Prometheus also scrapes: counters have their history from scrapes, and windows still count once.
#[test]
fn prometheus_has_the_history_of_windows_and_of_counters() -> Result<()> {
    let (_directory, node, _server) = windows_of_streams(prometheus, "/api/v1/write")?;
    node.daemon().delete("/v1/probes/p").expect(204);
    let config = probes::configuration("top-talkers", "mon0")?;
    node.daemon()
        .put("/v1/probes/top-talkers", &config)
        .expect(201);
    let spread = Spread {
        addresses: SOURCES as u32,
        ports: 1,
        ..Spread::default()
    };
    let options = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(node.topology.generator(), "gen0", options)?;
    let (from, to) = (moment(now()? - 300)?, moment(now()? + 600)?);
    let path = format!(
        "/v1/probes/top-talkers/series/history?metric=talker&direction=ingress&field=packets&top=5&step=5m&from={from}&to={to}"
    );
    let chart = wait_for("several scrapes", PATIENCE, || {
        generator.send(10 * SOURCES)?;
        let answer = node.daemon().get(&path);
        ensure!(answer.status == 200, "{}", answer.text());
        let chart = answer.json();
        ensure!(
            chart["others"]["keys"] == 15 && chart["others"]["total"].as_f64() > Some(0.0),
            "{chart}"
        );
        Ok(chart)
    })?;
    ensure!(
        chart["series"].as_array().map(Vec::len) == Some(5),
        "{chart}"
    );
    Ok(())
}

/// Each reason names what to do.
#[test]
fn a_chart_without_history_says_why() -> Result<()> {
    let detail = |node: &Node, path: &str, status: u16| -> Result<String> {
        let problem = node
            .daemon()
            .get(&format!("/v1/probes/p/series/history?{path}"))
            .expect(status)
            .json();
        Ok(problem["detail"]
            .as_str()
            .context("a problem has a detail")?
            .to_owned())
    };
    let without = Node::new("gw-1.example")?;
    without.deploy(&json!({}));
    let told = detail(&without, "metric=packets", 404)?;
    ensure!(told.contains("serve --history"), "{told}");
    let node = Node::with("gw-2.example", &HISTORY)?;
    node.deploy(&json!({}));
    for (query, words) in [
        ("metric=none", "no metric none"),
        ("metric=packets&key=1", "leave key out"),
        ("metric=packets&step=1500ms", "whole seconds"),
        ("metric=packets&from=-2h&step=1s", "take step=8s"),
    ] {
        let told = detail(&node, query, 400)?;
        ensure!(told.contains(words), "{told}");
    }
    // A server that accepts connections and does not answer.
    let silent = node
        .topology
        .monitor()
        .enter(|| TcpListener::bind(SERVER))??;
    let told = detail(&node, "metric=packets", 502)?;
    ensure!(
        told.contains(SERVER) && told.contains("within 5 s"),
        "{told}"
    );
    drop(silent);
    let directory = tempfile::tempdir()?;
    let _server = victoria(directory.path(), node.topology.monitor())?;
    let told = detail(&node, "metric=packets", 404)?;
    ensure!(
        told.contains("node gw-2.example") && told.contains("twinprobe stream"),
        "{told}"
    );
    // The URL has a path at which the server does not have the API.
    let misled = Node::with(
        "gw-3.example",
        &["--history", "http://127.0.0.1:8428/nowhere"],
    )?;
    misled.deploy(&json!({}));
    let (elsewhere, place) = (tempfile::tempdir()?, misled.topology.monitor());
    let _other = victoria(elsewhere.path(), place)?;
    let told = detail(&misled, "metric=packets", 502)?;
    ensure!(told.contains(SERVER), "{told}");
    Ok(())
}
