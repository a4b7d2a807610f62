//! Captures of many kinds: formats, compression, links without Ethernet, both directions in one
//! file.

use std::fs;
use std::io::Write as _;
use std::process::Command;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use twinprobe_tests::replays::{append, head, pcap, replay};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::replay::{START, frame, numbers, seen, witness};

/// Returns an IPv4 packet of 60 bytes.
fn packet(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[0] = 0x45;
    packet[3] = 60;
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet
}

const HERE: [u8; 4] = [192, 0, 2, 1];
const THERE: [u8; 4] = [198, 51, 100, 2];

/// A capture of a link whose packets begin with `before`, and whose last packet is not IP.
fn capture(link_type: u32, before: &[&[u8]]) -> Vec<u8> {
    let mut file = head(link_type);
    for (at, before) in before.iter().enumerate() {
        let bytes = [before, &packet(HERE, THERE)[..]].concat();
        append(&mut file, START + at as u64, bytes.len() as u32, &bytes);
    }
    append(&mut file, START + 9, 20, &[0; 20]);
    file
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The number of packets that Wireshark finds in a file.
fn counted_by_wireshark(file: &[u8]) -> Result<u64> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("capture");
    fs::write(&path, file)?;
    let output = Command::new("capinfos")
        .args(["-c", "-M", "-T", "-r"])
        .arg(&path)
        .output()?;
    ensure!(
        output.status.success(),
        "capinfos: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let count = text.trim().rsplit('\t').next().unwrap_or_default();
    Ok(count.parse()?)
}

fn sum(counts: &Value) -> u64 {
    counts
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, count)| count.as_u64())
        .sum()
}

#[test]
fn packets_of_other_links_get_a_header_or_are_counted() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let cooked = |kind: u8| [0, kind, 0, 1, 0, 6, 2, 0, 0, 0, 0, 7, 0, 0, 8, 0];
    let cooked_2 = |kind: u8| {
        [
            8, 0, 0, 0, 0, 0, 0, 3, 0, 1, kind, 6, 2, 0, 0, 0, 0, 7, 0, 0,
        ]
    };
    let snap = [
        &[8, 0, 0, 0][..],
        &[2; 18],
        &[0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
    ]
    .concat();
    let radiotap = [&[0, 0, 8, 0, 0, 0, 0, 0][..], &snap].concat();
    let null = 2_u32.to_le_bytes();
    let (to_us, other, sent) = (cooked(0), cooked(3), cooked(4));
    let sent_2 = cooked_2(4);
    // Link type, its name, the header before each packet, and the numbers of packets in each
    // direction.
    type Kind<'a> = (u32, &'a str, Vec<&'a [u8]>, [usize; 2]);
    let links: [Kind<'_>; 7] = [
        (113, "LINUX_SLL", vec![&to_us, &sent, &other], [2, 1]),
        (276, "LINUX_SLL2", vec![&sent_2, &sent_2], [0, 2]),
        (101, "RAW", vec![b"", b""], [2, 0]),
        (228, "IPV4", vec![b""], [1, 0]),
        (0, "NULL", vec![&null], [1, 0]),
        (127, "IEEE802_11_RADIOTAP", vec![&radiotap], [1, 0]),
        (105, "IEEE802_11", vec![&snap], [1, 0]),
    ];
    for hook in ["xdp", "tc"] {
        let config = witness(&[("ingress", hook), ("egress", "tc")]);
        for (link_type, name, before, expected) in &links {
            let file = capture(*link_type, before);
            let document = replay(&daemon, &config, &[("capture", &file)])
                .expect(200)
                .json();
            let replayed = &document["replayed"];
            let total = before.len();
            assert_eq!(replayed["packets"], total, "{name}: {replayed}");
            assert_eq!(replayed["framed"], json!({ *name: total }));
            assert_eq!(sum(&replayed["skipped"]), 1, "{name}: {replayed}");
            for (direction, count) in [("ingress", expected[0]), ("egress", expected[1])] {
                let seen = numbers(&seen(&document, direction), &["length"]).concat();
                assert_eq!(seen, vec![74; count], "{name} {direction}");
            }
            assert_eq!(counted_by_wireshark(&file)?, 1 + total as u64);
        }
    }
    let file = capture(147, &[b"", b""]);
    let mut config = witness(&[("ingress", "xdp")]);
    let document = replay(&daemon, &config, &[("capture", &file)])
        .expect(200)
        .json();
    assert_eq!(
        document["replayed"],
        json!({ "packets": 0, "skipped": { "LINKTYPE_147": 3 } })
    );
    config["format"] = json!("xml");
    let xml = replay(&daemon, &config, &[("capture", &capture(101, &[b""]))]).expect(200);
    let expected = "<replayed packets=\"1\"><framed name=\"RAW\" packets=\"1\"/><skipped name=\"not_ip\" packets=\"1\"/></replayed>";
    assert!(xml.text().contains(expected), "{}", xml.text());
    Ok(())
}

