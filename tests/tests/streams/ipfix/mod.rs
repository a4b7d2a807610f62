//! IPFIX: nfdump, goflow2, tshark and python3-ipfix agree with the documents, and each window
//! arrives, over all kills.

mod reading;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::certificates::Certificates;
use twinprobe_tests::named;
use twinprobe_tests::pidfd::{open_pidfd, send_signal};
use twinprobe_tests::replays::{append, head};
use twinprobe_tests::scaled;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::flows::{FlowNode, send_all};
use crate::scene::{Node, Stream, configuration, free_port};
use crate::tables::layouts::{close, counting};
use reading::{
    Running, SeenFlow, by_goflow2, by_nfdump, by_python, collected, collector, flows_of,
    millisecond, of_documents,
};

/// Packets of IPv4 without a link layer, in captures.
const RAW: u32 = 228;
const MTU: usize = 1500;

/// Runs a stream to its end, with a configuration for a receiver. Returns the datagrams that it
/// sends.
fn datagrams(configuration: impl FnOnce(&Value) -> Result<PathBuf>) -> Result<Vec<Vec<u8>>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let to = json!({ "ipfix": { "collector": socket.local_addr()?.to_string(), "transport": "udp", "mtu": MTU } });
    let config = configuration(&to)?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| -> Result<Vec<Vec<u8>>> {
            let (mut found, mut buffer) = (Vec::new(), vec![0; 65_536]);
            loop {
                let is_last = ended.load(Ordering::Acquire);
                match socket.recv(&mut buffer) {
                    Ok(length) => found.push(buffer[..length].to_vec()),
                    Err(_) if is_last => return Ok(found),
                    Err(_) => {}
                }
            }
        });
        let sent = send_all(&config);
        ended.store(true, Ordering::Release);
        let found = reader.join().expect("the reader")?;
        sent.map(|_| found)
    })
}

