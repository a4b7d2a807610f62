//! Windows over captured packets.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::replays::{append, head, pcap, replay};
use twinprobe_tests::sample::with_frags;
use twinprobe_tests::unit::as_under_the_unit;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, KernelObjects, Topology, replays};

const SOURCE: &str = include_str!("../../bpf/replay.bpf.c");
const HOOKS: [(&str, &str); 3] = [("ingress", "xdp"), ("ingress", "tc"), ("egress", "tc")];
/// The time of the first packet: some nanoseconds after 2023-11-14 22:13:20 UTC.
pub const START: u64 = 1_700_000_000_000_000_007;

/// A probe that writes down each packet.
pub fn witness(directions: &[(&str, &str)]) -> Value {
    let mut config = json!({ "name": "witness" });
    for (direction, hook) in directions {
        let defines = if *hook == "tc" {
            json!({ "TC": "1" })
        } else {
            json!({})
        };
        let metrics = [json!({ "name": "packets", "map": "packets", "help": "Packets" })];
        config[direction] =
            json!({ "hook": hook, "source": SOURCE, "defines": defines, "metrics": metrics });
    }
    config
}

/// A frame to a host, of this length and type, all of whose other bytes are `filling`.
pub fn frame(ether_type: u16, length: usize, filling: u8) -> Vec<u8> {
    let mut frame = vec![filling; length];
    frame[0] &= !1;
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    frame
}

/// The values of the packets that a direction of the probe has written down.
pub fn seen<'a>(document: &'a Value, direction: &str) -> Vec<&'a Value> {
    let entries = document[direction]["packets"]["entries"]
        .as_array()
        .expect("entries");
    entries.iter().map(|entry| &entry["value"]).collect()
}

pub fn numbers(packets: &[&Value], fields: &[&str]) -> Vec<Vec<u64>> {
    let number = |packet: &Value, field: &str| packet[field].as_u64().expect("a number");
    packets
        .iter()
        .map(|packet| fields.iter().map(|field| number(packet, field)).collect())
        .collect()
}

#[test]
fn programs_see_what_was_captured_when_it_was() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    // Lengths around the limits of runs, and of single buffers at XDP.
    let lengths = [
        14, 15, 60, 61, 64, 65, 1514, 60, 3072, 3073, 60, 3520, 3521, 9000, 60, 16000, 60,
    ];
    let frames: Vec<Vec<u8>> = (0..200)
        .map(|i| frame(0x0800, lengths[i % lengths.len()], 1 + i as u8))
        .collect();
    let time = |index: usize| START + 1_000_000_001 * index as u64;
    let capture = pcap(
        frames
            .iter()
            .enumerate()
            .map(|(i, frame)| (time(i), &frame[..])),
    );
    let of_daemon = || KernelObjects::of_process(daemon.pid());
    let (all, held) = (KernelObjects::now()?, of_daemon()?);
    let pinned = KernelObjects::pinned(daemon.directories().bpffs())?;
    let configs = HOOKS.map(|at| (at, witness(&[at]))).into_iter();
    for ((direction, hook), config) in configs.chain([(HOOKS[0], with_frags(witness(&HOOKS[..1])))])
    {
        let document = replay(&daemon, &config, &[("capture", &capture)])
            .expect(200)
            .json();
        assert_eq!(document["replayed"], json!({ "packets": 200 }), "{hook}");
        assert_eq!(
            (&document["probe"], &document["interfaces"]),
            (&json!("witness"), &json!([]))
        );
        assert_eq!(document["instance"], "replay");
        let window = &document["window"];
        let (start, end) = (
            "2023-11-14T22:13:20.000000007Z",
            "2023-11-14T22:16:39.000000206Z",
        );
        assert_eq!(
            (&window["start"], &window["end"]),
            (&json!(start), &json!(end))
        );
        assert_eq!(window["duration_ns"], json!(time(199) - time(0)));
        let expected: Vec<Vec<u64>> = frames
            .iter()
            .enumerate()
            .map(|(i, frame)| {
                vec![
                    time(i),
                    frame.len() as u64,
                    0x0800,
                    frame[frame.len() - 1].into(),
                ]
            })
            .collect();
        let got = numbers(
            &seen(&document, direction),
            &["at", "length", "ether_type", "last"],
        );
        // In the shortest frame, the last byte belongs to the type.
        assert_eq!(got, expected, "{direction} {hook}");
    }
    assert_eq!(daemon.json("/v1/probes")["probes"], json!([]));
    // The daemon holds the same objects as before, and no other process holds a new object.
    wait_for("something is left", PATIENCE, || {
        ensure!(
            of_daemon()? == held && KernelObjects::pinned(daemon.directories().bpffs())? == pinned,
            "objects"
        );
        Ok(())
    })?;
    all.wait_for_only(daemon.directories().bpffs(), daemon.pid())
}