/// One file of both directions, and the addresses of the host that it was captured on.
#[test]
fn addresses_tell_the_directions_of_one_capture() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let ethernet = |payload: &[u8]| [&[2; 12][..], &[8, 0], payload].concat();
    let (sent, got) = (
        ethernet(&packet(HERE, THERE)),
        ethernet(&packet(THERE, HERE)),
    );
    let other = frame(0x88cc, 60, 1);
    let packets = [&sent, &got, &sent, &other].into_iter().enumerate();
    let file = pcap(packets.map(|(at, packet)| (START + at as u64, &packet[..])));
    let config = witness(&[("ingress", "xdp"), ("egress", "tc")]);
    let lengths = |parts: &[(&str, &[u8])]| {
        let document = replay(&daemon, &config, parts).expect(200).json();
        assert_eq!(document["replayed"], json!({ "packets": 4 }));
        ["ingress", "egress"].map(|direction| seen(&document, direction).len())
    };
    assert_eq!(lengths(&[("capture", &file)]), [4, 0]);
    assert_eq!(
        lengths(&[("local", b"192.0.2.1"), ("capture", &file)]),
        [2, 2]
    );
    assert_eq!(
        lengths(&[
            ("capture", &file),
            ("local", b"2001:db8::1"),
            ("local", b"198.51.100.2")
        ]),
        [3, 1]
    );
    let problem = replay(&daemon, &config, &[("capture", &file), ("local", b"eth0")])
        .expect(400)
        .json();
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|text| text.contains("\"eth0\" is not an address")),
        "{problem}"
    );
    Ok(())
}

/// The decompressed size counts, however little is sent.
#[test]
fn compressed_captures_are_read_up_to_the_limit() -> Result<()> {
    let topology = Topology::new()?;
    let limit = 4 << 20;
    let options = DaemonOptions::default().argument(format!("--max-capture-bytes={limit}"));
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let config = witness(&[("ingress", "tc")]);
    let one = frame(0x0800, 60, 1);
    let plain = pcap((0..100).map(|at| (START + at, &one[..])));
    let packed = gzip(&plain)?;
    assert!(packed.len() < plain.len() / 4);
    let document = |file: &[u8]| {
        replay(&daemon, &config, &[("capture", file)])
            .expect(200)
            .json()
    };
    assert_eq!(document(&packed), document(&plain));
    let cut = document(&packed[..packed.len() - 4]);
    assert_eq!(cut["replayed"], json!({ "packets": 100, "cut_off": 1 }));
    let bomb = gzip(&[head(1), vec![0; 32 << 20]].concat())?;
    assert!(bomb.len() < 1 << 20);
    let problem = replay(&daemon, &config, &[("capture", &bomb)])
        .expect(413)
        .json();
    let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
    assert_eq!(problem["errors"][0]["field"], "capture");
    assert!(
        message.contains(&limit.to_string()) && message.contains("--max-capture-bytes"),
        "{message}"
    );
    let mut damaged = packed.clone();
    let at = packed.len() - 6;
    damaged[at] ^= 1;
    let problem = replay(&daemon, &config, &[("capture", &damaged)])
        .expect(422)
        .json();
    let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("can't be decompressed"), "{message}");
    Ok(())
}