/// Writes datagrams as a capture for tshark.
fn capture(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = head(RAW);
    for (time, message) in messages.iter().enumerate() {
        let length = (28 + message.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        for word in [40_000, 4739, length - 20, 0] {
            packet.extend(u16::to_be_bytes(word));
        }
        packet.extend(message);
        append(
            &mut file,
            1_800_000_000_000_000_000 + time as u64 * 1_000,
            packet.len() as u32,
            &packet,
        );
    }
    file
}

/// Sends the messages to nfcapd. Returns the flows that nfdump then reads.
fn through_nfcapd(messages: &[Vec<u8>], directory: &Path) -> Result<Vec<SeenFlow>> {
    fs::create_dir(directory)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let port = free_port()?;
    let mut command = Command::new("nfcapd");
    command
        .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-w"])
        .arg(directory);
    let mut nfcapd = Running(command.spawn().context("nfcapd runs")?);
    let queue = || -> Result<Option<u64>> {
        let table = fs::read_to_string("/proc/net/udp")?;
        let local = format!(":{port:04X}");
        let line = table.lines().find(|line| {
            line.split_whitespace()
                .nth(1)
                .is_some_and(|part| part.ends_with(&local))
        });
        let queued = line
            .and_then(|line| line.split_whitespace().nth(4))
            .and_then(|queues| queues.split(':').nth(1));
        queued
            .map(|queued| u64::from_str_radix(queued, 16).context("a length"))
            .transpose()
    };
    wait_for("nfcapd", PATIENCE, || {
        queue()?.context("it does not listen")
    })?;
    for message in messages {
        socket.send_to(message, ("127.0.0.1", port))?;
        wait_for("nfcapd's queue", PATIENCE, || {
            ensure!(queue()? == Some(0), "it has not read all");
            Ok(())
        })?;
    }
    send_signal(&open_pidfd(nfcapd.0.id())?, libc::SIGTERM);
    nfcapd.0.wait()?;
    by_nfdump(directory)
}

/// Returns each value of a field, over all records that tshark finds.
fn by_tshark(capture: &Path, field: &str) -> Result<Vec<String>> {
    let mut command = Command::new("tshark");
    command
        .args([
            "-d",
            "udp.port==4739,cflow",
            "-T",
            "fields",
            "-E",
            "occurrence=a",
            "-e",
            field,
            "-r",
        ])
        .arg(capture);
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let mut found: Vec<String> = text
        .split(['\n', ','])
        .map(str::to_owned)
        .filter(|value| !value.is_empty())
        .collect();
    found.sort();
    Ok(found)
}

/// Everybody reads the same flows from datagrams: the documents, nfdump, goflow2, python3-ipfix and
/// tshark.
#[test]
fn collectors_agree_with_the_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let node = FlowNode::new()?;
    let documents = [node.window()?, node.window()?];
    let flows = of_documents(&documents)?;
    let messages = datagrams(|to| node.configuration(directory.path(), to))?;
    ensure!(
        messages.len() > 3 && messages.iter().all(|message| message.len() <= MTU - 28),
        "{}",
        messages.len()
    );
    ensure!(node.unacknowledged() == 0);
    let seen = through_nfcapd(&messages, &directory.path().join("nfcapd"))?;
    assert_eq!(seen, flows, "nfdump");
    let file = directory.path().join("messages.ipfix");
    fs::write(&file, messages.concat())?;
    assert_eq!(by_goflow2(&file)?, flows, "goflow2");
    let records = by_python(&[file])?;
    assert_eq!(flows_of(&records)?, flows, "python3-ipfix");
    the_rest_agrees(&records, &documents)?;
    let file = directory.path().join("messages.pcap");
    fs::write(&file, capture(&messages))?;
    for wrong in [
        "_ws.malformed",
        "cflow.unexpected_sequence_number",
        "cflow.no_template_found",
    ] {
        ensure!(by_tshark(&file, wrong)?.is_empty(), "{wrong}");
    }
    let numbers = |field: fn(&SeenFlow) -> u64| {
        let mut found: Vec<String> = flows.iter().map(|flow| field(flow).to_string()).collect();
        found.sort();
        found
    };
    assert_eq!(
        by_tshark(&file, "cflow.packets")?,
        numbers(|flow| flow.packets)
    );
    assert_eq!(
        by_tshark(&file, "cflow.octets")?,
        numbers(|flow| flow.octets)
    );
    assert_eq!(
        by_tshark(&file, "cflow.srcport")?,
        numbers(|flow| flow.ports.0)
    );
    assert_eq!(
        by_tshark(&file, "cflow.dstport")?,
        numbers(|flow| flow.ports.1)
    );
    let names = by_tshark(&file, "cflow.information_element_name")?;
    ensure!(
        names.contains(&"windowSequence".to_owned())
            && names.contains(&"unaccounted.not_ipv4".to_owned()),
        "{names:?}"
    );
    Ok(())
}

/// A tag of the source gives a field its element. A name without an element is refused, with the
/// field and similar names.
#[test]
fn a_tag_names_the_element_of_a_field() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let node = Node::new("node-0")?;
    let tagged = |element: &str| {
        let tag = format!("__attribute__((btf_decl_tag(\"ie(\\\"{element}\\\")\")))");
        counting(&format!("__u64 packets; __u32 largest {tag};"))
    };
    let refused = node
        .daemon()
        .put("/v1/probes/q", &tagged("tcpWindowSise"))
        .expect(422);
    let words = [
        "field largest of the value of map counts",
        "tcpWindowSise",
        "the nearest are tcpWindowSize",
    ];
    ensure!(
        words.iter().all(|words| refused.text().contains(words)),
        "{}",
        refused.text()
    );
    node.daemon()
        .put("/v1/probes/q", &tagged("tcpWindowSize"))
        .expect(201);
    Generator::new(
        node.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?
    .send(10)?;
    close(&node, "q");
    let messages =
        datagrams(|to| configuration(directory.path(), &[&node], &json!([to]), &json!({})))?;
    let file = directory.path().join("messages.ipfix");
    fs::write(&file, messages.concat())?;
    let records = by_python(&[file])?;
    let record = records
        .iter()
        .find(|record| record.get("tcpWindowSize").is_some())
        .context("a record")?;
    ensure!(record["packetDeltaCount"] == json!(10), "{record}");
    Ok(())
}

