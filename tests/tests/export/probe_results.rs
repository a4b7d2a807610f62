//! Results of the ready-made probes for packets that are known to the byte.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::{
    Bystanders, Daemon, Stand, Topology, probes,
    traffic::{Frame, FrameOptions, Generator, GeneratorOptions, Protocol, Spread},
};

struct Setting {
    daemon: Daemon,
    bystanders: Bystanders,
    topology: Topology,
}

impl Setting {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        Ok(Self {
            bystanders: Bystanders::deploy_at(&daemon, &topology, Stand::FRAGS)?,
            daemon,
            topology,
        })
    }

    fn send(&self, frame: Frame, spread: Spread, count: u64) -> Result<()> {
        let options = GeneratorOptions {
            frame,
            spread,
            ..GeneratorOptions::default()
        };
        Generator::new(self.topology.generator(), "gen0", options)?.send(count)
    }

    /// Closes a window and returns the entries of one of its metrics.
    fn entries(&self, probe: &str, direction: &str, metric: &str) -> Vec<Value> {
        self.metrics(probe, direction, &[metric]).remove(0)
    }

    fn metrics(&self, probe: &str, direction: &str, metrics: &[&str]) -> Vec<Vec<Value>> {
        let document = self.daemon.json(&format!("/v1/probes/{probe}/metrics"));
        let entries = |metric: &&str| document[direction][*metric]["entries"].as_array().cloned();
        metrics
            .iter()
            .map(|metric| entries(metric).unwrap_or_else(|| panic!("{metric}: {document}")))
            .collect()
    }
}

/// Returns the configuration of `flow-features` at mon0, at XDP or TC, with further defines.
fn flow_features(tc: bool, defines: &[(&str, &str)]) -> Result<Value> {
    let mut document = probes::configuration("flow-features", "mon0")?;
    let ingress = &mut document["ingress"];
    ingress["defines"] = defines
        .iter()
        .map(|&(name, value)| (name.to_owned(), json!(value)))
        .collect();
    if tc {
        ingress["hook"] = json!("tc");
        ingress["defines"]["TC"] = json!("1");
        ingress.as_object_mut().expect("an object").remove("mode");
    }
    Ok(document)
}

#[test]
fn fifteen_features_of_every_flow() -> Result<()> {
    let setting = Setting::new()?;
    let spread = Spread {
        addresses: 3,
        ports: 7,
        ..Spread::default()
    };
    for tc in [false, true] {
        let document = flow_features(tc, &[])?;
        assert!(
            [200, 201].contains(
                &setting
                    .daemon
                    .put("/v1/probes/flow-features", &document)
                    .status
            )
        );
        setting.send(
            Frame::build(&FrameOptions {
                tos: 0x28,
                ..FrameOptions::default()
            })?,
            spread,
            2_000,
        )?;
        let metrics = setting.metrics("flow-features", "ingress", &["flows", "unaccounted"]);
        assert_eq!(metrics[0].len(), 21);
        for entry in &metrics[0] {
            let (key, value) = (&entry["key"], &entry["value"]);
            let address = key["IPV4_SRC_ADDR"].as_str().unwrap().parse()?;
            let port = key["L4_SRC_PORT"].as_u64().unwrap() as u16;
            let packets = spread.expected(address, port, 2_000);
            assert_eq!(key["IPV4_DST_ADDR"], "198.19.0.1");
            assert_eq!(
                (&key["PROTOCOL"], &key["L4_DST_PORT"]),
                (&json!("TCP"), &json!(80))
            );
            assert_eq!(
                (&value["IN_PKTS"], &value["IN_BYTES"]),
                (&json!(packets), &json!(packets * 60))
            );
            assert_eq!(
                (&value["SRC_TOS"], &value["TCP_FLAGS"]),
                (&json!(0x28), &json!("SYN"))
            );
            for zero in ["INPUT_SNMP", "OUTPUT_SNMP", "SRC_AS", "DST_AS"] {
                assert_eq!(value[zero], 0, "{zero}");
            }
            let (first, last) = (
                value["FIRST_SWITCHED"].as_str(),
                value["LAST_SWITCHED"].as_str(),
            );
            assert!(
                first < last && first.is_some_and(|time| time.ends_with('Z')),
                "{value}"
            );
        }
        assert_eq!(
            metrics[1][0]["value"],
            json!({ "table_full": 0, "not_ipv4": 0 })
        );
    }
    setting.bystanders.finish()
}

