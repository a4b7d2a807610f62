//! Leases: a probe is removed when its lease ends, after its last window; a PUT renews the lease.
//! No count is lost, even if the daemon is killed meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::attachments::dispatcher;
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Directories, Response, Store, Topology};

const PROBE: &str = "/v1/probes/p";
/// The longest time until a probe whose lease has ended is removed.
const LIMIT: Duration = PATIENCE;

fn leased(expires: &str) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["expires"] = json!(expires);
    config
}

fn wait_until_gone(daemon: &Daemon) -> Result<()> {
    wait_for("the end of the lease", LIMIT, || {
        ensure!(
            daemon.get(PROBE).status == 404,
            "{}",
            daemon.get(PROBE).text()
        );
        Ok(())
    })
}

/// Returns the seconds from now, by the clock that is off by `offset` seconds, until the end of the
/// lease.
fn left(status: &Value, offset: i64) -> Result<f64> {
    let end: jiff::Timestamp = status["expires_at"].as_str().context("a lease")?.parse()?;
    Ok(end.duration_since(jiff::Timestamp::now()).as_secs_f64() - offset as f64)
}

fn packets(document: &Value) -> u64 {
    total(document, "ingress", "packets")
}

fn seq(document: &Value) -> u64 {
    document["window"]["seq"].as_u64().expect("a number")
}

struct Scene {
    topology: Topology,
    generator: Generator,
    /// Counts the packets that have passed the probe.
    passed: Counter,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let passed = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
        Ok(Self {
            topology,
            generator,
            passed,
        })
    }

    /// Sends packets and waits until the probe has seen them: the queue of an interface is dropped
    /// with its program.
    fn send(&mut self, count: u64) -> Result<()> {
        let expected = self.passed.packets()? + count;
        self.generator.send(count)?;
        wait_for("the packets", LIMIT, || {
            let passed = self.passed.packets()?;
            ensure!(passed == expected, "{passed} of {expected}");
            Ok(())
        })
    }
}

#[test]
fn a_lease_is_renewed_by_each_put_and_counts_real_time() -> Result<()> {
    const DAY: i64 = 24 * 60 * 60;
    let topology = Topology::new()?;
    let clock = tempfile::tempdir()?;
    let options =
        DaemonOptions::default().environment("TWINPROBE_CLOCK_OFFSET", clock.path().join("offset"));
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let put = |daemon: &Daemon, expires: &str, status: u16| {
        daemon.put(PROBE, &leased(expires)).expect(status)
    };
    let created = put(&daemon, "1h", 201).json();
    assert!((3590.0..=3600.0).contains(&left(&created, 0)?), "{created}");
    assert_eq!(
        daemon.json(PROBE)["expires_at"],
        created["expires_at"],
        "it stays the same"
    );
    let tag = |answer: &Response| answer.header("ETag").map(str::to_owned);
    let before = tag(&daemon.get(PROBE));
    let renewed = put(&daemon, "1h", 200);
    assert_eq!(tag(&renewed), before, "nothing else changes");
    let renewed = renewed.json();
    assert!(
        left(&renewed, 0)? > left(&created, 0)?,
        "{created} {renewed}"
    );
    assert_eq!(renewed["revision"], 1);

    // A killed daemon has written the lease down, even after a mere renewal.
    let mut daemon = daemon.restart(libc::SIGKILL, &options)?;
    assert_eq!(daemon.json(PROBE)["expires_at"], renewed["expires_at"]);
    // The probe stays if the clock is set, while the daemon runs or between two daemons.
    for (offset, restarts) in [(2 * DAY, false), (-3 * DAY, false), (DAY, true), (0, false)] {
        std::fs::write(
            clock.path().join("offset"),
            (offset * 1_000_000_000).to_string(),
        )?;
        if restarts {
            daemon = daemon.restart(libc::SIGKILL, &options)?;
        }
        let status = daemon.json(PROBE);
        assert!(
            (3500.0..=3601.0).contains(&left(&status, offset)?),
            "{offset}: {status}"
        );
        assert_eq!(
            daemon.json(PROBE)["expires_at"],
            status["expires_at"],
            "it stays the same"
        );
    }
    // A replacement has a lease of its own; a rollback has the lease of the earlier configuration.
    let longer = put(&daemon, "5h", 200).json();
    assert!(
        (17_990.0..=18_000.0).contains(&left(&longer, 0)?),
        "{longer}"
    );
    let back = daemon
        .request("POST", "/v1/probes/p/rollback", &[], b"")
        .expect(200)
        .json();
    assert!((3590.0..=3600.0).contains(&left(&back, 0)?), "{back}");
    let without = daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(200)
        .json();
    assert_eq!(without.get("expires_at"), None);
    Ok(())
}