/// Elements of ours, and those of IANA that nfdump does not show, agree with the documents.
fn the_rest_agrees(records: &[Value], documents: &[Value]) -> Result<()> {
    for document in documents {
        let seq = &document["window"]["seq"];
        let of_window: Vec<&Value> = records
            .iter()
            .filter(|record| record["windowSequence"] == *seq)
            .collect();
        let window = of_window
            .iter()
            .find(|record| record.get("windowRecords").is_some())
            .context("a window's record")?;
        ensure!(
            window["windowRecords"] == json!(of_window.len() - 1),
            "{window}"
        );
        for (field, name) in [
            ("node", "node"),
            ("probe", "probe"),
            ("instance", "instance"),
        ] {
            ensure!(
                of_window
                    .iter()
                    .all(|record| record[field] == document[name]),
                "{field} of {window}"
            );
        }
        let end = document["window"]["end"].as_str().context("an end")?;
        let shown = window["windowEnd"].as_str().context("an end")?;
        ensure!(millisecond(shown) == millisecond(end), "{shown} {end}");
        let sum = |records: &mut dyn Iterator<Item = &Value>| {
            records.filter_map(named::number).sum::<u64>()
        };
        let entries = |table: &str| {
            document["ingress"][table]["entries"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let both: Vec<Value> = [entries("flows"), entries("flows_ipv6")].concat();
        let frames = sum(&mut both.iter().map(|entry| &entry["value"]["IN_BYTES"]));
        ensure!(
            sum(&mut of_window
                .iter()
                .map(|record| &record["layer2OctetDeltaCount"]))
                == frames,
            "{frames}"
        );
        let ended = sum(&mut both.iter().map(|entry| &entry["value"]["END_REASON"]));
        ensure!(
            sum(&mut of_window.iter().map(|record| &record["flowEndReason"])) == ended,
            "{ended}"
        );
        for member in ["table_full", "not_ipv4"] {
            let counted = &entries("unaccounted")[0]["value"][member];
            let name = format!("unaccounted.{member}");
            let seen: Vec<&Value> = of_window
                .iter()
                .filter_map(|record| record.get(&name))
                .collect();
            ensure!(seen == [counted], "{name}: {seen:?} {counted}");
        }
    }
    Ok(())
}

/// Returns the packets that records of distinct windows have, by window.
fn packets_by_window(records: &[Value]) -> BTreeMap<(String, u64), u64> {
    let mut distinct = BTreeMap::new();
    for record in records
        .iter()
        .filter(|record| record.get("packetDeltaCount").is_some())
    {
        let seq = record["windowSequence"].as_u64().unwrap_or_default();
        let instance = record["instance"].as_str().unwrap_or_default().to_owned();
        // A repeated window has the same records again.
        distinct.insert(
            (instance, seq, record.to_string()),
            record["packetDeltaCount"].as_u64().unwrap_or_default(),
        );
    }
    let mut found = BTreeMap::new();
    for ((instance, seq, _), packets) in distinct {
        *found.entry((instance, seq)).or_default() += packets;
    }
    found
}

fn packets_of(documents: &[Value]) -> Result<BTreeMap<(String, u64), u64>> {
    let mut found = BTreeMap::new();
    for document in documents {
        let seq = document["window"]["seq"].as_u64().context("seq")?;
        let instance = document["instance"]
            .as_str()
            .context("instance")?
            .to_owned();
        let packets = of_documents(std::slice::from_ref(document))?
            .iter()
            .map(|flow| flow.packets)
            .sum();
        found.insert((instance, seq), packets);
    }
    Ok(found)
}

/// Stream and collector are killed at any moment. The collector has each window at least once, and
/// all that was sent.
#[test]
fn each_window_arrives_over_tcp_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let kept = directory.path().join("kept");
    let node = FlowNode::new()?;
    let port = free_port()?;
    let config = node.configuration(
        directory.path(),
        &json!({ "ipfix": { "collector": format!("127.0.0.1:{port}") } }),
    )?;
    let mut collecting = collector(port, &kept, &[])?;
    let mut stream = Stream::start(&config)?;
    let mut documents = Vec::new();
    for kill in 0..scaled(6, 100) {
        documents.push(node.window()?);
        // Each kill comes at another moment: while the batch waits, on its way, or before its
        // acknowledgement.
        thread::sleep(Duration::from_millis(271 * kill % 1_300));
        if kill % 2 == 0 {
            stream.kill()?;
            stream = Stream::start(&config)?;
        } else {
            collecting.kill()?;
            collecting = collector(port, &kept, &[])?;
        }
        wait_for("the collector", PATIENCE, || {
            ensure!(
                node.unacknowledged() == 0,
                "{} windows are left",
                node.unacknowledged()
            );
            Ok(())
        })?;
    }
    let records = by_python(&collected(&kept)?)?;
    assert_eq!(packets_by_window(&records), packets_of(&documents)?);
    Ok(())
}

/// A server of another protocol also closes the connection, but it answers before.
#[test]
fn a_server_of_another_protocol_confirms_nothing() -> Result<()> {
    let (directory, node, listener) = (
        tempfile::tempdir()?,
        FlowNode::new()?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    node.window()?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || -> Result<()> {
        for connection in listener.incoming() {
            let mut connection = connection?;
            connection.read_to_end(&mut Vec::new())?;
            connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
        }
        Ok(())
    });
    let sent = send_all(&node.configuration(
        directory.path(),
        &json!({ "ipfix": { "collector": address } }),
    )?);
    ensure!(
        sent.as_ref()
            .is_err_and(|error| error.to_string().contains("is this the right port?")),
        "{sent:?}"
    );
    ensure!(node.unacknowledged() == 1, "nothing is acknowledged");
    Ok(())
}

/// TLS: a collector whose certificate has no signature of an authority gets nothing. A collector
/// that refuses the stream also gets nothing.
#[test]
fn tls_needs_authorities_on_both_sides() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = Certificates::new(directory.path())?;
    let (node, port, kept) = (
        FlowNode::new()?,
        free_port()?,
        directory.path().join("kept"),
    );
    let documents = [node.window()?];
    let _collector = collector(
        port,
        &kept,
        &["server", "server-key", "authority"].map(|name| files.path(name)),
    )?;
    wait_for("the collector", PATIENCE, || {
        Ok(TcpStream::connect(("127.0.0.1", port)).map(drop)?)
    })?;
    let to = |ca: &str| json!({ "ipfix": { "collector": format!("127.0.0.1:{port}"), "transport": "tls", "ca": files.path(ca) } });
    let mut shown = to("authority");
    shown["ipfix"]["cert"] = json!(files.path("client"));
    shown["ipfix"]["key"] = json!(files.path("client-key"));
    // TLS 1.3: a client without a certificate learns of its refusal only when the collector ends
    // the connection.
    for (refused, words) in [
        (to("other"), "certificate"),
        (to("authority"), "failed attempts"),
    ] {
        let sent = send_all(&node.configuration(directory.path(), &refused)?);
        ensure!(
            sent.as_ref()
                .is_err_and(|error| error.to_string().contains(words)),
            "{sent:?}"
        );
        ensure!(node.unacknowledged() == 1, "nothing is acknowledged");
    }
    send_all(&node.configuration(directory.path(), &shown)?)?;
    ensure!(node.unacknowledged() == 0);
    let files: Vec<_> = collected(&kept)?
        .into_iter()
        .filter(|file| fs::metadata(file).is_ok_and(|file| file.len() > 0))
        .collect();
    let records = by_python(&files)?;
    assert_eq!(flows_of(&records)?, of_documents(&documents)?);
    Ok(())
}
