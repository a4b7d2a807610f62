//! Many clients at once: each gets an answer in time, and every window is whole.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http::{self, Address, Response};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::random::Random;
use twinprobe_tests::sample::{total, window};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::{Windows, config, packets};
use twinprobe_tests::{Bystanders, Daemon, Topology, scaled, timed};

const PROBES: [&str; 4] = ["a", "b", "c", "d"];
const CLIENTS: usize = 64;
/// The number of kinds of requests that [`act`] has the answers of.
const KINDS: usize = 10;
/// The least number of windows for a run that shows something.
const WINDOWS: u64 = 100;

/// Returns a random configuration whose metrics agree in every window.
fn probe(random: &mut Random) -> Value {
    let window = match random.below(3) {
        0 => json!({ "interval": "5ms", "retain": 8 }),
        1 => json!({ "retain": 4, "collectors": ["one", "two"] }),
        _ => json!({}),
    };
    let mut config = config(&window, &[("KEYS", ["4", "8"][random.below(2) as usize])]);
    config["ingress"]["verdict"] = json!("observe");
    // The sum is left out because it agrees only with windows of the same deployments.
    let metrics = config["ingress"]["metrics"]
        .as_array_mut()
        .expect("metrics");
    metrics.retain(|metric| metric["name"] != "total");
    config
}

/// The number of answers of each status, and the longest time of an answer.
type Answers = (BTreeMap<u16, u64>, Duration);

/// The answers that clients have received.
#[derive(Default)]
struct Seen {
    /// The answers by kind of request.
    answers: Mutex<BTreeMap<&'static str, Answers>>,
    windows: AtomicU64,
}

impl Seen {
    fn add(&self, kind: &'static str, status: u16, time: Duration) {
        let mut answers = self.answers.lock().expect("no panic");
        let (statuses, longest) = answers.entry(kind).or_default();
        *statuses.entry(status).or_default() += 1;
        *longest = (*longest).max(time);
    }

    /// Tells whether the run has seen too little to end.
    fn is_little(&self) -> bool {
        let kinds = self.answers.lock().expect("no panic").len();
        kinds < KINDS || self.windows.load(Ordering::Relaxed) <= WINDOWS
    }

