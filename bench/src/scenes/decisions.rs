//! Three nodes with a coarse probe each, and a rule that is judged at each node or over all of them by a stream.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::measure::processor_seconds;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Running};
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Daemon, DaemonOptions, Topology, helper, http};

pub const NODES: [&str; 3] = ["a", "b", "c"];
/// The length of a window, and what each node has in one without an attack, in packets.
pub const WINDOW: Duration = Duration::from_millis(200);
pub const ORDINARY: u64 = 1_000;
/// Packets of an attack for each second: at one node, and at each node if the attack comes to all of them.
pub const AT_ONE: u64 = 20_000;
pub const AT_EACH: u64 = 5_000;
/// Packets in a window that are an attack. A burst of ordinary packets stays below, and so does each node's part of an attack at all nodes.
pub const MANY: u64 = 2_400;
/// A threshold that each node's part exceeds, and a burst of ordinary packets, too.
pub const SENSITIVE: u64 = 800;
const COLLECTOR: &str = "rules";
const PATIENCE: Duration = Duration::from_secs(20);
/// The time in which a rule has to fire.
const LIMIT: Duration = Duration::from_secs(3);
const QUESTION: Duration = Duration::from_millis(2);

/// The place of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A rule at each node, with this threshold.
    Node(u64),
    /// One rule at a stream over all nodes, with this threshold for their sum.
    Fleet(u64),
}

/// The traffic besides the ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An attack at the first node.
    AtOne,
    /// An attack at all nodes.
    AtAll,
    /// Ordinary packets that all come to the first node for a while.
    Burst,
    /// An attack at the first node, while the network between the nodes is down: the stream's process stands still.
    CutOff,
}

/// What a rule did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reaction {
    /// The time from the first packet until the fine probe ran at each attacked node.
    pub ms: Option<f64>,
    /// True if the fine probe ran at a node without an attack.
    pub is_wrong: bool,
}

/// The nodes, and the stream if there is one.
pub struct Fleet {
    nodes: Vec<FleetNode>,
    stream: Option<DecidingStream>,
    begun: Instant,
}

struct FleetNode {
    topology: Topology,
    daemon: Daemon,
    _ordinary: Running,
}

struct DecidingStream {
    process: Child,
    directory: tempfile::TempDir,
}

impl Fleet {
    pub fn new(place: Place) -> Result<Self> {
        let nodes = NODES.into_iter().map(FleetNode::new).collect::<Result<Vec<_>>>()?;
        let stream = match place {
            Place::Node(most) => {
                for node in &nodes {
                    node.daemon.put("/v1/rules/many", &rule(most)?).expect(201);
                }
                None
            }
            Place::Fleet(most) => Some(DecidingStream::start(&nodes, most)?),
        };
        let fleet = Self { nodes, stream, begun: Instant::now() };
        fleet.wait_for_windows(3)?;
        Ok(fleet)
    }

    /// Waits until the rule has judged this many further windows of each node.
    fn wait_for_windows(&self, windows: u64) -> Result<()> {
        let newest = |node: &FleetNode| {
            node.daemon.json("/v1/probes/p")["windows"]["newest"].as_u64().unwrap_or_default()
        };
        let targets: Vec<u64> = self.nodes.iter().map(|node| newest(node) + windows).collect();
        wait_for("judged windows", PATIENCE, || {
            for (node, target) in self.nodes.iter().zip(&targets) {
                let judged = match &self.stream {
                    None => node.daemon.json("/v1/rules/many")["window"].as_u64(),
                    Some(_) => {
                        let list = node.daemon.json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
                        list["after"].as_u64()
                    }
                };
                ensure!(judged >= Some(*target), "{judged:?} of {target}");
            }
            Ok(())
        })
    }

    /// Lets something happen, and tells what the rule did.
    pub fn react(&self, event: Event) -> Result<Reaction> {
        let (attacked, rate): (&[FleetNode], u64) = match event {
            Event::AtOne | Event::CutOff => (&self.nodes[..1], AT_ONE),
            Event::AtAll => (&self.nodes, AT_EACH),
            Event::Burst => (&self.nodes[..1], AT_EACH),
        };
        if let (Event::CutOff, Some(stream)) = (event, &self.stream) {
            stream.signal(libc::SIGSTOP)?;
        }
        let begun = Instant::now();
        let traffic = attacked.iter().map(|node| node.send(rate)).collect::<Result<Vec<_>>>()?;
        let is_attack = |place: usize| event != Event::Burst && place < attacked.len();
        let mut reaction = Reaction::default();
        while begun.elapsed() < LIMIT && reaction.ms.is_none() {
            let fine: Vec<bool> = self.nodes.iter().map(FleetNode::has_fine).collect();
            let right = fine.iter().enumerate().filter(|(place, _)| is_attack(*place));
            let found = right.clone().all(|(_, has)| *has) && right.count() > 0;
            reaction.is_wrong |= fine.iter().enumerate().any(|(place, has)| *has && !is_attack(place));
            if found {
                reaction.ms = Some(1e3 * begun.elapsed().as_secs_f64());
            }
            thread::sleep(QUESTION);
        }
        drop(traffic);
        if let (Event::CutOff, Some(stream)) = (event, &self.stream) {
            stream.signal(libc::SIGCONT)?;
        }
        self.wait_for_windows(3)?;
        wait_for("the end of the fine probes", PATIENCE, || {
            ensure!(!self.nodes.iter().any(FleetNode::has_fine), "a node has one");
            Ok(())
        })?;
        Ok(reaction)
    }

