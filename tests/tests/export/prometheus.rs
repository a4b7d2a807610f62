//! `GET /metrics`: the page about the daemon and all its probes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::prometheus_page::{Page, assert_contiguous};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::maps::HashTable;
use twinprobe_tests::measure::Resident;
use twinprobe_tests::sample::with_frags;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Stand, Store, Topology, probes, scaled};

const COUNTERS: &str = include_str!("../../bpf/counters.bpf.c");
const TABLE: &str = include_str!("../../bpf/export.bpf.c");

/// Returns the configuration of a probe that counts each packet once in each of its maps.
fn counting(metrics: &Value) -> Value {
    json!({
        "interface": "mon0",
        "ingress": {
            "source": COUNTERS,
            "defines": { "SECTION": "\"xdp\"", "CONTEXT": "xdp_md", "VERDICT": "XDP_PASS" },
            "metrics": metrics
        }
    })
}

/// Returns three metrics with the packets since the deployment. A reading of them resets nothing
/// for other readers.
fn three() -> Value {
    json!([
        { "name": "packets_total", "map": "in_percpu_array", "help": "Packets", "snapshot": true, "agg": "sum" },
        { "name": "hashed_total", "map": "in_hash", "snapshot": true },
        { "name": "live_total", "map": "in_lru_hash" }
    ])
}

/// Closes the window of a probe.
fn close(daemon: &Daemon, probe: &str) {
    daemon
        .request("POST", &format!("/v1/probes/{probe}/windows"), &[], b"")
        .expect(201);
}

/// Returns five metrics: three with the packets since the deployment, and two with those of the
/// last window.
fn five() -> Value {
    json!([
        { "name": "packets_total", "map": "in_percpu_array", "help": "Packets", "snapshot": true, "agg": "sum" },
        { "name": "hashed_total", "map": "in_hash", "snapshot": true },
        { "name": "live_total", "map": "in_lru_hash" },
        { "name": "window", "map": "in_array", "snapshot": true, "init": true },
        { "name": "per_cpu", "map": "in_percpu_hash", "snapshot": true, "init": true }
    ])
}

fn generator(topology: &Topology) -> Result<Generator> {
    let spread = Spread {
        addresses: 4,
        ports: 64,
        ..Spread::default()
    };
    Generator::new(
        topology.generator(),
        "gen0",
        GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        },
    )
}

/// Counters of two probes with metrics of the same names are exact and only grow, also over kills
/// of the daemon.
#[test]
fn counters_grow_and_windows_are_gauges() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for probe in ["one", "two"] {
        daemon
            .put(&format!("/v1/probes/{probe}"), &counting(&five()))
            .expect(201);
    }
    let mut generator = generator(&topology)?;
    let mut last = Page::scrape(&daemon);
    let mut sent = 0_u32;
    for round in 1..=6 {
        let now = 1000 * round + 7;
        generator.send(u64::from(now))?;
        sent += now;
        if round % 3 == 0 {
            daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
            generator.send(10)?;
            sent += 10;
        }
        let in_window = f64::from(if round % 3 == 0 { now + 10 } else { now });
        // Metrics that are reset have the values of the last window, without the counts since then.
        ["one", "two"]
            .into_iter()
            .for_each(|probe| close(&daemon, probe));
        Page::scrape(&daemon);
        let page = Page::scrape(&daemon);
        for probe in ["one", "two"] {
            let of = [("probe", probe), ("direction", "ingress")];
            for counter in ["packets_total", "hashed_total", "live_total"] {
                assert_eq!(
                    page.sum(counter, &of),
                    f64::from(sent),
                    "{counter} of {probe} in round {round}"
                );
            }
            for gauge in ["window", "per_cpu"] {
                assert_eq!(
                    page.sum(gauge, &of),
                    in_window,
                    "{gauge} of {probe} in round {round}"
                );
            }
        }
        page.assert_grown_from(&last);
        last = page;
    }
    let kinds = ["packets", "hashed", "live", "window", "per_cpu"]
        .map(|family| last.kind(family).to_owned());
    assert_eq!(kinds, ["counter", "counter", "counter", "gauge", "gauge"]);
    assert_eq!(last.families["packets"].1, "Packets");
    // A replacement keeps the counts.
    let mut config = counting(&five());
    config["priority"] = json!(7);
    daemon.put("/v1/probes/one", &config).expect(200);
    generator.send(5)?;
    close(&daemon, "one");
    let page = Page::scrape(&daemon);
    assert_eq!(
        page.sum("packets_total", &[("probe", "one")]),
        f64::from(sent + 5)
    );
    page.assert_grown_from(&last);
    bystanders.finish()
}