#[test]
fn without_addresses_all_packets_are_one_flow() -> Result<()> {
    let setting = Setting::new()?;
    setting
        .daemon
        .put(
            "/v1/probes/flow-features",
            &flow_features(false, &[("FEATURES", "6")])?,
        )
        .expect(201);
    setting.send(Frame::default(), Spread::default(), 5_000)?;
    let flows = setting.entries("flow-features", "ingress", "flows");
    assert_eq!(flows.len(), 1);
    let features = json!({ "INPUT_SNMP": 0, "OUTPUT_SNMP": 0, "SRC_AS": 0, "DST_AS": 0,
        "IN_PKTS": 5_000, "IN_BYTES": 300_000 });
    assert_eq!(flows[0]["value"], features);
    setting.bystanders.finish()
}

#[test]
fn packets_beyond_a_full_table_are_counted() -> Result<()> {
    let setting = Setting::new()?;
    setting
        .daemon
        .put(
            "/v1/probes/flow-features",
            &flow_features(false, &[("FLOWS", "10")])?,
        )
        .expect(201);
    setting.send(
        Frame::default(),
        Spread {
            addresses: 5,
            ports: 4,
            ..Spread::default()
        },
        2_000,
    )?;
    let metrics = setting.metrics("flow-features", "ingress", &["flows", "unaccounted"]);
    let packets: u64 = metrics[0]
        .iter()
        .map(|entry| entry["value"]["IN_PKTS"].as_u64().unwrap())
        .sum();
    let refused = metrics[1][0]["value"]["table_full"].as_u64().unwrap();
    // A full hash table may hold some entries more than its maximum, from the free lists of CPUs.
    assert!((10..20).contains(&metrics[0].len()), "{}", metrics[0].len());
    assert_eq!((packets, refused), (2_000 - refused, 2_000 - packets));
    assert!(refused > 0);
    setting.bystanders.finish()
}

/// Returns an Ethernet frame of this type with a payload.
fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [
        &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1],
        &ether_type.to_be_bytes()[..],
        payload,
    ]
    .concat()
}

