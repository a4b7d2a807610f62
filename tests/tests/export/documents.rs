//! Large documents: rendered as the client takes them, and given again if the client did not take
//! all of one.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, Result};
use serde_json::Value;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Bystanders, Daemon, Stand, Topology, probes, scaled};

/// The number of the paper's sessions.
const FLOWS: u64 = 256 * 97;

struct Scene {
    daemon: Daemon,
    bystanders: Bystanders,
    generator: Generator,
    _topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy_at(&daemon, &topology, Stand::FRAGS)?;
        daemon
            .put(
                "/v1/probes/flow-features",
                &probes::configuration("flow-features", "mon0")?,
            )
            .expect(201);
        let options = GeneratorOptions {
            spread: Spread::default(),
            ..GeneratorOptions::default()
        };
        let generator = Generator::new(topology.generator(), "gen0", options)?;
        Ok(Self {
            daemon,
            bystanders,
            generator,
            _topology: topology,
        })
    }

    /// Requests the metrics and reads `bytes` of the answer.
    fn begin(&self, bytes: usize) -> Result<UnixStream> {
        let mut stream = UnixStream::connect(self.daemon.directories().socket())?;
        stream.write_all(b"GET /v1/probes/flow-features/metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
        stream.read_exact(&mut vec![0; bytes])?;
        Ok(stream)
    }

    fn read(&self) -> Value {
        self.daemon.json("/v1/probes/flow-features/metrics")
    }
}

fn flows(document: &Value) -> Vec<u64> {
    let entries = document["ingress"]["flows"]["entries"]
        .as_array()
        .expect("entries");
    entries
        .iter()
        .map(|entry| entry["value"]["IN_PKTS"].as_u64().expect("IN_PKTS"))
        .collect()
}

#[test]
fn a_window_whose_client_hangs_up_is_given_to_the_next() -> Result<()> {
    let mut scene = Scene::new()?;
    let mut seen = BTreeSet::new();
    for round in 0..scaled(6, 100) {
        scene.generator.send(2 * FLOWS)?;
        // The client hangs up in the middle of several megabytes.
        drop(scene.begin(1000 + 50_000 * round as usize)?);
        // Other clients get the next windows, which are empty, until the daemon has noticed.
        let document = loop {
            let document = scene.read();
            assert!(
                seen.insert(document["window"]["seq"].as_u64()),
                "a window came twice: {seen:?}"
            );
            if !flows(&document).is_empty() {
                break document;
            }
            assert!(seen.len() < 10_000, "the window is lost");
        };
        let flows = flows(&document);
        assert_eq!(
            (flows.len() as u64, flows.iter().sum::<u64>()),
            (FLOWS, 2 * FLOWS)
        );
    }
    scene.bystanders.finish()
}

#[test]
fn a_slow_client_slows_nobody_else() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.generator.send(FLOWS)?;
    let mut slow = scene.begin(1000)?;
    // The slow client takes nothing while others get their documents.
    for round in 1..=scaled(5, 20) {
        scene.generator.send(FLOWS)?;
        let document = scene.read();
        assert_eq!(document["window"]["seq"], round + 1);
        assert_eq!(flows(&document).len() as u64, FLOWS);
    }
    // The slow client still gets its whole document.
    slow.set_read_timeout(Some(PATIENCE))?;
    let mut rest = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !rest.ends_with(b"0\r\n\r\n") {
        let count = slow.read(&mut buffer)?;
        assert!(count > 0, "the answer ended early");
        rest.extend_from_slice(&buffer[..count]);
    }
    let keys = rest
        .windows(b"\"IN_PKTS\":1".len())
        .filter(|part| part == b"\"IN_PKTS\":1")
        .count();
    assert!(keys as u64 > FLOWS - 50, "{keys} flows in the rest");
    scene.bystanders.finish()
}

/// OpenMetrics has a family for each member of a struct. All families of a live map are of one
/// reading of it.
#[test]
fn families_of_a_live_map_agree() -> Result<()> {
    let mut scene = Scene::new()?;
    let mut config = probes::configuration("flow-features", "mon0")?;
    for metric in config["ingress"]["metrics"]
        .as_array_mut()
        .context("metrics")?
    {
        (metric["snapshot"], metric["init"]) = (false.into(), false.into());
    }
    scene
        .daemon
        .put("/v1/probes/flow-features", &config)
        .expect(200);
    scene.generator.send(FLOWS)?;
    for path in ["/v1/probes/flow-features/metrics", "/metrics"] {
        let before = number(
            &scene.daemon.json("/v1/probes/flow-features/metrics"),
            "IN_PKTS",
        );
        let mut page = Stream::open(&scene.daemon, path, "application/openmetrics-text")?;
        while !page
            .line()?
            .context("another family")?
            .starts_with("# TYPE net_flows_IN_BYTES ")
        {}
        // The family of the packets has been sent, and most of the bytes' has not.
        scene.generator.send(FLOWS)?;
        let mut bytes = 0;
        while let Some(line) = page.line()? {
            if line.starts_with("net_flows_IN_BYTES{") {
                bytes += line
                    .rsplit(' ')
                    .next()
                    .context("a number")?
                    .parse::<u64>()?;
            }
        }
        let after = scene.daemon.json("/v1/probes/flow-features/metrics");
        let each = number(&after, "IN_BYTES") / number(&after, "IN_PKTS");
        assert_eq!(bytes, before * each, "{path}");
    }
    scene.bystanders.finish()
}

/// Returns the sum of a member over all flows.
fn number(document: &Value, member: &str) -> u64 {
    let entries = document["ingress"]["flows"]["entries"]
        .as_array()
        .expect("entries");
    entries
        .iter()
        .map(|entry| entry["value"][member].as_u64().expect("a number"))
        .sum()
}
