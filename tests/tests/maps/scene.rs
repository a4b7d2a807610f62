//! The scene of these tests: a daemon with the probe of `bpf/maps.bpf.c`.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::{Bystanders, Daemon, Response, Topology};

pub const MAPS: &str = include_str!("../../bpf/maps.bpf.c");

/// The number of source addresses, which packets have in turn, beginning with 198.18.0.0.
pub const ADDRESSES: u64 = 50;

pub struct Scene {
    pub topology: Topology,
    pub daemon: Daemon,
    pub bystanders: Bystanders,
}

pub fn metric(name: &str, map: &str, snapshot: bool, init: bool) -> Value {
    json!({ "name": name, "map": map, "snapshot": snapshot, "init": init })
}

impl Scene {
    pub fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        Ok(Self {
            bystanders: Bystanders::deploy(&daemon, &topology)?,
            daemon,
            topology,
        })
    }

    pub fn put(&self, metrics: &Value) -> Response {
        let ingress = json!({ "source": MAPS, "metrics": metrics });
        // A reset makes each deployment count from zero.
        let config = json!({ "interface": "mon0", "on_replace": "reset", "ingress": ingress });
        self.daemon.put("/v1/probes/maps", &config)
    }

    /// Creates or replaces the probe with these metrics. Returns its status.
    #[track_caller]
    pub fn deploy(&self, metrics: &Value) -> Value {
        let response = self.put(metrics);
        assert!([200, 201].contains(&response.status), "{}", response.text());
        response.json()
    }

    pub fn read(&self) -> Value {
        self.daemon.json("/v1/probes/maps/metrics")
    }

    pub fn generator(&self) -> Result<Generator> {
        let spread = Spread {
            addresses: ADDRESSES as u32,
            ports: 1,
            ..Spread::default()
        };
        let options = GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        };
        Generator::new(self.topology.generator(), "gen0", options)
    }

    pub fn send(&self, count: u64) -> Result<()> {
        self.generator()?.send(count)
    }
}