/// Without the right to make an interface, the daemon leaves out and counts packets that a program
/// for packets of a single buffer would see cut. Other programs see all packets, and this program
/// sees shorter ones.
#[test]
fn packets_that_need_an_interface_are_counted_where_there_can_be_none() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let options = as_under_the_unit(temporary.path(), &[])?;
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let lengths = [60, 3072, 3073, 60, 9000, 60];
    let frames = lengths.map(|length| frame(0x0800, length, 1));
    let capture = pcap(
        frames
            .iter()
            .enumerate()
            .map(|(i, frame)| (START + i as u64, &frame[..])),
    );
    let plain = witness(&[("ingress", "xdp")]);
    for (config, expected, seen_lengths) in [
        (
            &plain,
            json!({ "packets": 4, "no_interface": 2 }),
            &[60, 3072, 60, 60][..],
        ),
        (
            &with_frags(plain.clone()),
            json!({ "packets": 6 }),
            &[60, 3072, 3073, 60, 9000, 60],
        ),
    ] {
        let document = replay(&daemon, config, &[("capture", &capture)])
            .expect(200)
            .json();
        assert_eq!(document["replayed"], expected);
        assert_eq!(
            numbers(&seen(&document, "ingress"), &["length"]).concat(),
            seen_lengths
        );
    }
    Ok(())
}

#[test]
fn what_the_kernel_keeps_beside_a_packet_is_kept() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let tagged = |outer: u16, tag: u16, inner: u16| {
        let mut frame = frame(outer, 64, 5);
        frame[14..16].copy_from_slice(&tag.to_be_bytes());
        frame[16..18].copy_from_slice(&inner.to_be_bytes());
        frame
    };
    let mut broadcast = frame(0x0806, 60, 6);
    broadcast[..6].fill(0xff);
    let mut multicast = frame(0x86dd, 60, 7);
    multicast[0] = 0x33;
    // Frames and their properties as probes see them: length, protocol, tag, type for the ingress,
    // EtherType.
    let cases: [(Vec<u8>, [u64; 5]); 9] = [
        (frame(0x0800, 60, 1), [60, 0x0800, 0, 0, 0x0800]),
        (
            tagged(0x8100, 0x2007, 0x0800),
            [60, 0x0800, 0x2007, 0, 0x0800],
        ),
        (tagged(0x8100, 0x0001, 0x86dd), [60, 0x86dd, 1, 0, 0x86dd]),
        (tagged(0x88a8, 0x0002, 0x8100), [60, 0x8100, 2, 0, 0x8100]),
        (frame(0x86dd, 61, 2), [61, 0x86dd, 0, 0, 0x86dd]),
        (broadcast, [60, 0x0806, 0, 1, 0x0806]),
        (multicast, [60, 0x86dd, 0, 2, 0x86dd]),
        // A length in place of a type: ETH_P_802_2.
        (frame(0x0026, 60, 3), [60, 0x0004, 0, 0, 0x0026]),
        (frame(0x0800, 100, 4), [100, 0x0800, 0, 0, 0x0800]),
    ];
    let capture = pcap(cases.iter().map(|(frame, _)| (START, &frame[..])));
    for direction in ["ingress", "egress"] {
        let config = witness(&[(direction, "tc")]);
        let document = replay(&daemon, &config, &[("capture", &capture)])
            .expect(200)
            .json();
        let got = numbers(
            &seen(&document, direction),
            &["length", "protocol", "tag", "type", "ether_type"],
        );
        let expected = cases.iter().map(|(_, expected)| {
            let mut expected = expected.to_vec();
            expected[3] *= u64::from(direction == "ingress");
            expected
        });
        assert_eq!(got, expected.collect::<Vec<_>>(), "{direction}");
    }
    Ok(())
}

