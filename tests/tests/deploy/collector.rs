//! examples/collector: two nodes, a collector that is killed again and again, and every packet in
//! the database once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, scaled};

use crate::tools::{root, run};

/// Writes, of each node: the packets, the windows, the newest window, and the windows that were
/// lost.
const SUMS: &str = "import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
rows = database.execute('SELECT node, (SELECT sum(value) FROM readings WHERE readings.node = windows.node), count(*), \
 max(seq), sum(lost) FROM windows GROUP BY node')
print(json.dumps({row[0]: row[1:] for row in rows}))
";

fn start(database: &Path, daemons: &[Daemon]) -> Result<Child> {
    let mut command = Command::new("python3");
    command
        .arg(root().join("examples/collector/collector.py"))
        .arg("--database")
        .arg(database);
    command.args(["--collector", "archive", "--wait", "1", "--look", "0.2"]);
    for daemon in daemons {
        command.arg(format!("unix:{}", daemon.directories().socket().display()));
    }
    command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("python3 runs")
}

fn sums(database: &Path) -> Result<BTreeMap<String, [u64; 4]>> {
    Ok(serde_json::from_str(&run(Command::new("python3")
        .args(["-c", SUMS])
        .arg(database))?)?)
}

#[test]
fn a_collector_that_is_killed_loses_nothing_and_doubles_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("windows.sqlite");
    let topologies = [Topology::new()?, Topology::new()?];
    let mut daemons = Vec::new();
    for (node, topology) in topologies.iter().enumerate() {
        let options = DaemonOptions::default()
            .argument("--node-name")
            .argument(format!("node-{node}"));
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let mut config = counter_config("mon0", "XDP_PASS");
        let metric = json!({ "name": "packets", "map": "packets", "snapshot": true, "init": true });
        config["ingress"]["metrics"] = json!([metric]);
        config["window"] =
            json!({ "interval": "50ms", "retain": 10_000, "collectors": ["archive"] });
        daemon.put("/v1/probes/p", &config).expect(201);
        daemons.push(daemon);
    }
    let mut running = Vec::new();
    for topology in &topologies {
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        running.push(generator.spawn(Load {
            rate: Some(2_000),
            ..Load::default()
        }));
    }
    let mut collected = 0;
    for kill in 0..scaled(5, 50) {
        let mut collector = start(&database, &daemons)?;
        wait_for("windows in the database", PATIENCE, || {
            let windows: u64 = sums(&database)?
                .values()
                .map(|[_, windows, ..]| windows)
                .sum();
            ensure!(windows > collected, "{windows}");
            collected = windows;
            Ok(())
        })?;
        // Each kill comes at another moment, also between a commit and its acknowledgement.
        thread::sleep(Duration::from_millis(37 * kill % 150));
        collector.kill()?;
        collector.wait()?;
    }
    let sent: Vec<u64> = running
        .into_iter()
        .map(|running| running.stop())
        .collect::<Result<_>>()?;
    let mut collector = start(&database, &daemons)?;
    let done = wait_for("all windows in the database", PATIENCE, || {
        let sums = sums(&database)?;
        let counted: Vec<u64> = sums.values().map(|[packets, ..]| *packets).collect();
        ensure!(counted == sent, "{sent:?} were sent, {sums:?}");
        Ok(sums)
    });
    collector.kill()?;
    collector.wait()?;
    for (node, [_, windows, newest, lost]) in done? {
        ensure!(
            windows == newest && lost == 0,
            "{node}: {windows} windows up to {newest}, {lost} lost"
        );
    }
    for daemon in &daemons {
        let text = daemon.get("/metrics").text().to_owned();
        ensure!(
            text.contains("twinprobe_windows_lost_total{probe=\"p\"} 0"),
            "{text}"
        );
    }
    Ok(())
}
