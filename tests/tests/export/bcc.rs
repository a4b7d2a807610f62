//! Sources in the dialect of BCC: the content of their tables, and the errors about unsupported
//! features.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::event_scene::LINES;
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::sample::window;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Frame, FrameOptions, Protocol};
use twinprobe_tests::{Daemon, Topology};

const TABLES: &str = include_str!("../../bpf/bcc/tables.c");
const CURSOR: &str = include_str!("../../bpf/bcc/cursor.c");
const PACKETS: u64 = 300;
/// The bytes of each packet.
const BYTES: u64 = 100;

fn frame(protocol: Protocol) -> Result<Frame> {
    Frame::build(&FrameOptions {
        protocol,
        length: BYTES as usize,
        ..FrameOptions::default()
    })
}

/// Returns the nanoseconds since 1970.
fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

fn entries<'a>(document: &'a Value, metric: &str) -> &'a Vec<Value> {
    document["ingress"][metric]["entries"]
        .as_array()
        .unwrap_or_else(|| panic!("{metric}: {document}"))
}

fn value<'a>(document: &'a Value, metric: &str, key: u64) -> &'a Value {
    let entry = entries(document, metric)
        .iter()
        .find(|entry| entry["key"] == key);
    &entry.unwrap_or_else(|| panic!("{metric}[{key}]: {document}"))["value"]
}

#[test]
fn tables_of_every_type_are_filled_as_by_bcc() -> Result<()> {
    for hook in ["xdp", "tc"] {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut metrics: Vec<Value> = [
            "hash", "lru_hash", "array", "sizes", "trie", "queue", "stack",
        ]
        .map(|map| window(map, map))
        .to_vec();
        for map in ["percpu_hash", "lru_percpu_hash", "percpu_array"] {
            let mut metric = window(map, map);
            metric["agg"] = json!("sum");
            metrics.push(metric);
        }
        for map in ["events", "ring"] {
            metrics.push(json!({ "name": map, "map": map, "type": "struct sums" }));
        }
        let config = json!({ "interface": "mon0",
            "ingress": { "hook": hook, "source": TABLES, "metrics": metrics } });
        let status = daemon.put("/v1/probes/p", &config).expect(201).json();
        let lines: Vec<&Value> = status["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|warning| &warning["line"])
            .collect();
        assert_eq!(lines, [74], "call(): {}", status["warnings"]);
        assert_eq!(
            status["programs"]["ingress"],
            json!({ "entry": "handler", "twins": true })
        );
        let mut streams = Vec::new();
        for map in ["events", "ring"] {
            streams.push(Stream::open(
                &daemon,
                &format!("/v1/probes/p/events?metric={map}"),
                LINES,
            )?);
        }
        let began = wall_ns();
        send_frames(
            topology.generator(),
            "gen0",
            frame(Protocol::Tcp)?.bytes(),
            PACKETS,
        )?;

        let document = daemon.json("/v1/probes/p/metrics");
        let [flow, made]: [&Value; 2] = match &entries(&document, "hash")[..] {
            [a, b] if a["key"]["saddr"] == 7 => [b, a],
            [a, b] => [a, b],
            _ => panic!("{document}"),
        };
        assert_eq!(
            flow["value"],
            json!({ "packets": PACKETS, "bytes": PACKETS * BYTES })
        );
        let time = made["value"]["packets"].as_u64().unwrap();
        assert!((began..=wall_ns()).contains(&time), "{time} is not now");
        assert_eq!(value(&document, "lru_hash", 1), 3 * PACKETS);
        // The first packet deletes its own count here.
        assert_eq!(value(&document, "percpu_hash", 1), PACKETS - 1);
        assert_eq!(value(&document, "lru_percpu_hash", 1), PACKETS);
        assert_eq!(
            (value(&document, "array", 3), value(&document, "array", 1)),
            (&json!(PACKETS), &json!(1))
        );
        assert_eq!(value(&document, "percpu_array", 2), 2 * PACKETS);
        // Slot 7 counts sizes from 64 to 127 bytes.
        assert_eq!(value(&document, "sizes", 7), PACKETS);
        assert_eq!(entries(&document, "trie")[0]["value"], PACKETS);
        assert_eq!(
            entries(&document, "queue")[0]["value"],
            json!({ "packets": 1, "bytes": BYTES })
        );
        assert_eq!(entries(&document, "stack")[0]["value"], 1);
        for stream in &mut streams {
            assert_eq!(
                stream.json()?["event"],
                json!({ "packets": 1, "bytes": BYTES })
            );
        }
    }
    Ok(())
}

#[test]
fn a_cursor_reads_headers_in_host_order() -> Result<()> {
    // Ethernet, IPv4 with 4 bytes of options, UDP to port 4660 with 8 bytes, the probe's own
    // header.
    let mut packet = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0xab, 0xcd]].concat();
    packet.extend([
        8, 0, 0x46, 0, 0, 40, 0, 1, 0, 0, 63, 17, 0, 0, 198, 18, 0, 1, 198, 19, 0, 2, 1, 1, 1, 1,
    ]);
    packet.extend([
        0x11, 0x11, 0x12, 0x34, 0, 16, 0, 0, 0xbe, 0xef, 1, 2, 0, 0, 1, 2,
    ]);
    let key = json!({ "source": 0x0200_0000_abcd_u64, "from": 0xc612_0001_u64, "to": 0xc613_0002_u64, "port": 0x1234,
        "length": 16, "kind": 0xbeef, "hops": 63, "number": 0x102, "word": 0xc612_0001_u64, "offset": 14 + 24 + 8 });
    for hook in ["xdp", "tc"] {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let config = json!({ "interface": "mon0", "ingress": {
            "hook": hook, "dialect": "bcc", "source": CURSOR, "metrics": [window("datagrams", "datagrams")] } });
        daemon.put("/v1/probes/p", &config).expect(201);
        let send = |packet: &[u8], count| send_frames(topology.generator(), "gen0", packet, count);
        send(&packet, 3)?;
        // Shorter than the last header, longer, and of another protocol.
        send(&packet[..packet.len() - 1], 5)?;
        send(&[&packet[..], &[0; 40]].concat(), 4)?;
        send(frame(Protocol::Tcp)?.bytes(), 2)?;
        let document = daemon.json("/v1/probes/p/metrics");
        let [entry] = &entries(&document, "datagrams")[..] else {
            panic!("{document}")
        };
        assert_eq!(
            (&entry["key"], &entry["value"]),
            (&key, &json!(7)),
            "{hook}"
        );
    }
    Ok(())
}

