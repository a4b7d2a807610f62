//! Nodes of a fleet: daemons in namespaces of their own, a network from each to a centre, and SYNs
//! that arrive at them.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use twinprobe_tests::netns::unique_prefix;
use twinprobe_tests::topology::interface_stats;
use twinprobe_tests::traffic::{Frame, PacketSocket, Spread};
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Daemon, DaemonOptions, Namespace, Topology, helper, veth_pair};

/// The number of nodes.
pub const NODES: usize = 3;
/// The name of the stream as a collector.
pub const COLLECTOR: &str = "rules";
/// The node's end of its network.
const UP: &str = "up0";
const PORT: u16 = 9470;
/// An address of no interface: packets to this address get lost on the way.
const NOWHERE: &str = "02:00:00:00:00:ff";
/// The time between two bursts of SYNs.
const TICK: Duration = Duration::from_millis(10);
/// The sources of SYNs at a node.
const SOURCES: u32 = 256;
const PATIENCE: Duration = Duration::from_secs(30);

/// A node with its daemon.
pub struct FleetNode {
    pub daemon: Daemon,
    topology: Topology,
    number: usize,
}

/// The nodes, and the centre, where a stream may run.
pub struct Fleet {
    // The sender ends before its interfaces do.
    pub syns: Syns,
    pub nodes: Vec<FleetNode>,
    centre: Namespace,
}

impl Fleet {
    pub fn new() -> Result<Self> {
        let centre = Namespace::create(&format!("{}-centre", unique_prefix()))?;
        let nodes = (0..NODES)
            .map(|number| FleetNode::new(number, &centre))
            .collect::<Result<Vec<_>>>()?;
        let syns = Syns::start(&nodes)?;
        Ok(Self {
            syns,
            nodes,
            centre,
        })
    }

    /// Makes the network lose all packets between a node and the centre (`is_cut`), or no packets
    /// again.
    pub fn cut(&self, node: usize, is_cut: bool) -> Result<()> {
        let node = &self.nodes[node];
        let ends = [
            (&self.centre, node.there(), node.address(2)),
            (node.topology.monitor(), UP.to_owned(), node.address(1)),
        ];
        for (namespace, interface, peer) in ends {
            if is_cut {
                let entry = ["lladdr", NOWHERE, "nud", "permanent", "dev", &interface];
                namespace.run("ip", &[&["neigh", "replace", &peer], &entry[..]].concat())?;
            } else {
                namespace.run("ip", &["neigh", "del", &peer, "dev", &interface])?;
            }
        }
        Ok(())
    }

    /// The bytes that have passed between all nodes and the centre.
    pub fn bytes(&self) -> Result<u64> {
        let of = |node: &FleetNode| {
            let stats = interface_stats(&self.centre, &node.there())?;
            anyhow::Ok(stats.rx_bytes + stats.tx_bytes)
        };
        self.nodes.iter().map(of).sum()
    }

    /// Starts a stream at the centre that runs this rule. A drop kills the process.
    pub fn stream(&self, rule: &str, document: &Value) -> Result<FleetStream> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join(format!("{rule}.yaml"));
        std::fs::write(&path, document.to_string())?;
        let log = File::create(directory.path().join("log"))?;
        let mut command = Command::new(helper("twinprobe-stream")?);
        command
            .args(["--name", COLLECTOR, "--rules"])
            .arg(path)
            .arg("--from");
        command.args(
            self.nodes
                .iter()
                .map(|node| format!("http://{}:{PORT}", node.address(2))),
        );
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = self
            .centre
            .enter(|| command.spawn())?
            .context("twinprobe-stream runs")?;
        let stream = FleetStream { child, directory };
        wait_for("the stream and its nodes", PATIENCE, || {
            let log = stream.log();
            let (begun, feeds) = (
                log.contains("the rule begins"),
                log.matches("sending windows").count(),
            );
            ensure!(begun && feeds >= NODES, "{log}");
            Ok(())
        })?;
        Ok(stream)
    }
}

impl FleetNode {
    fn new(number: usize, centre: &Namespace) -> Result<Self> {
        let topology = Topology::new()?;
        let there = format!("node{number}");
        veth_pair(centre, &there, topology.monitor(), UP)?;
        let ends = [(centre, there.as_str(), 1), (topology.monitor(), UP, 2)];
        for (namespace, interface, host) in ends {
            namespace.run("ip", &["link", "set", interface, "arp", "on"])?;
            let address = format!("10.9.{number}.{host}/24");
            namespace.run("ip", &["addr", "add", &address, "dev", interface])?;
        }
        let options = [
            "--node-name",
            &there,
            "--listen",
            &format!("10.9.{number}.2:{PORT}"),
            "--insecure",
        ]
        .into_iter()
        .fold(DaemonOptions::default(), DaemonOptions::argument);
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        Ok(Self {
            daemon,
            topology,
            number,
        })
    }

    fn there(&self) -> String {
        format!("node{}", self.number)
    }

    fn address(&self, host: u8) -> String {
        format!("10.9.{}.{host}", self.number)
    }
}

/// A stream that runs a rule. A drop kills the stream.
pub struct FleetStream {
    child: Child,
    directory: TempDir,
}

impl FleetStream {
    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for FleetStream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A thread that sends SYNs to all nodes in turns. One thread for each node would wait for the
/// others' bursts.
pub struct Syns {
    /// The SYNs per second at each node.
    rates: Arc<[AtomicU64; NODES]>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Syns {
    fn start(nodes: &[FleetNode]) -> Result<Self> {
        let open = |node: &FleetNode| {
            node.topology
                .generator()
                .enter(|| PacketSocket::open("gen0"))?
        };
        let sockets = nodes.iter().map(open).collect::<Result<Vec<_>>>()?;
        let (rates, ends) = (
            Arc::<[AtomicU64; NODES]>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (asked, stop) = (Arc::clone(&rates), Arc::clone(&ends));
        let thread = thread::Builder::new()
            .name("syns".into())
            .spawn(move || send(&sockets, &asked, &stop))?;
        Ok(Self {
            rates,
            ends,
            thread: Some(thread),
        })
    }

    /// Sends this many SYNs per second to each node from now on.
    pub fn set(&self, rates: [u64; NODES]) {
        for (now, rate) in self.rates.iter().zip(rates) {
            now.store(rate, Ordering::Relaxed);
        }
    }
}

impl Drop for Syns {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            matches!(ended, Some(Ok(Ok(())))) || thread::panicking(),
            "SYNs were not sent: {ended:?}"
        );
    }
}

fn send(sockets: &[PacketSocket], rates: &[AtomicU64; NODES], ends: &AtomicBool) -> Result<()> {
    let spread = Spread {
        addresses: SOURCES,
        ports: 1,
        ..Spread::default()
    };
    let frame = Frame::default();
    let source = |number: u64| {
        let (address, port) = spread.source(number);
        frame.from_source(address, port)
    };
    let frames: Vec<Vec<u8>> = (0..u64::from(SOURCES)).map(source).collect();
    let (mut owed, mut next, mut last) = ([0.0; NODES], frames.iter().cycle(), Instant::now());
    while !ends.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        let passed = last.elapsed().as_secs_f64();
        last = Instant::now();
        for (node, socket) in sockets.iter().enumerate() {
            owed[node] += passed * rates[node].load(Ordering::Relaxed) as f64;
            while owed[node] >= 1.0 {
                socket
                    .send(next.next().context("a frame")?)
                    .context("send a SYN")?;
                owed[node] -= 1.0;
            }
        }
    }
    Ok(())
}