#[test]
fn captures_are_merged_by_time() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let one = frame(0x0800, 60, 1);
    let file = |times: &[u64]| pcap(times.iter().map(|time| (START + time, &one[..])));
    let (received, sent) = (file(&[10, 30, 20, 50]), file(&[5, 40, 45]));
    let both = witness(&[("ingress", "xdp"), ("egress", "tc")]);
    let captures = [("capture", &received[..]), ("egress-capture", &sent)];
    let document = replay(&daemon, &both, &captures).expect(200).json();
    assert_eq!(
        document["replayed"],
        json!({ "packets": 7, "out_of_order": 1 })
    );
    let times = |document: &Value, direction: &str| {
        let at = numbers(&seen(document, direction), &["at"]);
        at.into_iter().map(|at| at[0] - START).collect::<Vec<_>>()
    };
    // The clock never runs backwards.
    assert_eq!(times(&document, "ingress"), [10, 30, 30, 50]);
    assert_eq!(times(&document, "egress"), [5, 40, 45]);
    assert_eq!(document["window"]["duration_ns"], 45);
    // A configuration with one direction: `capture` is for it, and packets of the other one are
    // counted.
    let egress = witness(&[("egress", "tc")]);
    let document = replay(&daemon, &egress, &captures[..1]).expect(200).json();
    assert_eq!(times(&document, "egress"), [10, 30, 30, 50]);
    let document = replay(&daemon, &egress, &captures).expect(200).json();
    assert_eq!(times(&document, "egress"), [5, 40, 45]);
    assert_eq!(document["replayed"]["other_direction"], 4);
    let document = replay(&daemon, &egress, &captures[1..]).expect(200).json();
    assert_eq!(document["replayed"], json!({ "packets": 3 }));
    // A pcapng file tells which packets were sent.
    let document = replay(&daemon, &both, &[("capture", &pcapng(&one))])
        .expect(200)
        .json();
    assert_eq!(
        (times(&document, "ingress"), times(&document, "egress")),
        (vec![1, 3], vec![2])
    );
    Ok(())
}

/// A pcapng file with a packet without direction, one that was sent, and one that was received.
fn pcapng(frame: &[u8]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let (kind, length) = (kind.to_le_bytes(), (12 + body.len() as u32).to_le_bytes());
        [&kind[..], &length, body, &length].concat()
    };
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    // Nanoseconds.
    file.extend(block(1, &words(&[1, 0, 1 << 16 | 9, 9, 0])));
    for (number, flags) in [(1, 0), (2, 2), (3, 1)] {
        let (time, length) = (START + number, frame.len() as u32);
        let head = words(&[0, (time >> 32) as u32, time as u32, length, length]);
        file.extend(block(
            6,
            &[&head[..], frame, &words(&[4 << 16 | 2, flags, 0])].concat(),
        ));
    }
    file
}