    fn check(&self, kind: &str, document: &Value) -> Result<()> {
        // A probe with an interval may have no window yet.
        let Some(window) = document.get("window") else {
            return Ok(());
        };
        ensure!(window["seq"].as_u64() > Some(0), "{kind}: {window}");
        packets(document);
        self.windows.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Sends one random request and checks its answer.
fn act(address: &Address, random: &mut Random, seen: &Seen) -> Result<()> {
    let path = format!(
        "/v1/probes/{}",
        PROBES[random.below(PROBES.len() as u64) as usize]
    );
    // The number of a retained window, if there is one.
    let mut choice = random.fork();
    let mut retained = || -> Result<u64> {
        let list = http::request(address, "GET", &format!("{path}/windows"), &[], b"")?;
        let windows = if list.status == 200 {
            list.json()["windows"].clone()
        } else {
            json!([])
        };
        let windows = windows.as_array().context("windows")?;
        let one = windows.get(choice.below(windows.len().max(1) as u64) as usize);
        Ok(one.map_or(1, |window| window["seq"].as_u64().unwrap_or(1)))
    };
    let query = ["", "?collector=one", "?collector=two"][random.below(3) as usize];
    // At most 16 changes of one probe wait: further changes get 429.
    let (kind, method, path, body, right): (_, _, _, _, &[u16]) = match random.below(64) {
        0..2 => (
            "put",
            "PUT",
            path,
            probe(random).to_string(),
            &[200, 201, 429],
        ),
        2 => ("delete", "DELETE", path, String::new(), &[204, 404, 429]),
        3..14 => (
            "metrics",
            "GET",
            format!("{path}/metrics"),
            String::new(),
            &[200, 404],
        ),
        14..26 => (
            "close",
            "POST",
            format!("{path}/windows"),
            String::new(),
            &[201, 404],
        ),
        26..36 => (
            "list",
            "GET",
            format!("{path}/windows"),
            String::new(),
            &[200, 404],
        ),
        36..38 => (
            "poll",
            "GET",
            format!("{path}/windows?after=1000000&wait=0.2"),
            String::new(),
            &[200, 404],
        ),
        38..50 => (
            "window",
            "GET",
            format!("{path}/windows/{}", retained()?),
            String::new(),
            &[200, 404],
        ),
        // Some of the probes lack these collectors.
        50..56 => (
            "ack",
            "DELETE",
            format!("{path}/windows/{}{query}", retained()?),
            String::new(),
            &[204, 400, 404],
        ),
        56..58 => ("status", "GET", path, String::new(), &[200, 404]),
        58 => ("all", "GET", "/v1/probes".into(), String::new(), &[200]),
        _ => {
            let close = random.below(2) == 0;
            let (method, rest) = if close {
                ("POST", "windows")
            } else {
                ("GET", "metrics")
            };
            http::take(
                address,
                method,
                &format!("{path}/{rest}"),
                random.below(2000) as usize,
            )?;
            return Ok(());
        }
    };
    let started = Instant::now();
    let answer: Response = http::request(address, method, &path, &[], body.as_bytes())
        .with_context(|| format!("{method} {path}"))?;
    let time = started.elapsed();
    ensure!(
        right.contains(&answer.status),
        "{method} {path}: {} {}",
        answer.status,
        answer.text()
    );
    seen.add(kind, answer.status, time);
    if matches!(kind, "metrics" | "close" | "window") && answer.status < 300 {
        seen.check(kind, &answer.json())
            .with_context(|| format!("{method} {path}"))?;
    }
    Ok(())
}

#[test]
fn everything_at_once_is_answered_and_whole() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let load = generator.spawn(Load {
        rate: Some(200_000),
        ..Load::default()
    });
    let mut random = Random::new();
    let (seen, address) = (Seen::default(), daemon.address());
    let begun = Instant::now();
    let duration = Duration::from_secs(scaled(6, 300));
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (mut random, seen, address, failed) = (random.fork(), &seen, &address, &failed);
                scope.spawn(move || -> Result<()> {
                    while (begun.elapsed() < duration
                        || seen.is_little() && begun.elapsed() < PATIENCE)
                        && !failed.load(Ordering::Acquire)
                    {
                        let done = act(address, &mut random, seen);
                        failed.fetch_or(done.is_err(), Ordering::AcqRel);
                        done?;
                    }
                    Ok(())
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| {
            client
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    let answers = seen.answers.into_inner().expect("no panic");
    for (kind, (statuses, longest)) in &answers {
        println!("{kind}: {statuses:?}, at most {longest:?}");
    }
    let windows = seen.windows.into_inner();
    println!("{windows} windows");
    ensure!(
        windows > WINDOWS && answers.len() == KINDS,
        "{windows} windows"
    );
    load.stop()?;
    // The daemon still works: a new probe counts exactly.
    daemon
        .put("/v1/probes/new", &config(&json!({}), &[]))
        .expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(100)?;
    assert_eq!(packets(&Windows::of(&daemon, "new").close()), 100);
    for probe in PROBES {
        daemon.delete(&format!("/v1/probes/{probe}"));
    }
    bystanders.finish()?;
    ensure!(daemon.terminate()?.0.success());
    Ok(())
}

/// Returns a probe with slow windows: an ARRAY has all of its entries even without packets.
fn slow() -> Value {
    let source = twinprobe_tests::sample::xdp_counter("XDP_PASS")
        .replace("max_entries, 1)", "max_entries, 300000)");
    json!({
        "interface": "mon0",
        "ingress": { "source": source, "metrics": [window("packets", "packets")] },
        "window": { "retain": 2 }
    })
}

/// Measures the time to close a window of a small probe, in milliseconds.
fn times(daemon: &Daemon, count: u64) -> Result<Sample> {
    let windows = Windows::of(daemon, "quick");
    let mut sample = Sample::default();
    for _ in 0..count {
        let started = Instant::now();
        windows.try_close()?.expect(201);
        sample.add(started.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(sample)
}

/// Closes windows of a small probe while hundreds of readers wait for a slow one. Returns the
/// milliseconds of the closings.
fn close_beside_readers(count: u64) -> Result<Sample> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/quick", &config(&json!({}), &[]))
        .expect(201);
    daemon.put("/v1/probes/slow", &slow()).expect(201);
    let alone = times(&daemon, 50)?;
    let started = Instant::now();
    let document = daemon.json("/v1/probes/slow/metrics");
    assert_eq!(total(&document, "ingress", "packets"), 0);
    let slow = started.elapsed();
    let readers: Vec<UnixStream> = (0..600)
        .map(|reader| {
            let mut stream = UnixStream::connect(daemon.directories().socket())?;
            let (method, rest) = if reader % 2 == 0 {
                ("GET", "metrics")
            } else {
                ("POST", "windows")
            };
            write!(
                stream,
                "{method} /v1/probes/slow/{rest} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
            )?;
            Ok(stream)
        })
        .collect::<Result<_>>()?;
    wait_for("600 connections", PATIENCE, || {
        ensure!(daemon.connections() >= 600, "{}", daemon.connections());
        Ok(())
    })?;
    let beside = times(&daemon, count)?;
    let waiting = daemon.connections();
    println!(
        "slow: {slow:?}; quick alone {} ms, beside {} ms, {waiting} wait",
        alone.summary(1),
        beside.summary(1)
    );
    // The quick probe shares two processors with the readers and waits for none of them.
    ensure!(waiting > 300, "only {waiting} readers were left");
    daemon.get("/healthz").expect(200);
    drop(readers);
    // The readers have hung up, so their requests end soon.
    daemon.delete("/v1/probes/slow").expect(204);
    daemon.get("/v1/probes/slow/windows").expect(404);
    bystanders.finish()?;
    ensure!(daemon.terminate()?.0.success());
    Ok(beside)
}

#[test]
fn readers_of_a_slow_probe_hold_up_nobody_else() -> Result<()> {
    close_beside_readers(scaled(20, 500)).map(drop)
}

#[timed("it measures the time to close a small window beside readers of large ones")]
fn windows_are_quick_beside_readers_of_a_slow_probe() -> Result<()> {
    let beside = close_beside_readers(100)?;
    ensure!(
        beside.median() < 100.0 && beside.quantile(1.0) < 2000.0,
        "{} ms",
        beside.summary(1)
    );
    Ok(())
}