/// Three probes. One has a lease that ends: the probe is removed with its attachments, and its last
/// window stays for collectors.
#[test]
fn the_last_window_is_closed_and_the_probe_is_removed() -> Result<()> {
    let mut scene = Scene::new()?;
    let daemon = Daemon::start(scene.topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &scene.topology)?;
    let windows = Windows::of(&daemon, "p");
    let mut config = leased("1s");
    config["window"] = json!({ "collectors": ["a", "b"] });
    config["interface"] = json!("mon1");
    // A lease that is renewed in time does not end.
    let instance = daemon.put(PROBE, &config).expect(201).json()["instance"].clone();
    for _ in 0..4 {
        let renewed = daemon.put(PROBE, &config).expect(200).json();
        assert_eq!(
            (&renewed["instance"], &renewed["revision"]),
            (&instance, &json!(1))
        );
        wait_for("half of the lease", LIMIT, || {
            ensure!(left(&daemon.json(PROBE), 0)? < 0.5, "not over");
            Ok(())
        })?;
    }
    config["interface"] = json!("mon0");
    config["expires"] = json!("1h");
    daemon.put(PROBE, &config).expect(200);
    scene.send(300)?;
    assert_eq!(packets(&windows.close()), 300);
    scene.send(700)?;
    config["expires"] = json!("100ms");
    daemon.put(PROBE, &config).expect(200);
    wait_until_gone(&daemon)?;

    assert!(!daemon.json("/v1/probes").to_string().contains("\"p\""));
    assert!(
        dispatcher(
            daemon.directories().bpffs(),
            scene.topology.monitor(),
            "mon1",
            "xdp"
        )
        .is_err()
    );
    for path in ["/v1/probes/p/metrics", "/v1/probes/p/revisions"] {
        daemon.get(path).expect(404);
    }
    daemon.delete(PROBE).expect(404);
    assert!(!daemon.get("/metrics").text().contains("probe=\"p\""));
    // Both windows are there, also for the next daemon, until both collectors have them.
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    assert_eq!(windows.seqs(), [1, 2]);
    let last = windows.get(2);
    assert_eq!((packets(&last), &last["instance"]), (700, &instance));
    assert_eq!(windows.bytes(2, "json"), windows.bytes(2, "json"));
    windows.acknowledge(2, Some("a"))?.expect(204);
    assert_eq!(windows.list("collector=b").seqs(), [1, 2]);
    windows
        .try_list("after=2&wait=30")
        .expect_err("no other window will come");
    windows.acknowledge(2, Some("b"))?.expect(204);
    windows.request("GET", "/v1/probes/p/windows")?.expect(404);
    windows.try_get(2)?.expect(404);
    assert_eq!(Store::open(&daemon.directories())?.rows("p")?, 0);
    bystanders.finish()
}