#[test]
fn bad_captures_are_refused_or_counted() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let whole = frame(0x0800, 60, 1);
    let good = pcap([(START, &whole[..]), (START + 1, &whole)]);
    let mut odd = good.clone();
    for bytes in [0, 1, 13] {
        append(&mut odd, START + 2, bytes as u32, &whole[..bytes]);
    }
    append(&mut odd, START + 2, 1500, &whole);
    append(&mut odd, START + 2, 59, &whole);
    append(&mut odd, START + 2, 262_144, &frame(0x0800, 262_144, 2));
    append(&mut odd, START + 2, 262_144, &whole);
    append(&mut odd, START + 2, 60, &whole);
    let mut long = good.clone();
    append(&mut long, START + 2, 262_145, &frame(0x0800, 262_145, 2));
    let huge = [&good[..], &[0xff; 16], &[0; 100]].concat();
    for (direction, hook) in HOOKS {
        let config = witness(&[(direction, hook)]);
        let counted = |capture: &[u8]| {
            let document = replay(&daemon, &config, &[("capture", capture)])
                .expect(200)
                .json();
            let lengths = numbers(&seen(&document, direction), &["length"]).concat();
            assert_eq!(document["replayed"]["packets"], lengths.len());
            (document["replayed"].clone(), lengths)
        };
        let (replayed, lengths) = counted(&odd);
        let expected = json!({ "packets": 4, "too_short": 3, "too_long": 2, "wrong_length": 1, "truncated": 2 });
        assert_eq!(
            (&replayed, &lengths[..]),
            (&expected, &[60, 60, 1500, 60][..]),
            "{hook}"
        );
        assert_eq!(
            counted(&good[..good.len() - 1]),
            (json!({ "packets": 1, "cut_off": 1 }), vec![60])
        );
        assert_eq!(counted(&head(1)), (json!({ "packets": 0 }), vec![]));
        let refused = |capture: &[u8]| {
            let problem = replay(&daemon, &config, &[("capture", capture)])
                .expect(422)
                .json();
            assert_eq!(problem["errors"][0]["field"], "capture", "{problem}");
            problem["errors"][0]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        assert!(refused(b"").contains("empty"));
        assert!(refused(b"no capture at all").contains("neither pcap nor pcapng nor snoop"));
        assert!(refused(&good[..23]).contains("its head is cut off"));
        assert!(refused(&huge).contains("after 2 packets"));
        assert!(refused(&long).contains("262145 bytes"));
    }
    // The second capture is named.
    let both = witness(&[("ingress", "tc"), ("egress", "tc")]);
    let problem = replay(
        &daemon,
        &both,
        &[("capture", &good), ("egress-capture", b"x")],
    )
    .expect(422)
    .json();
    assert_eq!(problem["errors"][0]["field"], "egress-capture");
    assert_eq!(problem["detail"], "egress-capture can't be replayed");
    Ok(())
}