/// Probes may give one name to metrics of different types.
#[test]
fn names_that_clash_make_a_valid_page() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let metric = |name: &str, init: bool| json!({ "name": name, "map": "in_array", "snapshot": true, "init": init });
    let hash = |name: &str| json!({ "name": name, "map": "in_hash", "snapshot": true, "help": "With\na \"help\\" });
    let one = json!([metric("mixed_total", false), hash("x_total")]);
    let two = json!([metric("mixed_total", true), hash("x")]);
    for (probe, metrics) in [("one", one), ("two", two)] {
        daemon
            .put(&format!("/v1/probes/{probe}"), &counting(&metrics))
            .expect(201);
    }
    generator(&topology)?.send(100)?;
    close(&daemon, "two");
    let page = Page::scrape(&daemon);
    assert_eq!(page.kind("mixed_total"), "unknown");
    for probe in ["one", "two"] {
        assert_eq!(page.sum("mixed_total", &[("probe", probe)]), 100.0);
    }
    // Sums called x and x_total are one counter.
    assert_eq!([page.kind("x_total"), page.kind("x")], ["none", "counter"]);
    for probe in ["one", "two"] {
        assert_eq!(page.sum("x_total", &[("probe", probe)]), 100.0);
    }
    assert_eq!(page.families["x"].1, "With\na \"help\\");
    for probe in ["one", "two"] {
        assert_eq!(
            page.one("twinprobe_export_skipped_total", &[("probe", probe)]),
            0.0
        );
    }
    Ok(())
}

#[test]
fn a_probe_that_cannot_be_read_is_left_out_and_counted() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for probe in ["bad", "good"] {
        daemon
            .put(&format!("/v1/probes/{probe}"), &counting(&five()))
            .expect(201);
    }
    let mut generator = generator(&topology)?;
    generator.send(100)?;
    let directories = daemon.kill()?;
    Store::open(&directories)?.set_record("bad", "garbage")?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    close(&daemon, "good");
    for scrapes in 1..=3 {
        let page = Page::scrape(&daemon);
        assert_eq!(page.sum("packets_total", &[("probe", "good")]), 100.0);
        assert!(
            page.matching("packets_total", &[("probe", "bad")])
                .is_empty()
        );
        assert_eq!(
            page.one("twinprobe_probe_read_failures_total", &[("probe", "bad")]),
            f64::from(scrapes)
        );
        assert_eq!(
            page.one("twinprobe_probe_read_failures_total", &[("probe", "good")]),
            0.0
        );
        assert_eq!(page.one("twinprobe_probes", &[("state", "failed")]), 1.0);
        assert_eq!(page.one("twinprobe_probes", &[("state", "running")]), 3.0);
    }
    daemon.delete("/v1/probes/bad").expect(204);
    let page = Page::scrape(&daemon);
    assert!(
        page.matching("twinprobe_probe_read_failures_total", &[("probe", "bad")])
            .is_empty()
    );
    assert_eq!(page.one("twinprobe_probes", &[("state", "failed")]), 0.0);
    bystanders.finish()
}

#[test]
fn the_daemon_tells_of_itself() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/one", &counting(&five())).expect(201);
    daemon
        .put("/v1/probes/two", &json!({ "interface": "mon0" }))
        .expect(422);
    daemon.get("/v1/probes/none").expect(404);
    daemon.get("/nowhere").expect(404);
    for method in ["HEAD", "POST"] {
        daemon.request(method, "/metrics", &[], b"").expect(405);
    }
    // A client that accepts only another type gets the page as well.
    daemon
        .request(
            "GET",
            "/metrics",
            &[("accept", "text/plain;version=0.0.4")],
            b"",
        )
        .expect(200);
    let page = Page::scrape(&daemon);
    let answered = |method, route, status| {
        page.one(
            "twinprobe_http_requests_total",
            &[("method", method), ("route", route), ("status", status)],
        )
    };
    assert_eq!(answered("PUT", "/v1/probes/{name}", "201"), 3.0);
    assert_eq!(answered("PUT", "/v1/probes/{name}", "422"), 1.0);
    assert_eq!(answered("GET", "/v1/probes/{name}", "404"), 1.0);
    assert_eq!(answered("GET", "none", "404"), 1.0);
    assert_eq!(answered("HEAD", "/metrics", "405"), 1.0);
    let puts = [("method", "PUT"), ("route", "/v1/probes/{name}")];
    assert_eq!(
        page.one("twinprobe_http_request_duration_seconds_count", &puts),
        4.0
    );
    assert_eq!(
        page.one(
            "twinprobe_compilation_seconds_count",
            &[("outcome", "accepted")]
        ),
        3.0
    );
    assert_eq!(page.matching("twinprobe_build_info", &[]), [1.0]);
    // The difference consists of the request's connection, and of earlier ones that the daemon has
    // not closed yet.
    let connections = page.one("process_open_fds", &[]) - daemon.open_files() as f64;
    assert!((1.0..=8.0).contains(&connections), "{connections}");
    let resident = page.one("process_resident_memory_bytes", &[]);
    assert!((1e6..1e9).contains(&resident), "{resident}");
    assert!(page.one("process_cpu_seconds_total", &[]) > 0.0);
    assert!(page.one("process_start_time_seconds", &[]) > 1.7e9);
    for family in [
        "twinprobe_windows_closed",
        "twinprobe_quiesce_seconds",
        "twinprobe_windows_lost",
    ] {
        assert_ne!(page.kind(family), "none", "{family}");
    }
    bystanders.finish()
}

