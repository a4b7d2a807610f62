//! Probes whose maps are reset without a snapshot: several at once, on one interface.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Directories, Topology};

pub const SOURCE: &str = include_str!("../../bpf/init.bpf.c");

/// Each packet is counted once in each of them.
pub const COUNTED: [&str; 5] = [
    "in_array",
    "in_hash",
    "in_lru_hash",
    "in_percpu_array",
    "in_percpu_hash",
];
/// The probes: nothing but `init` without `snapshot`; nothing but queues without either; both with
/// a snapshot, a variable and a map that is shown as it is.
pub const PROBES: [&str; 3] = ["counts", "queues", "mixed"];

fn counted() -> Vec<Value> {
    let metric = |map: &&str| {
        let mut metric = json!({ "name": map, "map": map, "init": true });
        if map.contains("percpu") {
            metric["agg"] = json!("sum");
        }
        metric
    };
    COUNTED.iter().map(metric).collect()
}

fn queues() -> Vec<Value> {
    vec![
        json!({ "name": "queue", "map": "queue" }),
        json!({ "name": "stack", "map": "stack" }),
    ]
}

/// One of [`PROBES`].
pub fn config(probe: &str, window: &Value, defines: &Value) -> Value {
    let metrics = match probe {
        "counts" => counted(),
        "queues" => queues(),
        _ => {
            let mut all = counted();
            all.extend(queues());
            all.push(
                json!({ "name": "at_rest", "map": "at_rest", "snapshot": true, "init": true }),
            );
            all.push(json!({ "name": "packets", "map": ".bss:packets", "init": true }));
            all.push(json!({ "name": "live", "map": "live" }));
            // `.bss` is shared by both twins.
            all
        }
    };
    let ingress = json!({ "source": SOURCE, "defines": defines, "metrics": metrics });
    let mut config = json!({ "interface": "mon0", "ingress": ingress });
    if !window.is_null() {
        config["window"] = window.clone();
    }
    config
}

/// The sums over all windows.
#[derive(Debug, Default)]
pub struct Account {
    /// The packets by metric; `popped` has the numbers of the queue and the stack.
    pub counted: std::collections::BTreeMap<String, u64>,
    pub popped: [BTreeSet<u64>; 2],
    /// The last window in the account.
    last: u64,
}

impl Account {
    /// Adds a document. Panics if a queue or a stack has given a number twice.
    pub fn add(&mut self, document: &Value) {
        let Value::Object(metrics) = &document["ingress"] else {
            panic!("no ingress in {document}")
        };
        for (name, metric) in metrics {
            let entries = metric["entries"].as_array().expect("entries");
            let fifo = ["queue", "stack"].iter().position(|fifo| fifo == name);
            for entry in entries {
                let value = entry["value"]
                    .as_u64()
                    .or_else(|| entry["value"]["packets"].as_u64())
                    .expect("a number");
                match fifo {
                    Some(fifo) => {
                        assert!(
                            self.popped[fifo].insert(value),
                            "{name} has given {value} twice"
                        );
                    }
                    None if name == "live" => {}
                    None => *self.counted.entry(name.clone()).or_default() += value,
                }
            }
        }
    }

    /// Every packet that was sent is in every metric once.
    pub fn check(&self, probe: &str, sent: u64) -> Result<()> {
        self.check_but(probe, sent, &[])
    }

    /// Checks the same, but the metrics `racy` may lack some packets.
    pub fn check_but(&self, probe: &str, sent: u64, racy: &[&str]) -> Result<()> {
        for (name, counted) in &self.counted {
            let is_racy = racy.contains(&name.as_str());
            ensure!(
                *counted == sent || is_racy && *counted <= sent,
                "{probe}: {name} has {counted} of {sent}"
            );
        }
        if probe != "counts" {
            let all: BTreeSet<u64> = (0..sent).collect();
            for (popped, name) in self.popped.iter().zip(["queue", "stack"]) {
                ensure!(
                    *popped == all,
                    "{probe}: {name} has given {} of {sent}",
                    popped.len()
                );
            }
        }
        Ok(())
    }
}

pub fn metrics_of(probe: &str) -> String {
    format!("/v1/probes/{probe}/metrics")
}

pub struct Scene {
    pub topology: Topology,
    pub daemon: Daemon,
    pub bystanders: Bystanders,
    pub generator: Generator,
    pub sent: u64,
}

impl Scene {
    /// All [`PROBES`] with the same `window` and `defines`.
    pub fn new(window: &Value, defines: &Value) -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        for probe in PROBES {
            daemon
                .put(
                    &format!("/v1/probes/{probe}"),
                    &config(probe, window, defines),
                )
                .expect(201);
        }
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        Ok(Self {
            topology,
            daemon,
            bystanders,
            generator,
            sent: 0,
        })
    }

    pub fn send(&mut self, count: u64) -> Result<()> {
        self.sent += count;
        self.generator.send(count)
    }

    /// The present daemon is killed and another daemon is started.
    pub fn restart(self, options: &DaemonOptions) -> Result<Self> {
        let Self {
            topology,
            daemon,
            bystanders,
            generator,
            sent,
        } = self;
        let directories: Arc<Directories> = daemon.kill()?;
        let daemon = Daemon::start_in(topology.monitor(), options, directories)?;
        Ok(Self {
            topology,
            daemon,
            bystanders,
            generator,
            sent,
        })
    }

    pub fn read(&self, probe: &str) -> Value {
        self.daemon.json(&metrics_of(probe))
    }

    /// All windows that are retained.
    pub fn account(&self, probe: &str) -> Account {
        let mut account = Account::default();
        self.add_new(probe, &mut account);
        account
    }

    /// Adds the windows that have come since the last one of the account.
    pub fn add_new(&self, probe: &str, account: &mut Account) {
        let windows = Windows::of(&self.daemon, probe);
        for seq in windows.list(&format!("after={}", account.last)).seqs() {
            account.add(&windows.get(seq));
            account.last = seq;
        }
    }
}