#[test]
fn what_is_a_flow_and_what_is_not() -> Result<()> {
    let built = |protocol, vlan, length| {
        Frame::build(&FrameOptions {
            protocol,
            vlan,
            length,
            ..FrameOptions::default()
        })
        .unwrap()
    };
    let later_fragment = {
        let mut bytes = built(Protocol::Udp, None, 60).bytes().to_vec();
        bytes[20..22].copy_from_slice(&[0x20, 0x10]);
        Frame::from_bytes(bytes)?
    };
    let options = {
        let mut bytes = built(Protocol::Tcp, None, 60).bytes().to_vec();
        bytes[14] = 0x46;
        bytes[17] += 4;
        bytes.splice(34..34, [1, 1, 1, 0]);
        bytes.truncate(60);
        Frame::from_bytes(bytes)?
    };
    // The name, the frame, and the protocol and ports of the flow.
    let flows = [
        ("tcp", built(Protocol::Tcp, None, 60), ("TCP", 1024, 80)),
        ("udp", built(Protocol::Udp, None, 300), ("UDP", 1024, 80)),
        (
            "icmp echo",
            built(Protocol::Icmp, None, 60),
            ("ICMP", 0, 0x0800),
        ),
        ("tag", built(Protocol::Udp, Some(9), 60), ("UDP", 1024, 80)),
        ("later fragment", later_fragment, ("UDP", 0, 0)),
        ("ip options", options, ("TCP", 1024, 80)),
    ];
    let ipv6 = ethernet(
        0x86dd,
        &[&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &[0xfd; 32]].concat(),
    );
    let short_ip = ethernet(0x0800, &[0x44; 20]);
    let not_flows = [
        ipv6,
        ethernet(0x0806, &[0; 28]),
        ethernet(0x88cc, &[0; 40]),
        short_ip,
    ];
    let setting = Setting::new()?;
    for tc in [false, true] {
        let document = flow_features(tc, &[])?;
        assert!(
            [200, 201].contains(
                &setting
                    .daemon
                    .put("/v1/probes/flow-features", &document)
                    .status
            )
        );
        for (name, frame, (protocol, source, destination)) in &flows {
            let length = frame.bytes().len() as u64;
            setting.send(frame.clone(), Spread::single(), 100)?;
            let entries = setting.entries("flow-features", "ingress", "flows");
            assert_eq!(entries.len(), 1, "{name} {entries:?}");
            let (key, value) = (&entries[0]["key"], &entries[0]["value"]);
            assert_eq!(key["PROTOCOL"], *protocol, "{name}");
            assert_eq!(
                (&key["L4_SRC_PORT"], &key["L4_DST_PORT"]),
                (&json!(source), &json!(destination)),
                "{name}"
            );
            assert_eq!(
                (&value["IN_PKTS"], &value["IN_BYTES"]),
                (&json!(100), &json!(100 * length)),
                "{name}"
            );
        }
        for frame in &not_flows {
            setting.send(Frame::from_bytes(frame.clone())?, Spread::single(), 50)?;
        }
        let metrics = setting.metrics("flow-features", "ingress", &["flows", "unaccounted"]);
        assert_eq!(metrics[0], Vec::<Value>::new());
        assert_eq!(
            metrics[1][0]["value"],
            json!({ "table_full": 0, "not_ipv4": 200 })
        );
    }
    setting.bystanders.finish()
}

#[test]
fn packets_per_protocol_both_ways() -> Result<()> {
    let setting = Setting::new()?;
    let _forward = setting.topology.forward_to_egress()?;
    let mut document = probes::configuration("packet-counter", "mon0")?;
    document
        .as_object_mut()
        .expect("an object")
        .remove("interface");
    document["interfaces"] = json!(["mon0", "mon1"]);
    setting
        .daemon
        .put("/v1/probes/packet-counter", &document)
        .expect(201);
    let built = |protocol, vlan, length| {
        Frame::build(&FrameOptions {
            protocol,
            vlan,
            length,
            ..FrameOptions::default()
        })
        .unwrap()
    };
    let icmp6 = ethernet(
        0x86dd,
        &[
            &[0x60, 0, 0, 0, 0, 16, 0, 64][..],
            &[0xfd; 32],
            &[58, 0, 1, 4, 0, 0, 0, 0],
        ]
        .concat(),
    );
    for (frame, count) in [
        (Frame::default(), 1_000),
        (built(Protocol::Udp, Some(7), 100), 200),
        (built(Protocol::Icmp, None, 60), 30),
        (Frame::from_bytes(ethernet(0x0806, &[0; 28]))?, 4),
        (Frame::from_bytes(ethernet(0x88cc, &[0; 28]))?, 5),
        (Frame::from_bytes(icmp6)?, 6),
    ] {
        setting.send(frame, Spread::default(), count)?;
    }
    let document = setting.daemon.json("/v1/probes/packet-counter/metrics");
    let icmp6_bytes = 6 * 62;
    for (direction, metric) in [
        ("ingress", "ingress_protocols"),
        ("egress", "egress_protocols"),
    ] {
        let entries = document[direction][metric]["entries"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for (protocol, packets, bytes) in [
            ("TCP", 1_000, 60_000),
            ("UDP", 200, 20_000),
            ("ICMP", 30, 1_800),
            ("ARP", 4, 240),
            ("NOT_IP", 5, 300),
            ("ICMPV6", 6, icmp6_bytes),
        ] {
            let entry = json!({ "key": protocol, "value": { "packets": packets, "bytes": bytes } });
            assert!(
                entries.contains(&entry),
                "{direction}: no {entry} in {entries:?}"
            );
        }
        assert_eq!(entries.len(), 6, "{direction}: {entries:?}");
    }
    setting.bystanders.finish()
}
