//! Three nodes, one stream, one broker: everything is killed at random moments, and the broker falls silent.

use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::scaled;
use twinprobe_tests::servers::nats::NatsServer;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::nats::{MAKE, messages};
use crate::push::server::send_all;
use crate::scene::{COLLECTOR, Node, Stream, configuration, python};

const NODES: [&str; 3] = ["node-0", "gw/1.example", "node-2"];

/// Numbers that look random, from a seed that the test prints.
struct Moments(u64);

impl Moments {
    fn new() -> Result<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        println!("seed {}", now.as_nanos());
        Ok(Self(now.as_nanos() as u64 | 1))
    }

    fn below(&mut self, end: u64) -> u64 {
        // The generator xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    /// Waits for at most the length of a window, so that a kill finds something half written, or a batch before its
    /// acknowledgement.
    fn pass(&mut self) {
        thread::sleep(Duration::from_millis(self.below(200)));
    }
}

/// Waits until the stream has acknowledged a window of a node after `before`. Returns the last one.
fn acknowledged(node: &Node, before: u64) -> Result<u64> {
    wait_for("an acknowledgement", PATIENCE, || {
        let list = node.daemon().json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
        let after = list["after"].as_u64().unwrap_or_default();
        ensure!(after > before, "{list}");
        Ok(after)
    })
}

/// Kills streams, daemons and the broker, and silences the broker, in turn, at random moments.
fn chaos(nodes: &mut [Node], server: &mut NatsServer, config: &Path) -> Result<()> {
    let (mut moments, mut before) = (Moments::new()?, [0; NODES.len()]);
    let mut running = Stream::start(config)?;
    for kill in 0..scaled(8, 400) {
        let at = moments.below(NODES.len() as u64) as usize;
        before[at] = acknowledged(&nodes[at], before[at])?;
        moments.pass();
        match kill % 4 {
            0 => {
                running.kill()?;
                running = Stream::start(config)?;
            }
            1 => {
                server.kill()?;
                server.start()?;
            }
            2 => nodes[at].kill_daemon()?,
            _ => {
                // Behaves like a cut network: connections stay open, and nothing arrives.
                server.signal(libc::SIGSTOP)?;
                moments.pass();
                server.signal(libc::SIGCONT)?;
            }
        }
    }
    running.kill()
}

/// The broker has each window of each node once and in order, and the packets add up to the sent ones.
#[test]
fn three_nodes_are_exact_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut server = NatsServer::new(&directory.path().join("nats"))?;
    python(MAKE, &[&server.url()])?;
    let (mut nodes, mut traffic) = (Vec::new(), Vec::new());
    for name in NODES {
        let node = Node::new(name)?;
        node.deploy(&json!({ "interval": "200ms", "retain": 10_000, "collectors": [COLLECTOR] }));
        traffic.push(node.traffic()?);
        nodes.push(node);
    }
    let to = json!([{ "nats": { "servers": [server.url()], "stream": "WINDOWS", "create": false } }]);
    let sources: Vec<&Node> = nodes.iter().collect();
    let config = configuration(directory.path(), &sources, &to, &json!({}))?;
    chaos(&mut nodes, &mut server, &config)?;
    let sent: Vec<u64> = traffic.into_iter().map(|running| running.stop()).collect::<Result<_>>()?;
    for node in &nodes {
        node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
    }
    send_all(&config)?;
    let messages = messages(&server)?;
    for (name, sent) in ["node-0", "gw%2F1%2Eexample", "node-2"].into_iter().zip(sent) {
        let subject = format!("twinprobe.{name}.p");
        let own: Vec<_> = messages.iter().filter(|message| message[0] == subject).collect();
        let packets: u64 = own.iter().filter_map(|message| message[3].as_u64()).sum();
        ensure!(packets == sent, "{name}: {sent} were sent, {packets} are in {} messages", own.len());
        let wrong = own.iter().enumerate().find(|(at, message)| message[2] != json!(at + 1));
        ensure!(wrong.is_none(), "{name}: {wrong:?}");
        own.last().context("a window")?;
    }
    Ok(())
}
