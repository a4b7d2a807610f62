//! Answers that stay open, and work that continues after its client has left. Each has a place
//! until the work ends.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http::Address;
use twinprobe_tests::replays::{body, pcap};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::guarded::{Scene, Token};

const CHANGES: &str = "/v1/changes";
const SSE: &str = "text/event-stream";

#[test]
fn a_client_holds_a_few_streams_open_and_all_clients_some_more() -> Result<()> {
    let token = Token::new("desk", "viewer")?;
    let scene = Scene::new(
        &[&token],
        DaemonOptions::default().argument("--max-streams=3,4"),
    )?;
    let mut streams = (0..3)
        .map(|_| Stream::open(&scene.daemon, CHANGES, SSE))
        .collect::<Result<Vec<_>>>()?;
    let busy = scene.daemon.get(CHANGES).expect(429);
    assert!(busy.header("retry-after").is_some(), "{:?}", busy.headers);
    let words = ["uid:0 has 3 streams", "--max-streams allows 3"];
    words
        .iter()
        .for_each(|words| assert!(busy.text().contains(words), "{}", busy.text()));
    // Another client has places of its own, as long as there are some.
    let (name, value) = token.header();
    let mut other = scene
        .namespace()
        .enter(|| std::net::TcpStream::connect(scene.tcp))??;
    write!(
        other,
        "GET {CHANGES} HTTP/1.1\r\nhost: localhost\r\n{name}: {value}\r\n\r\n"
    )?;
    let mut head = [0; 12];
    std::io::Read::read_exact(&mut other, &mut head)?;
    assert_eq!(&head, b"HTTP/1.1 200");
    let full = scene
        .over_tcp("GET", CHANGES, &[(name, &value)], b"")
        .expect(429);
    assert!(full.text().contains("allows 4 in all"), "{}", full.text());
    // Other requests need no place among the streams, and a closed stream frees its place.
    scene.daemon.get("/v1/probes").expect(200);
    streams.pop();
    wait_for("a place", PATIENCE, || {
        streams.push(Stream::open(&scene.daemon, CHANGES, SSE)?);
        Ok(())
    })
}

/// A message is rendered once, however many clients listen: they share the bytes.
#[test]
fn many_streams_share_what_they_are_told() -> Result<()> {
    const STREAMS: usize = 400;
    let topology = Topology::new()?;
    let options = DaemonOptions::default().argument("--max-streams=1000");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    for n in 0..8 {
        daemon
            .put(
                &format!("/v1/probes/p{n}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
    }
    let before = daemon.rss_kib();
    let mut streams = (0..STREAMS)
        .map(|_| Stream::open(&daemon, CHANGES, SSE))
        .collect::<Result<Vec<_>>>()?;
    daemon.delete("/v1/probes/p3").expect(204);
    daemon
        .request("POST", "/v1/probes/p5/windows", &[], b"")
        .expect(201);
    for (n, stream) in streams.iter_mut().enumerate() {
        let (mut removed, mut window, mut listed) = (false, false, 0);
        while !(removed && window) {
            let line = stream.line()?.context("the stream has ended")?;
            listed += usize::from(line == "event: probe");
            removed |= line == "data: {\"probe\":\"p3\"}";
            window |= line.starts_with("data: {\"probe\":\"p5\",\"window\":{\"seq\":1,");
        }
        ensure!(listed >= 8, "stream {n}: {listed} probes");
    }
    let each = daemon.rss_kib().saturating_sub(before) / STREAMS as u64;
    ensure!(each < 100, "{each} KiB for each stream");
    Ok(())
}

/// Returns a probe that takes some hundredths of a second for each packet, and a capture of packets
/// for hours.
fn slow() -> (Value, Vec<u8>) {
    let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        static long step(__u32 index, void *context) { return 0; }\n\
        SEC(\"xdp\") int slow(struct xdp_md *ctx) { bpf_loop(1 << 22, step, 0, 0); return XDP_PASS; }\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let packet = [0_u8; 64];
    let capture = pcap((0..100_000).map(|n| (1_700_000_000_000_000_000 + n, &packet[..])));
    (json!({ "ingress": { "source": source } }), capture)
}

/// Returns the threads of the replays that run.
fn replays(daemon: &Daemon) -> Result<BTreeSet<OsString>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid()))?.flatten();
    let is_replay = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "replay")
    };
    Ok(tasks
        .filter(is_replay)
        .map(|task| task.file_name())
        .collect())
}

#[test]
fn replays_of_clients_that_hang_up_hold_their_places_and_end_soon() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start_with(
        topology.monitor(),
        &DaemonOptions::default().argument("--max-replays=1"),
    )?;
    let Address::Unix(socket) = daemon.address() else {
        bail!("a daemon under test listens on a socket")
    };
    let (config, capture) = slow();
    let (content_type, body) = body(&[
        ("config", config.to_string().as_bytes()),
        ("capture", &capture),
    ]);
    let send = || -> Result<UnixStream> {
        let mut stream = UnixStream::connect(&socket)?;
        let length = body.len();
        write!(
            stream,
            "POST /v1/replay HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n"
        )?;
        stream.write_all(&body)?;
        Ok(stream)
    };
    let (mut known, mut most) = (BTreeSet::new(), 0);
    for _ in 0..4 {
        let stream = send()?;
        wait_for("another replay", PATIENCE, || {
            let running = replays(&daemon)?;
            most = most.max(running.len());
            let before = known.len();
            known.extend(running);
            ensure!(known.len() > before, "none");
            Ok(())
        })?;
        drop(stream);
    }
    ensure!(most == 1, "{most} replays at once have the only place");
    wait_for("the end of the replay", Duration::from_secs(60), || {
        let running = replays(&daemon)?;
        ensure!(running.is_empty(), "{running:?}");
        Ok(())
    })
}