#[test]
fn requests_that_can_not_be_replayed_are_refused() -> Result<()> {
    let topology = Topology::new()?;
    let audit = tempfile::tempdir()?;
    let log = audit.path().join("log");
    let options = DaemonOptions::default()
        .argument("--max-capture-bytes")
        .argument("1000");
    let daemon = Daemon::start_with(
        topology.monitor(),
        &options.argument("--audit-log").argument(&log),
    )?;
    let one = frame(0x0800, 60, 1);
    let (capture, config) = (pcap([(START, &one[..])]), witness(&[("ingress", "xdp")]));
    let text = config.to_string();
    let send = |parts: &[(&str, &[u8])]| replays::request(&daemon, "/v1/replay", parts);
    let detail =
        |response: twinprobe_tests::Response| response.json()["detail"].as_str().map(str::to_owned);
    let config_part = ("config", text.as_bytes());
    for (parts, says) in [
        (&[config_part][..], "the part capture is missing"),
        (&[("capture", &capture)], "the part config is missing"),
        (
            &[config_part, ("capture", &capture), ("capture", &capture)],
            "there are two parts \"capture\"",
        ),
        (
            &[config_part, ("Capture", &capture)],
            "the part \"Capture\" is not known",
        ),
        (
            &[("config", b"{"), ("capture", &capture)],
            "can't be parsed",
        ),
    ] {
        let detail = detail(send(parts).expect(400)).unwrap_or_default();
        assert!(detail.contains(says), "{says}: {detail}");
    }
    let two = replay(
        &daemon,
        &config,
        &[("capture", &[0; 600]), ("egress-capture", &[0; 401])],
    );
    assert!(
        detail(two.expect(413))
            .unwrap_or_default()
            .contains("--max-capture-bytes")
    );
    replay(
        &daemon,
        &config,
        &[("capture", &[0; 600]), ("egress-capture", &[0; 400])],
    )
    .expect(422);
    let json = ("Content-Type", "application/json");
    daemon
        .request("POST", "/v1/replay", &[json], b"{}")
        .expect(415);
    let no_boundary = ("Content-Type", "multipart/form-data");
    daemon
        .request("POST", "/v1/replay", &[no_boundary], b"x")
        .expect(415);
    let odd = ("Content-Type", "multipart/form-data; boundary=x");
    daemon
        .request("POST", "/v1/replay", &[odd], b"no parts")
        .expect(400);
    daemon
        .request("POST", "/v1/replay?format=html", &[odd], b"")
        .expect(400);
    // Configurations that a PUT refuses are refused for the same reasons, before and after
    // compilation.
    let mut wrong = config.clone();
    wrong["ingress"]["hok"] = json!("xdp");
    assert_eq!(
        send(&[
            ("config", wrong.to_string().as_bytes()),
            ("capture", &capture)
        ])
        .status,
        422
    );
    let mut writes = config.clone();
    writes["ingress"]["defines"] = json!({ "GROW": "1" });
    let problem = replay(&daemon, &writes, &[("capture", &capture)])
        .expect(422)
        .json();
    assert_eq!(problem["errors"][0]["stage"], "admission", "{problem}");
    let mut missing = config.clone();
    missing["ingress"]["metrics"][0]["map"] = json!("none");
    let problem = replay(&daemon, &missing, &[("capture", &capture)])
        .expect(422)
        .json();
    assert_eq!(
        problem["errors"][0]["field"], "ingress.metrics[0].map",
        "{problem}"
    );
    // The replay does not look for an interface that does not exist.
    let mut elsewhere = config;
    elsewhere["interface"] = json!("nowhere0");
    replay(&daemon, &elsewhere, &[("capture", &capture)]).expect(200);
    let lines = std::fs::read_to_string(&log)?;
    let line: Value = serde_json::from_str(lines.lines().last().expect("a line"))?;
    assert_eq!(
        (&line["what"], &line["probe"]),
        (&json!("POST /v1/replay"), &json!("witness")),
        "{line}"
    );
    assert_eq!(
        line["sources"]["ingress"].as_str().map(str::len),
        Some(64),
        "{line}"
    );
    Ok(())
}

#[test]
fn each_packet_is_whole_for_a_program_that_changes_packets() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let frames: Vec<Vec<u8>> = (0..100)
        .map(|i| frame(0x0800, 60 + i % 3, i as u8))
        .collect();
    let capture = pcap(frames.iter().map(|frame| (START, &frame[..])));
    let mut config = witness(&[("ingress", "xdp")]);
    config["ingress"]["verdict"] = json!("enforce");
    config["ingress"]["defines"] = json!({ "GROW": "1" });
    let document = replay(&daemon, &config, &[("capture", &capture)])
        .expect(200)
        .json();
    let lengths = numbers(&seen(&document, "ingress"), &["length", "last", "type"]);
    let expected = frames
        .iter()
        .map(|frame| vec![frame.len() as u64, frame[20].into(), 0]);
    assert_eq!(lengths, expected.collect::<Vec<_>>());
    Ok(())
}
