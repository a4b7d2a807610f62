//! Requests and replies through real sockets: one window covers both directions.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{total, window};
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::windows::{Collector, Windows};
use twinprobe_tests::{Bystanders, Daemon, Topology, scaled};

const SOURCE: &str = include_str!("../../bpf/echo.bpf.c");
const SERVER: &str = "10.111.0.2:7";
/// The number of requests under way at once.
const OUTSTANDING: u64 = 16;

fn config() -> Value {
    let metric = |name| {
        let mut metric = window(name, "packets");
        metric["agg"] = json!("sum");
        metric
    };
    json!({
        "interface": "mon0",
        "ingress": { "hook": "xdp", "source": SOURCE, "defines": { "INGRESS": "1" }, "metrics": [metric("requests")] },
        "egress": { "source": SOURCE, "metrics": [metric("replies")] },
        "window": { "interval": "5ms", "retain": 100_000 }
    })
}

/// Gives mon0 and gen0 addresses and switches ARP on.
fn address(topology: &Topology) -> Result<()> {
    for (namespace, interface, address) in [
        (topology.generator(), "gen0", "10.111.0.1/24"),
        (topology.monitor(), "mon0", "10.111.0.2/24"),
    ] {
        namespace.run("ip", &["address", "add", address, "dev", interface])?;
        namespace.run("ip", &["link", "set", interface, "arp", "on"])?;
    }
    Ok(())
}

fn echo(server: &UdpSocket, ended: &AtomicBool) -> Result<()> {
    let mut buffer = [0; 64];
    while !ended.load(Ordering::Acquire) {
        match server.recv_from(&mut buffer) {
            Ok((length, client)) => {
                server.send_to(&buffer[..length], client)?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("receive a request"),
        }
    }
    Ok(())
}

/// Sends a request for each reply that arrives. Returns the number of replies, which is that of the
/// requests.
fn ask(client: &UdpSocket, duration: Duration) -> Result<u64> {
    let started = Instant::now();
    let (mut sent, mut replied) = (0_u64, 0_u64);
    let mut buffer = [0; 64];
    while started.elapsed() < duration || replied < sent {
        while sent - replied < OUTSTANDING && started.elapsed() < duration {
            client.send(&sent.to_le_bytes())?;
            sent += 1;
        }
        if replied < sent {
            client
                .recv(&mut buffer)
                .with_context(|| format!("{sent} requests, {replied} replies"))?;
            replied += 1;
        }
    }
    Ok(sent)
}

#[test]
fn both_directions_agree_but_for_what_is_under_way() -> Result<()> {
    let topology = Topology::new()?;
    address(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/echo", &config()).expect(201);
    let server = topology.monitor().enter(|| UdpSocket::bind(SERVER))??;
    server.set_read_timeout(Some(Duration::from_millis(100)))?;
    let client = topology.generator().enter(|| {
        let client = UdpSocket::bind("10.111.0.1:0")?;
        client.connect(SERVER)?;
        anyhow::Ok(client)
    })??;
    client.set_read_timeout(Some(PATIENCE))?;
    let ended = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let echoing = scope.spawn(|| echo(&server, &ended));
        let sent = ask(&client, Duration::from_secs(scaled(3, 60)));
        ended.store(true, Ordering::Release);
        echoing
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        sent
    })?;
    let windows = Windows::of(&daemon, "echo");
    let last = windows.close()["window"]["seq"].as_u64().context("seq")?;
    let mut collector = Collector::new(windows, None);
    let (mut requests, mut replies, mut apart) = (0, 0, 0);
    while collector.taken < last {
        collector.round(0.0, |document| {
            requests += total(document, "ingress", "requests");
            replies += total(document, "egress", "replies");
            let window = &document["window"];
            assert!(
                replies <= requests,
                "at the end of {window}, {replies} replies to {requests} requests"
            );
            let waiting = requests - replies;
            assert!(
                waiting <= OUTSTANDING,
                "at the end of {window}, {waiting} requests without a reply"
            );
            apart += u64::from(waiting > 0);
        })?;
    }
    println!("{sent} requests in {last} windows; {apart} ended in the middle of some");
    assert_eq!((requests, replies), (sent, sent));
    // Less traffic would show nothing. All requests but the last ones overlapped.
    ensure!(
        apart >= 10,
        "only {apart} windows ended while requests were under way"
    );
    bystanders.finish()
}