/// A daemon dies at each step of removing an expired probe, or was killed long before: the next one
/// removes the probe. Every packet until then is in a window.
#[test]
fn a_lease_ends_once_whatever_happens_to_the_daemon() -> Result<()> {
    let mut scene = Scene::new()?;
    let options = DaemonOptions::default();
    let daemon = Daemon::start(scene.topology.monitor())?;
    daemon
        .put("/v1/probes/other", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let mut directories = daemon.kill()?;
    let mut sent = 0;
    for step in [
        "",
        "ended",
        "flipped",
        "stored",
        "closed_last",
        "expired",
        "detached",
    ] {
        let dying = options.clone().environment("TWINPROBE_CRASH_AT", step);
        let daemon = Daemon::start_in(scene.topology.monitor(), &dying, directories)?;
        let windows = Windows::of(&daemon, "p");
        daemon.put(PROBE, &leased("1h")).expect(201);
        scene.send(500)?;
        let status = daemon.put(PROBE, &leased("300ms")).expect(200).json();
        if step.is_empty() {
            // No daemon runs at the end of the lease.
            directories = daemon.kill()?;
            scene.send(100)?;
            wait_for("the end of the lease", LIMIT, || {
                ensure!(left(&status, 0)? < 0.0, "not over");
                Ok(())
            })?;
        } else {
            let died = || {
                let answer = daemon.try_request("GET", "/healthz", &[], b"");
                ensure!(answer.is_err(), "it is alive");
                Ok(())
            };
            wait_for(step, LIMIT, died)?;
            directories = daemon.kill()?;
        }
        let daemon = Daemon::start_in(scene.topology.monitor(), &options, directories)?;
        wait_until_gone(&daemon)?;
        let counted: u64 = windows
            .seqs()
            .into_iter()
            .map(|seq| packets(&windows.get(seq)))
            .sum();
        let expected = if step.is_empty() { 600 } else { 500 };
        assert_eq!(counted, expected, "{step}");
        sent += expected;
        let last = windows.seqs().pop().context("a window")?;
        windows.acknowledge(last, None)?.expect(204);
        windows.request("GET", "/v1/probes/p/windows")?.expect(404);
        assert_eq!(
            std::fs::read_dir(daemon.directories().bpffs().join("probes"))?.count(),
            1,
            "{step}"
        );
        directories = daemon.kill()?;
    }
    let daemon = Daemon::start_in(scene.topology.monitor(), &options, directories)?;
    assert_eq!(packets(&daemon.json("/v1/probes/other/metrics")), sent);
    Ok(())
}

/// A new probe with the name of an expired one continues with its window numbers, and shows none of
/// its windows.
#[test]
fn a_successor_of_an_expired_probe_has_another_instance() -> Result<()> {
    let mut scene = Scene::new()?;
    let daemon = Daemon::start(scene.topology.monitor())?;
    let windows = Windows::of(&daemon, "p");
    let first = daemon.put(PROBE, &leased("1h")).expect(201).json();
    scene.send(100)?;
    daemon.put(PROBE, &leased("100ms")).expect(200);
    wait_until_gone(&daemon)?;
    let mut config = leased("1h");
    config["window"] = json!({ "interval": "1h" });
    let second = daemon.put(PROBE, &config).expect(201).json();
    assert_ne!(first["instance"], second["instance"]);
    let own = daemon.json("/v1/probes/p/metrics");
    assert_eq!((own.get("window"), packets(&own)), (None, 0));
    assert_eq!(
        (packets(&windows.get(1)), &windows.get(1)["instance"]),
        (100, &first["instance"])
    );
    scene.send(50)?;
    let closed = windows.close();
    assert_eq!(
        (seq(&closed), packets(&closed), &closed["instance"]),
        (2, 50, &second["instance"])
    );
    windows.acknowledge(2, None)?.expect(204);
    daemon.get(PROBE).expect(200);
    // The next daemon knows one probe of this name.
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    assert_eq!(daemon.json(PROBE)["instance"], second["instance"]);
    daemon.delete(PROBE).expect(204);
    windows.try_get(2)?.expect(404);
    Ok(())
}

/// On a full disk the probe sees no packets any more, and stays until there is room for its last
/// window.
#[test]
fn a_last_window_that_can_not_be_stored_waits() -> Result<()> {
    let mut scene = Scene::new()?;
    let directories = Arc::new(Directories::with_state_in_memory(2 << 20)?);
    let options = DaemonOptions::default();
    let daemon = Daemon::start_in(scene.topology.monitor(), &options, Arc::clone(&directories))?;
    daemon.put(PROBE, &leased("3s")).expect(201);
    scene.send(100)?;
    directories.state_in_memory().fill()?;
    let status = wait_for("a window that can't be stored", LIMIT, || {
        let status = daemon.get(PROBE).json();
        ensure!(
            status["windows"]["error"]
                .as_str()
                .is_some_and(|error| error.contains("No space")),
            "{status}"
        );
        Ok(status)
    })?;
    assert_eq!(status["interfaces"][0]["state"], "pending", "{status}");
    let reason = status["interfaces"][0]["reason"]
        .as_str()
        .unwrap_or_default();
    assert!(reason.contains("the lease has ended"), "{status}");
    scene.send(50)?;
    // The next daemon continues to remove the probe.
    let daemon = daemon.restart(libc::SIGKILL, &options)?;
    daemon.get(PROBE).expect(200);
    directories.state_in_memory().free()?;
    wait_until_gone(&daemon)?;
    let windows = Windows::of(&daemon, "p");
    let counted: u64 = windows
        .seqs()
        .into_iter()
        .map(|seq| packets(&windows.get(seq)))
        .sum();
    assert_eq!(counted, 100);
    Ok(())
}

/// After a reboot a lease continues by the wall clock; a probe with an ended lease is not deployed
/// again.
#[test]
fn leases_survive_a_reboot() -> Result<()> {
    let mut scene = Scene::new()?;
    let daemon = Daemon::start(scene.topology.monitor())?;
    let long = daemon
        .put("/v1/probes/long", &leased("1h"))
        .expect(201)
        .json();
    daemon.put(PROBE, &leased("1h")).expect(201);
    scene.send(100)?;
    Windows::of(&daemon, "p").close();
    let short = daemon.put(PROBE, &leased("200ms")).expect(200).json();
    let directories = daemon.kill()?;
    std::fs::remove_dir_all(directories.bpffs())?;
    wait_for("the end of the lease", LIMIT, || {
        ensure!(left(&short, 0)? < 0.0, "not over");
        Ok(())
    })?;
    let daemon = Daemon::start_in(
        scene.topology.monitor(),
        &DaemonOptions::default(),
        directories,
    )?;
    let anew = daemon.json("/v1/probes/long");
    assert_eq!(
        ["expires_at", "instance"].map(|field| &anew[field]),
        ["expires_at", "instance"].map(|field| &long[field])
    );
    wait_until_gone(&daemon)?;
    assert!(
        !daemon.log().contains("deployed probe=\"p\""),
        "{}",
        daemon.log()
    );
    let windows = Windows::of(&daemon, "p");
    assert_eq!((windows.seqs(), packets(&windows.get(1))), (vec![1], 100));
    Ok(())
}
