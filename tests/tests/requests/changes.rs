//! The stream of changes that consoles follow.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Daemon, Topology};

const CHANGES: &str = "/v1/changes";
const SSE: &str = "text/event-stream";
const LIMIT: Duration = PATIENCE;

struct Changes(Stream);

impl Changes {
    fn open(daemon: &Daemon, path: &str) -> Result<Self> {
        Ok(Self(Stream::open(daemon, path, SSE)?))
    }

    /// Returns the next message: its type and its data.
    fn next(&mut self) -> Result<(String, Value)> {
        let (mut event, mut data) = (String::new(), Value::Null);
        loop {
            let line = self.0.line()?.context("the stream has ended")?;
            if let Some(name) = line.strip_prefix("event: ") {
                event = name.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = serde_json::from_str(text)?;
            } else if line.is_empty() && !event.is_empty() {
                return Ok((event, data));
            }
        }
    }

    /// Returns the data of the next message of this type that `fits`. Other messages come all the
    /// time.
    fn wait(&mut self, event: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
        let begun = Instant::now();
        loop {
            ensure!(begun.elapsed() < LIMIT, "no {event}");
            let (found, data) = self.next()?;
            if found == event && fits(&data) {
                return Ok(data);
            }
        }
    }
}

fn of(name: &str) -> impl Fn(&Value) -> bool {
    move |data| data["probe"] == name || data["name"] == name
}

fn scheduled(interval: &str) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["window"] = json!({ "interval": interval, "retain": 4 });
    config
}

#[test]
fn the_stream_begins_with_everything_and_tells_each_change() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in ["a", "b", "c"] {
        daemon
            .put(
                &format!("/v1/probes/{name}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
    }
    let mut changes = Changes::open(&daemon, CHANGES)?;
    let (event, hello) = changes.next()?;
    assert_eq!(
        (event.as_str(), &hello["role"]),
        ("hello", &json!("admin")),
        "{hello}"
    );
    let listed = daemon.json("/v1/probes");
    for probe in listed["probes"].as_array().context("a list")? {
        assert_eq!(changes.next()?, ("probe".to_owned(), probe.clone()));
    }
    assert_eq!(changes.next()?.0, "listed");

    daemon
        .put("/v1/probes/d", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    assert_eq!(changes.wait("probe", of("d"))?["revision"], 1);
    daemon.put("/v1/probes/d", &scheduled("1h")).expect(200);
    assert_eq!(
        changes.wait("probe", |data| data["revision"] == 2)?["name"],
        "d"
    );
    let window = daemon
        .request("POST", "/v1/probes/b/windows", &[], b"")
        .expect(201)
        .json();
    let told = changes.wait("window", of("b"))?;
    assert_eq!(told["window"]["seq"], window["window"]["seq"]);
    assert_eq!(told["windows"]["retained"], 1);
    daemon.delete("/v1/probes/d").expect(204);
    changes.wait("removed", of("d"))?;
    // The acknowledgement of a window changes the status.
    daemon
        .request("DELETE", "/v1/probes/b/windows/1", &[], b"")
        .expect(204);
    changes.wait("probe", |data| {
        data["name"] == "b" && data["windows"]["retained"] == 0
    })?;
    daemon.terminate()?;
    while changes.0.line()?.is_some() {}
    Ok(())
}

#[test]
fn each_window_is_told_once_however_short_it_is_retained() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for (name, interval) in [("fast", "5ms"), ("slow", "50ms"), ("other", "20ms")] {
        daemon
            .put(&format!("/v1/probes/{name}"), &scheduled(interval))
            .expect(201);
    }
    let mut all = Changes::open(&daemon, CHANGES)?;
    let mut one = Changes::open(&daemon, "/v1/changes?probe=fast")?;
    let seq = |data: &Value| data["window"]["seq"].as_u64().context("a number");
    for changes in [&mut all, &mut one] {
        let mut last = seq(&changes.wait("window", of("fast"))?)?;
        for _ in 0..200 {
            let next = seq(&changes.wait("window", of("fast"))?)?;
            ensure!(next == last + 1, "window {next} after {last}");
            last = next;
        }
    }
    let told = one.wait("window", |_| true)?;
    assert_eq!(told["probe"], "fast");
    daemon.get("/v1/changes?probe=none").expect(404);
    daemon.get("/v1/changes?wrong=1").expect(400);
    Ok(())
}

#[test]
fn traffic_is_what_the_interface_has_received() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let mut changes = Changes::open(&daemon, CHANGES)?;
    let mut count = || -> Result<u64> {
        let told = changes.wait("traffic", |_| true)?;
        let interfaces = told["interfaces"].as_array().context("a list")?;
        let mon0 = interfaces
            .iter()
            .find(|one| one["interface"] == "mon0")
            .context("mon0")?;
        ensure!(
            mon0["received"]["dropped"].is_u64() && mon0["sent"]["dropped"].is_u64(),
            "{mon0}"
        );
        mon0["received"]["packets"].as_u64().context("a number")
    };
    let before = count()?;
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(500)?;
    let after = loop {
        let after = count()?;
        if after > before {
            break after;
        }
    };
    assert_eq!(after - before, 500);
    Ok(())
}
