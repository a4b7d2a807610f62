//! The additions of `flow-features` to the 15 features: octets of IP, ends of flows, pauses, and
//! both directions in one entry.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::probes;
use twinprobe_tests::probes::capture::of_direction;
use twinprobe_tests::replays::replay;
use twinprobe_tests::{Daemon, Topology};

use crate::expected::entries;

const PROBE: &str = "flow-features";
const TABLES: [&str; 2] = ["flows", "flows_ipv6"];

/// Returns the configuration of the library with these macros in place of its own.
fn configuration(hook: &str, interface: &str, defines: &Value) -> Result<Value> {
    let mut config = probes::configuration(PROBE, interface)?;
    let ingress = config["ingress"].as_object_mut().context("ingress")?;
    ingress.insert("hook".to_owned(), json!(hook));
    ingress.insert("defines".to_owned(), defines.clone());
    if hook == "tc" {
        ingress.remove("mode");
    }
    Ok(config)
}

fn replayed(daemon: &Daemon, hook: &str, defines: &Value) -> Result<Value> {
    let capture = fs::read(of_direction(PROBE, "ingress"))?;
    let answer = replay(
        daemon,
        &configuration(hook, "mon0", defines)?,
        &[("capture", &capture)],
    );
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    Ok(answer.json())
}

/// Returns the key of a flow's other direction.
fn back(key: &Value) -> Value {
    let mut back = key.clone();
    let swap = |back: &mut Value, one: &str, other: &str| {
        if key.get(one).is_some() {
            (back[one], back[other]) = (key[other].clone(), key[one].clone());
        }
    };
    swap(&mut back, "IPV4_SRC_ADDR", "IPV4_DST_ADDR");
    swap(&mut back, "IPV6_SRC_ADDR", "IPV6_DST_ADDR");
    swap(&mut back, "L4_SRC_PORT", "L4_DST_PORT");
    back
}

/// Returns the sum of the lengths of IP packets and their number in the capture, as tshark reads
/// them.
fn by_tshark(filter: &str, field: &str) -> Result<(u64, u64)> {
    let path = of_direction(PROBE, "ingress");
    let options = [
        "-o",
        "ip.defragment:false",
        "-o",
        "ipv6.defragment:false",
        "-T",
        "fields",
        "-e",
        field,
        "-Y",
        filter,
    ];
    let output = Command::new("tshark")
        .arg("-r")
        .arg(path)
        .args(options)
        .output()?;
    ensure!(
        output.status.success(),
        "tshark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (mut sum, mut packets) = (0, 0);
    for line in String::from_utf8(output.stdout)?.lines() {
        // The outer packet of a packet in a packet is first.
        let length = line.split(',').next().context("a length")?;
        sum += length.parse::<u64>().with_context(|| line.to_owned())?;
        packets += 1;
    }
    Ok((sum, packets))
}

#[test]
fn octets_are_those_of_ip() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for hook in ["xdp", "tc"] {
        let document = replayed(
            &daemon,
            hook,
            &json!({ "FEATURES": "15", "F_IN_OCTETS": "1" }),
        )?;
        let sum = |filter: &dyn Fn(&Value) -> bool, field: &str| -> Result<u64> {
            let found = entries(&document, "ingress", "flows")?
                .iter()
                .filter(|entry| filter(&entry["key"]));
            found
                .map(|entry| {
                    entry["value"][field]
                        .as_u64()
                        .with_context(|| entry.to_string())
                })
                .sum()
        };
        for (filter, port) in [
            ("udp.srcport == 5353", 5353),
            ("tcp.srcport == 80", 80),
            ("tcp.srcport == 40000", 40000),
        ] {
            let (octets, packets) =
                by_tshark(&format!("ip && {filter} && ip.frag_offset == 0"), "ip.len")?;
            let of_port = |key: &Value| key["L4_SRC_PORT"] == port;
            ensure!(
                packets > 0 && sum(&of_port, "IN_PKTS")? == packets,
                "{hook} {filter}: {packets} packets"
            );
            assert_eq!(sum(&of_port, "IN_OCTETS")?, octets, "{hook} {filter}");
        }
    }
    Ok(())
}

#[test]
fn both_directions_are_one_entry() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let one_way = json!({ "FEATURES": "15", "F_IN_OCTETS": "1" });
    let both_ways = json!({ "FEATURES": "15", "F_IN_OCTETS": "1", "BIFLOW": "1" });
    let [one_way, both_ways] = [
        replayed(&daemon, "xdp", &one_way)?,
        replayed(&daemon, "xdp", &both_ways)?,
    ];
    for table in TABLES {
        let flows = entries(&one_way, "ingress", table)?.iter();
        let mut flows: BTreeMap<String, &Value> = flows
            .map(|entry| (entry["key"].to_string(), &entry["value"]))
            .collect();
        let mut pairs = 0;
        for entry in entries(&both_ways, "ingress", table)? {
            let (key, found) = (&entry["key"], &entry["value"]);
            let there = flows
                .remove(&key.to_string())
                .with_context(|| format!("{key} is no flow"))?;
            let back = flows.remove(&back(key).to_string());
            pairs += u32::from(back.is_some());
            for field in ["IN_PKTS", "IN_BYTES", "IN_OCTETS", "TCP_FLAGS"] {
                assert_eq!(found[field], there[field], "{key} {field}");
                let of_back = back.map_or(json!(0), |back| back[field].clone());
                assert_eq!(found[format!("REVERSE_{field}")], of_back, "{key} {field}");
            }
        }
        ensure!(flows.is_empty(), "{table}: without an entry: {flows:?}");
        ensure!(table != "flows" || pairs > 0, "no conversation in {table}");
    }
    // Without the ports the key has no two directions.
    let bad = configuration("xdp", "mon0", &json!({ "FEATURES": "10", "BIFLOW": "1" }))?;
    let refused = daemon
        .put("/v1/probes/flow-features", &bad)
        .expect(422)
        .text()
        .to_owned();
    ensure!(refused.contains("BIFLOW needs"), "{refused}");
    Ok(())
}