#[test]
fn what_a_source_cannot_have_is_refused_by_name() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for (source, hook, line, words) in [
        (
            "BPF_HASH(a);\nint f(struct CTXTYPE *c) {\n  return a.none(1); }",
            "xdp",
            3,
            "no member named 'none'",
        ),
        (
            "\nBPF_STACK_TRACE(a, 8);\nint f(struct CTXTYPE *c) { return 0; }",
            "tc",
            2,
            "BPF_STACK_TRACE holds calls",
        ),
        (
            "int kprobe__a(struct pt_regs *c) { return 0; }",
            "tc",
            1,
            "kprobe__a traces a function",
        ),
        (
            "int f(struct __sk_buff *c) {\n u8 *cursor = 0;\n struct ip_t *ip = cursor_advance(cursor, sizeof(*ip));\n \
             return (u64)ip->src + (u64)ip; }",
            "tc",
            4,
            "ip is a copy of a header",
        ),
        (
            "BPF_HASH(a);\nBPF_F_TABLE(\"hash\", u32, u64, b, 4, 1 << 30);\nint f(struct CTXTYPE *c) { return 0; }",
            "xdp",
            2,
            "map b has the flags 0x40000000",
        ),
        (
            "\n\nBPF_QUEUE(q, u32, 0);\nint f(struct CTXTYPE *c) { return 0; }",
            "xdp",
            3,
            "map q has no number of entries",
        ),
        (
            "int f(struct __sk_buff *c) {\n c->mark = 1;\n return 0; }",
            "tc",
            2,
            "writes to its context",
        ),
    ] {
        let config = json!({ "interface": "mon0", "ingress": { "hook": hook, "source": source } });
        let problem = daemon.put("/v1/probes/p", &config).expect(422).json();
        let error = &problem["errors"][0];
        assert!(
            error["line"] == line && error["message"].as_str().unwrap().contains(words),
            "{problem}"
        );
    }
    daemon.get("/v1/probes/p").expect(404);
    Ok(())
}

const DYNMON: &str = r#"
BPF_ARRAY(PACKETS, uint64_t, 1);
static __always_inline int handle_rx(struct CTXTYPE *ctx, struct pkt_metadata *md) {
    unsigned int key = 0;
    uint64_t *packets = PACKETS.lookup(&key);
    if (!packets) return RX_DROP;
    *packets += 1;
    pcn_log(ctx, LOG_INFO, "packet of %d bytes", md->packet_len);
    return md->in_port ? RX_DROP : RX_OK;
}
"#;

#[test]
fn a_converted_configuration_runs() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let path = |code: &str| {
        json!({ "name": "Packets", "code": code, "metric-configs": [
            { "name": "packets_total", "map-name": "PACKETS", "extraction-options": { "swap-on-read": true, "empty-on-read": true },
              "open-metrics-metadata": { "help": "Packets seen", "type": "counter", "labels": [] } },
            { "name": "log", "map-name": "log_buffer" }
        ] })
    };
    let directory = tempfile::tempdir()?;
    let (theirs, ours) = (
        directory.path().join("theirs.json"),
        directory.path().join("ours.json"),
    );
    std::fs::write(
        &theirs,
        json!({ "ingress-path": path(DYNMON), "egress-path": {} }).to_string(),
    )?;
    let client = |arguments: &[&str]| -> Result<String> {
        let output = daemon.client(arguments)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{arguments:?}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let file = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let converted = client(&[
        "convert",
        "-f",
        &file(&theirs),
        "--interface",
        "mon0",
        "--name",
        "p",
    ])?;
    let mut config: Value = serde_json::from_str(&converted)?;
    config["ingress"]["metrics"][1]["type"] = json!("struct twinprobe_log");
    std::fs::write(&ours, config.to_string())?;
    client(&["apply", "-f", &file(&ours)])?;
    let mut stream = Stream::open(&daemon, "/v1/probes/p/events", LINES)?;
    send_frames(
        topology.generator(),
        "gen0",
        frame(Protocol::Udp)?.bytes(),
        PACKETS,
    )?;
    assert_eq!(
        value(&daemon.json("/v1/probes/p/metrics"), "packets_total", 0),
        PACKETS
    );
    let event = stream.json()?["event"].take();
    assert_eq!(
        event,
        json!({ "level": 20, "args": [BYTES, 0, 0, 0], "message": "packet of %d bytes" })
    );
    Ok(())
}
