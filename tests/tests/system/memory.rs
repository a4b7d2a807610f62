//! The memory of an idle daemon.

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::measure::Resident;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology, probes, timed};

/// Probes of the library, with small and large maps, events and shared maps among them.
const PROBES: [&str; 10] = [
    "connection-states",
    "dns",
    "entropy",
    "flow-features",
    "handshake-latency",
    "packet-counter",
    "packet-sizes",
    "sampled-headers",
    "tcp-flags",
    "top-talkers",
];

#[test]
fn an_idle_daemon_with_ten_probes_and_a_console_gives_memory_back() -> Result<()> {
    // A build without optimization has more code, so the daemon has more memory.
    becomes_small(60 << 10)
}

#[timed("the memory of a release build")]
fn an_idle_daemon_with_ten_probes_and_a_console_is_small() -> Result<()> {
    becomes_small(15 << 10)
}

/// Checks that an idle daemon has at most this much memory (`VmRSS` in its status in /proc).
fn becomes_small(limit_kib: u64) -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in PROBES {
        daemon
            .put(
                &format!("/v1/probes/{name}"),
                &probes::configuration(name, "mon0")?,
            )
            .expect(201);
        daemon
            .get(&format!("/v1/probes/{name}/metrics"))
            .expect(200);
    }
    // The requests of a browser when it opens the console.
    let page = daemon.get("/").expect(200);
    let files: Vec<&str> = page
        .text()
        .split('"')
        .filter(|word| word.starts_with("/console/"))
        .collect();
    ensure!(!files.is_empty(), "{}", page.text());
    for file in files {
        daemon
            .request("GET", file, &[("accept-encoding", "br")], b"")
            .expect(200);
    }
    let mut changes = Stream::open(&daemon, "/v1/changes", "text/event-stream")?;
    changes.line()?.context("the daemon tells of its probes")?;
    drop(changes);

    let resident = wait_for("an idle daemon", PATIENCE, || {
        let resident = Resident::of(daemon.pid())?;
        ensure!(
            resident.total_kib <= limit_kib,
            "more than {limit_kib} KiB: {resident:?}"
        );
        Ok(resident)
    })?;
    println!("{resident:?}");
    // The daemon allocates memory again that it has given back.
    daemon.get("/v1/probes/dns/metrics").expect(200);
    Ok(())
}