/// Sends this many bytes over a connection and closes it.
fn converse(topology: &Topology, bytes: usize) -> Result<()> {
    let listener = topology
        .monitor()
        .enter(|| TcpListener::bind("10.77.0.1:0"))??;
    let address = listener.local_addr()?;
    let receiver = std::thread::spawn(move || -> Result<usize> {
        let mut received = Vec::new();
        Ok(listener.accept()?.0.read_to_end(&mut received)?)
    });
    let mut stream = topology
        .generator()
        .enter(|| TcpStream::connect(address))??;
    stream.write_all(&vec![7; bytes])?;
    drop(stream);
    ensure!(receiver.join().expect("the receiver does not panic")? == bytes);
    Ok(())
}

/// GRO merges several frames into one packet: the octets include the link layer's header of each
/// frame. A flow whose connection was closed has ended.
#[test]
fn octets_and_ends_of_a_real_connection() -> Result<()> {
    let topology = Topology::new()?;
    for (namespace, interface, address) in [
        (topology.monitor(), "mon0", "10.77.0.1/24"),
        (topology.generator(), "gen0", "10.77.0.2/24"),
    ] {
        namespace.run("ip", &["address", "add", address, "dev", interface])?;
        namespace.run("ip", &["link", "set", interface, "arp", "on"])?;
    }
    let daemon = Daemon::start(topology.monitor())?;
    let defines =
        json!({ "FEATURES": "15", "F_IN_OCTETS": "1", "F_END_REASON": "1", "F_IDLE_GAPS": "1" });
    daemon
        .put(
            "/v1/probes/flow-features",
            &configuration("tc", "mon0", &defines)?,
        )
        .expect(201);
    converse(&topology, 1 << 20)?;
    let document = daemon.json("/v1/probes/flow-features/metrics");
    let tcp = |entry: &&Value| entry["key"]["PROTOCOL"] == "TCP";
    let found = entries(&document, "ingress", "flows")?
        .iter()
        .find(tcp)
        .context("the connection")?;
    let number = |field: &str| {
        found["value"][field]
            .as_u64()
            .with_context(|| format!("{field} in {found}"))
    };
    // Each frame has 14 bytes of Ethernet, and none is short enough for padding.
    assert_eq!(
        number("IN_OCTETS")?,
        number("IN_BYTES")? - 14 * number("IN_PKTS")?,
        "{found}"
    );
    ensure!(number("IN_OCTETS")? > 1 << 20, "{found}");
    assert_eq!(
        (&found["value"]["END_REASON"], number("IDLE_GAPS")?),
        (&json!("END_OF_FLOW"), 0),
        "{found}"
    );
    let flags = found["value"]["TCP_FLAGS"].as_str().unwrap_or_default();
    ensure!(
        ["FIN", "SYN", "ACK"]
            .iter()
            .all(|flag| flags.split('|').any(|seen| seen == *flag)),
        "{found}"
    );
    let goes_on = |entry: &&Value| entry["key"]["PROTOCOL"] != "TCP";
    for entry in entries(&document, "ingress", "flows")?
        .iter()
        .filter(goes_on)
    {
        ensure!(entry["value"]["END_REASON"] == "ACTIVE_TIMEOUT", "{entry}");
    }
    Ok(())
}

/// Pauses depend only on the times of the packets.
#[test]
fn pauses_are_counted() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let gaps = |inactive: &str| -> Result<u64> {
        let defines = json!({ "FEATURES": "15", "F_IDLE_GAPS": "1", "INACTIVE": inactive });
        let document = replayed(&daemon, "xdp", &defines)?;
        let all = TABLES
            .iter()
            .map(|table| entries(&document, "ingress", table));
        let all = all.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        all.map(|entry| {
            entry["value"]["IDLE_GAPS"]
                .as_u64()
                .with_context(|| entry.to_string())
        })
        .sum()
    };
    let packets: u64 = {
        let document = replayed(&daemon, "xdp", &json!({ "FEATURES": "15" }))?;
        let all = TABLES
            .iter()
            .map(|table| entries(&document, "ingress", table));
        let all = all.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        all.map(|entry| {
            entry["value"]["IN_PKTS"]
                .as_u64()
                .unwrap_or_default()
                .saturating_sub(1)
        })
        .sum()
    };
    // No pause is longer than an hour; each packet of a flow, except the first, arrives more than 0
    // s after the previous one.
    assert_eq!((gaps("3600")?, gaps("0")?), (0, packets));
    Ok(())
}