/// Scrapes, also those that break off, take no windows from collectors, and sums never fall.
#[test]
fn a_scrape_takes_nothing() -> Result<()> {
    // The number is enough for a page of megabytes, and small enough for the reference parser.
    const FLOWS: u64 = 64 * 16;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_at(&daemon, &topology, Stand::FRAGS)?;
    daemon
        .put("/v1/probes/counting", &with_frags(counting(&three())))
        .expect(201);
    daemon
        .put(
            "/v1/probes/flow-features",
            &probes::configuration("flow-features", "mon0")?,
        )
        .expect(201);
    let spread = Spread {
        addresses: 64,
        ports: 16,
        ..Spread::default()
    };
    let options = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(topology.generator(), "gen0", options)?;
    let begin = |bytes: usize| -> Result<UnixStream> {
        let mut stream = UnixStream::connect(daemon.directories().socket())?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
        stream.read_exact(&mut vec![0; bytes])?;
        Ok(stream)
    };
    // The first window of each probe waits for a collector.
    ["counting", "flow-features"]
        .into_iter()
        .for_each(|probe| close(&daemon, probe));
    let retained = |probe: &str| daemon.json(&format!("/v1/probes/{probe}/windows"));
    let before = ["counting", "flow-features"].map(retained);
    // The reference parser takes a second for such a page. It checks that pages are valid and are
    // read rightly.
    let mut last = Page::scrape_large(&daemon);
    let (mut sent, mut in_window, mut seq) = (0.0, 0.0, 1);
    let pages = scaled(4, 10);
    for round in 0..scaled(5, 50) {
        generator.send(2 * FLOWS)?;
        let slow = begin(1000 + 50_000 * (round % 10) as usize)?;
        generator.send(10)?;
        sent += 2.0 * FLOWS as f64 + 10.0;
        for _ in 0..pages {
            let page = Page::scrape_large(&daemon);
            assert_eq!(page.sum("packets_total", &[]), sent, "round {round}");
            assert_eq!(
                page.sum("net_flows_IN_PKTS", &[]),
                in_window,
                "round {round}"
            );
            page.assert_grown_from(&last);
            last = page;
        }
        drop(slow);
        if round == 3 {
            // The test has read more pages than windows are retained. The pages have removed no
            // window, and have closed no window of a probe with resets.
            assert_eq!(["counting", "flow-features"].map(retained)[0], before[0]);
            assert_eq!(retained("flow-features")["lost_windows"], 0);
        }
        seq += 1;
        let document = daemon.json("/v1/probes/flow-features/metrics");
        assert_eq!(
            document["window"]["seq"], seq,
            "only this client closes windows"
        );
        in_window = 2.0 * FLOWS as f64 + 10.0;
        let page = Page::scrape_large(&daemon);
        assert_eq!(
            page.sum("net_flows_IN_PKTS", &[]),
            in_window,
            "what is reset appears as the last window"
        );
        last = page;
    }
    assert_eq!(
        last.one(
            "twinprobe_probe_read_failures_total",
            &[("probe", "flow-features")]
        ),
        0.0
    );
    let parsed = Page::parse(&last.text);
    assert!(
        parsed.samples == last.samples,
        "the reference parser reads other samples"
    );
    // The next client gets a window after an incomplete answer to another client; a scraper does
    // not get the window.
    generator.send(2 * FLOWS)?;
    assert!(http::take(
        &daemon.address(),
        "GET",
        "/v1/probes/flow-features/metrics",
        1000
    )?);
    for _ in 0..3 {
        assert_eq!(
            Page::scrape_large(&daemon).sum("net_flows_IN_PKTS", &[]),
            2.0 * FLOWS as f64
        );
    }
    // Other clients get the next, empty windows until the daemon has noticed the end of the first
    // client.
    wait_for("the window", PATIENCE, || {
        let document = daemon.json("/v1/probes/flow-features/metrics");
        ensure!(
            document["window"]["seq"] == seq + 1,
            "{}",
            document["window"]
        );
        assert_eq!(
            document["ingress"]["flows"]["entries"]
                .as_array()
                .map(Vec::len),
            Some(FLOWS as usize)
        );
        Ok(())
    })?;
    bystanders.finish()
}

