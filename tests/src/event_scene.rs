//! A probe that reports every packet as an event, and readers that account for all of them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::stream::Stream;
use crate::traffic::{Generator, GeneratorOptions};
use crate::wait::{PATIENCE, wait_for};
use crate::{Bystanders, Daemon, Topology};

const SOURCE: &str = include_str!("../bpf/events.bpf.c");
/// The media type that streams are requested with.
pub const LINES: &str = "application/x-ndjson";
/// The path of the events of the scene's probe.
pub const EVENTS: &str = "/v1/probes/p/events";

/// Returns the eBPF source with these macros defined.
fn source(defines: &str) -> String {
    let defines: String = defines
        .split_whitespace()
        .map(|define| format!("#define {define}\n"))
        .collect();
    defines.replace('=', " ") + SOURCE
}

/// Returns the configuration of a probe at mon0 that reports packets in `packets` and counts those
/// that did not fit in `lost`.
pub fn config(defines: &str) -> Value {
    json!({
        "interface": "mon0",
        // Each deployment numbers its events from 0.
        "on_replace": "reset",
        "ingress": {
            "source": source(defines),
            "metrics": [{ "name": "packets", "map": "events", "type": "struct event" }, { "name": "lost", "map": "lost" }]
        }
    })
}

/// A daemon with the probe `p`, and the bystanders beside it.
pub struct Scene {
    pub topology: Topology,
    pub daemon: Daemon,
    pub bystanders: Bystanders,
}

impl Scene {
    /// Starts a daemon and deploys the probe with these macros, separated by spaces.
    pub fn new(defines: &str) -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        daemon.put("/v1/probes/p", &config(defines)).expect(201);
        Ok(Self {
            topology,
            daemon,
            bystanders,
        })
    }

    pub fn generator(&self) -> Result<Generator> {
        Generator::new(
            self.topology.generator(),
            "gen0",
            GeneratorOptions::default(),
        )
    }

    pub fn stream(&self, query: &str) -> Result<Stream> {
        Stream::open(&self.daemon, &format!("{EVENTS}{query}"), LINES)
    }

    /// Returns the status of the event metric.
    pub fn status(&self) -> Value {
        self.daemon.json("/v1/probes/p")["events"][0].clone()
    }

    /// Returns the number of events that the program itself counted as lost.
    pub fn lost_by_program(&self) -> Value {
        self.daemon.json("/v1/probes/p/metrics")["ingress"]["lost"]["entries"][0]["value"].clone()
    }

    /// Waits until `done`; the error at the limit gives the reason.
    pub fn wait_for(&self, wrong: &str, mut done: impl FnMut(&Self) -> bool) -> Result<()> {
        wait_for(wrong, PATIENCE, || {
            ensure!(done(self), "not yet");
            Ok(())
        })
    }
}

/// Reads a stream until it has `count` events, lost ones included. Returns the serial numbers and
/// the lost events.
pub fn account(stream: &mut Stream, count: u64) -> Result<(Vec<u64>, u64)> {
    let (mut serials, mut lost) = (Vec::new(), 0);
    while serials.len() as u64 + lost < count {
        let line = stream
            .line()?
            .with_context(|| format!("ended after {}, {lost} lost", serials.len()))?;
        // Splitting is faster than parsing the whole line.
        match line.split_once("\"serial\":") {
            Some((_, rest)) => serials.push(rest.split(',').next().context("a number")?.parse()?),
            None => {
                let message: Value = serde_json::from_str(&line)?;
                lost += message["lost"].as_u64().with_context(|| line.clone())?;
            }
        }
    }
    assert_eq!(serials.len() as u64 + lost, count);
    Ok((serials, lost))
}