    /// The bytes of documents that the stream has read from each node, and its processor time in milliseconds, for each second.
    pub fn cost(&self) -> Result<(f64, f64)> {
        let Some(stream) = &self.stream else { return Ok((0.0, 0.0)) };
        let seconds = self.begun.elapsed().as_secs_f64();
        let bytes = stream.sample("twinprobe_stream_documents_bytes_total")? / NODES.len() as f64;
        Ok((bytes / seconds, 1e3 * processor_seconds(stream.process.id())? / seconds))
    }
}

impl FleetNode {
    fn new(name: &str) -> Result<Self> {
        let topology = Topology::new()?;
        let options = DaemonOptions::default().argument("--node-name").argument(name);
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let mut coarse = counter_config("mon0", "XDP_PASS");
        let metric = json!({ "name": "packets", "map": "packets", "snapshot": true, "init": true });
        coarse["ingress"]["metrics"] = json!([metric]);
        coarse["window"] = json!({
            "interval": format!("{}ms", WINDOW.as_millis()), "retain": 10_000, "collectors": [COLLECTOR],
        });
        daemon.put("/v1/probes/p", &coarse).expect(201);
        // The daemon has compiled the source then, as for a probe that was there before.
        daemon.put("/v1/probes/fine", &counter_config("mon0", "XDP_PASS")).expect(201);
        daemon.delete("/v1/probes/fine").expect(204);
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let ordinary = generator.spawn(Load { rate: Some(ORDINARY), ..Load::default() });
        Ok(Self { topology, daemon, _ordinary: ordinary })
    }

    fn send(&self, rate: u64) -> Result<Running> {
        let generator = Generator::new(self.topology.generator(), "gen0", GeneratorOptions::default())?;
        Ok(generator.spawn(Load { rate: Some(rate), ..Load::default() }))
    }

    fn has_fine(&self) -> bool {
        self.daemon.get("/v1/probes/fine").status == 200
    }
}

fn rule(most: u64) -> Result<Value> {
    let mut config = counter_config("mon0", "XDP_PASS");
    config.as_object_mut().context("a configuration")?.remove("interface");
    Ok(json!({
        "watch": "p", "when": format!("sum(ingress.packets) > {most}"), "cooldown": "0s", "max_actions_per_hour": 1000,
        "do": [{ "apply": { "name": "fine", "config": config, "expires": "10m" } }],
    }))
}

impl DecidingStream {
    fn start(nodes: &[FleetNode], most: u64) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("many.yaml");
        let mut rule = rule(most)?;
        (rule["scope"], rule["on"]) = ("fleet".into(), "where".into());
        fs::write(&path, rule.to_string())?;
        let servers: Vec<String> = nodes
            .iter()
            .map(|node| format!("unix:{}", node.daemon.directories().socket().display()))
            .collect();
        let config = json!({
            "name": COLLECTOR, "from": { "servers": servers }, "rules": [path], "listen": "127.0.0.1:0",
        });
        let of_stream = directory.path().join("stream.json");
        fs::write(&of_stream, config.to_string())?;
        let log = fs::File::create(directory.path().join("log"))?;
        let mut command = Command::new(helper("twinprobe-stream")?);
        let command = command.arg("-f").arg(of_stream).stdin(Stdio::null()).stderr(log);
        Ok(Self { process: command.spawn().context("twinprobe-stream runs")?, directory })
    }

    fn sample(&self, name: &str) -> Result<f64> {
        let log = fs::read_to_string(self.directory.path().join("log"))?;
        let address =
            log.lines().find_map(|line| line.strip_prefix("listening on ")).context("an address")?;
        let page = http::request(&http::Address::Tcp(address.parse()?), "GET", "/metrics", &[], &[])?;
        let line = page.text().lines().find(|line| line.starts_with(name)).map(str::to_owned);
        let line = line.with_context(|| format!("{name} in {}", page.text()))?;
        Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
    }

    fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: a plain system call on a child that has not been waited for.
        ensure!(unsafe { libc::kill(self.process.id().cast_signed(), signal) } == 0, "it runs");
        Ok(())
    }
}

impl Drop for DecidingStream {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