/// A table of a million entries is never in the daemon's memory as a whole.
#[test]
fn large_tables_are_not_kept() -> Result<()> {
    const ENTRIES: u32 = 1_000_000;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let metrics = json!([{ "name": "table", "map": "table" }]);
    let defines = json!({ "ENTRIES": ENTRIES.to_string() });
    let config = json!({
        "interface": "mon0", "ingress": { "source": TABLE, "defines": defines, "metrics": metrics }
    });
    daemon.put("/v1/probes/table", &config).expect(201);
    let table = HashTable::of_process(daemon.pid(), ENTRIES)?;
    let keys: Vec<u8> = (0..ENTRIES).flat_map(u32::to_ne_bytes).collect();
    let values: Vec<u8> = (0..ENTRIES)
        .flat_map(|key| u64::from(key).to_ne_bytes())
        .collect();
    table.update(&keys, &values)?;
    for path in ["/metrics", "/v1/probes/table/metrics?format=openmetrics"] {
        // The first answer allocates the memory that all answers share.
        daemon.get(path).expect(200);
        // The system may take pages of the program from an idle process: only memory without files
        // counts.
        let memory = || Resident::of(daemon.pid()).map(|memory| memory.anonymous_kib);
        let (before, ended) = (memory()?, AtomicBool::new(false));
        let (answer, peak) = thread::scope(|scope| {
            let peak = scope.spawn(|| {
                let mut peak = 0;
                while !ended.load(Ordering::Relaxed) {
                    peak = peak.max(memory().expect("the daemon lives"));
                    thread::sleep(Duration::from_millis(1));
                }
                peak
            });
            let answer = daemon.get(path);
            ended.store(true, Ordering::Relaxed);
            (answer.expect(200), peak.join().expect("no panic"))
        });
        let grown = peak.saturating_sub(before);
        assert!(grown < 6 << 10, "{grown} KiB for a table of 12 MB");
        assert_contiguous(answer.text());
        let (mut count, mut sum) = (0_u32, 0_u64);
        for line in answer
            .text()
            .lines()
            .filter(|line| line.starts_with("table{"))
        {
            count += 1;
            sum += line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        assert_eq!(
            (count, sum),
            (ENTRIES, u64::from(ENTRIES) * u64::from(ENTRIES - 1) / 2)
        );
    }
    bystanders.finish()
}

/// Pages and documents of one probe are read in parallel: each window is delivered in a document.
#[test]
fn pages_take_no_windows_from_documents() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/one", &counting(&five())).expect(201);
    let mut generator = generator(&topology)?;
    let rounds = scaled(12, 200);
    let read = |_| {
        let document = daemon.json("/v1/probes/one/metrics");
        let entries = document["ingress"]["window"]["entries"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        entries
            .iter()
            .filter_map(|entry| entry["value"].as_f64())
            .sum::<f64>()
    };
    let total = thread::scope(|scope| -> Result<f64> {
        let pages = scope.spawn(|| {
            let mut last = Page::scrape(&daemon);
            for _ in 0..rounds {
                let page = Page::scrape(&daemon);
                page.assert_grown_from(&last);
                last = page;
            }
        });
        let documents = scope.spawn(|| (0..rounds).map(read).sum::<f64>());
        for _ in 0..rounds {
            generator.send(1000)?;
        }
        pages.join().expect("no panic");
        Ok(documents.join().expect("no panic"))
    })?;
    assert_eq!(total + read(0), 1000.0 * rounds as f64);
    assert_eq!(
        Page::scrape(&daemon).sum("packets_total", &[]),
        1000.0 * rounds as f64
    );
    bystanders.finish()
}
