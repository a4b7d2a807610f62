//! `twinprobe.h`: one source finds the same values in the same packets at XDP and TC, ingress and
//! egress.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::sample::window;
use twinprobe_tests::{Daemon, Topology};

const SOURCE: &str = include_str!("../../bpf/header.bpf.c");
const MAPS: [&str; 5] = ["outside", "inside", "payloads", "talks", "few"];

const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// A frame, and the expected fields of its headers and, in a tunnel, of the inner headers. Fields
/// that are not named are 0.
struct Case {
    frame: Vec<u8>,
    found: Value,
    inside: Option<Value>,
}

/// Ethernet with these tags or labels in front of the type.
fn ethernet(front: &[u8], ether_type: u16, content: &[u8]) -> Vec<u8> {
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    [&addresses, front, &ether_type.to_be_bytes(), content].concat()
}

fn ipv4(protocol: u8, options: &[u8], fragment: u16, content: &[u8]) -> Vec<u8> {
    let length = (20 + options.len() + content.len()) as u16;
    let mut header = vec![0x40 | (5 + options.len() / 4) as u8, 0xb9];
    header.extend(length.to_be_bytes());
    header.extend([0, 1]);
    header.extend(fragment.to_be_bytes());
    header.extend([61, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    [&header, options, content].concat()
}

fn ipv6(next: u8, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0x6b, 0x90, 0, 7];
    header.extend((content.len() as u16).to_be_bytes());
    header.extend([next, 62]);
    for last in [1, 2] {
        header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&header, content].concat()
}

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let numbers = [source, destination, length, 0].map(u16::to_be_bytes);
    [numbers.as_flattened(), payload].concat()
}

/// TCP with 12 bytes of options.
fn tcp(flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![
        0x04, 0xd2, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 2, 0x80, flags, 0, 1, 0, 0, 0, 0,
    ];
    header.extend([1; 12]);
    [&header, payload].concat()
}

/// Returns `fields` and the fields of all packets over IPv4.
fn over_ipv4(l3: u32, ip_length: u32, fields: Value) -> Value {
    let common = json!({
        "ether_type": IPV4, "version": 4, "tos": 0xb9, "ttl": 61, "l3": l3, "ip_length": ip_length,
        "source": "192.0.2.1", "destination": "192.0.2.2"
    });
    joined(common, fields)
}

fn over_ipv6(l3: u32, ip_length: u32, fields: Value) -> Value {
    let common = json!({
        "ether_type": IPV6, "version": 6, "tos": 0xb9, "ttl": 62, "l3": l3, "ip_length": ip_length,
        "source": "2001:db8::1", "destination": "2001:db8::2"
    });
    joined(common, fields)
}

fn joined(mut one: Value, other: Value) -> Value {
    let (Some(fields), Value::Object(other)) = (one.as_object_mut(), other) else {
        panic!("two objects")
    };
    fields.extend(other);
    one
}

/// UDP from port 1234 to port 53.
fn dns(l4: u32, payload_length: u32) -> Value {
    json!({ "protocol": UDP, "l4": l4, "payload": l4 + 8, "payload_length": payload_length,
            "source_port": 1234, "destination_port": 53 })
}

/// TCP from port 1234 to port 443, with 12 bytes of options.
fn https(l4: u32, payload_length: u32, tcp_flags: u32) -> Value {
    json!({ "protocol": TCP, "l4": l4, "payload": l4 + 32, "payload_length": payload_length,
            "source_port": 1234, "destination_port": 443, "tcp_flags": tcp_flags })
}

/// Packets that are complete.
fn whole() -> Vec<Case> {
    let qinq = [0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 9];
    let labels = [0, 1, 0, 64, 0, 2, 1, 64];
    let mpls = [&labels[..], &ipv4(UDP, &[], 0, &udp(1234, 53, b"mpls"))].concat();
    // Hop-by-hop options, segment routing with one segment, destination options.
    let before = [
        &[43, 0, 0, 0, 0, 0, 0, 0, 60, 2, 4, 0, 0, 0, 0, 0][..],
        &[0; 16],
    ]
    .concat();
    let extensions = [
        &before[..],
        &[TCP, 0, 0, 0, 0, 0, 0, 0],
        &tcp(2, b"extensions"),
    ]
    .concat();
    let mut back = ethernet(
        &[],
        IPV4,
        &ipv4(UDP, &[], 0, &udp(53, 1234, b"on the way back")),
    );
    (back[29], back[33]) = (2, 1);
    let turned = json!({ "source_port": 53, "destination_port": 1234, "source": "192.0.2.2",
                         "destination": "192.0.2.1" });
    let case = |frame, found| Case {
        frame,
        found,
        inside: None,
    };
    vec![
        case(
            ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &udp(1234, 53, b"plain"))),
            over_ipv4(14, 33, dns(34, 5)),
        ),
        // The frame is padded, as short frames are.
        case(
            ethernet(
                &[],
                IPV4,
                &[ipv4(UDP, &[], 0, &udp(1234, 53, b"p")), vec![0; 17]].concat(),
            ),
            over_ipv4(14, 29, dns(34, 1)),
        ),
        case(back, joined(over_ipv4(14, 43, dns(34, 15)), turned)),
        case(
            ethernet(&qinq, IPV4, &ipv4(TCP, &[1; 8], 0, &tcp(0x12, b"options"))),
            joined(
                over_ipv4(22, 67, https(50, 7, 0x12)),
                json!({ "tags": 2, "vlan0": 0x2007, "vlan1": 9 }),
            ),
        ),
        case(
            ethernet(&[], 0x8847, &mpls),
            joined(
                over_ipv4(22, 32, dns(42, 4)),
                json!({ "labels": 2, "label": 0x10040 }),
            ),
        ),
        case(
            ethernet(&[], IPV6, &ipv6(0, &extensions)),
            joined(
                over_ipv6(14, 122, https(94, 10, 2)),
                json!({ "extensions": 3, "srh": 62 }),
            ),
        ),
        case(
            ethernet(&[], IPV6, &ipv6(58, &[128, 3, 0, 0, 0, 1, 0, 2, 5, 6])),
            over_ipv6(
                14,
                50,
                json!({ "protocol": 58, "l4": 54, "payload": 62, "payload_length": 2, "icmp_type": 128,
                        "icmp_code": 3 }),
            ),
        ),
        case(
            ethernet(
                &[],
                IPV4,
                &ipv4(132, &[], 0, &[4, 210, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9]),
            ),
            over_ipv4(
                14,
                34,
                json!({ "protocol": 132, "l4": 34, "payload": 46, "payload_length": 2, "source_port": 1234,
                        "destination_port": 53 }),
            ),
        ),
        case(
            ethernet(&[], 0x0806, &[0; 28]),
            json!({ "ether_type": 0x0806, "l3": 14 }),
        ),
    ]
}

/// Packets whose transport header is elsewhere, or cut off, and packets that contradict themselves.
fn parts() -> Vec<Case> {
    let case = |frame, found| Case {
        frame,
        found,
        inside: None,
    };
    vec![
        case(
            ethernet(
                &[],
                IPV4,
                &ipv4(UDP, &[], 0x2000, &udp(1234, 53, b"a first one")),
            ),
            over_ipv4(14, 39, joined(dns(34, 11), json!({ "fragment": 1 }))),
        ),
        case(
            ethernet(&[], IPV4, &ipv4(UDP, &[], 0x0064, b"a later fragment")),
            over_ipv4(14, 36, json!({ "protocol": UDP, "fragment": 2 })),
        ),
        case(
            ethernet(&[], IPV6, &ipv6(44, &[58, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3])),
            over_ipv6(
                14,
                51,
                json!({ "protocol": 58, "fragment": 2, "extensions": 1 }),
            ),
        ),
        case(
            ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &[4, 210, 0, 53])),
            over_ipv4(14, 24, json!({ "error": 1, "protocol": UDP })),
        ),
        case(
            ethernet(&[], IPV4, &[0x44; 21]),
            json!({ "error": 2, "ether_type": IPV4, "l3": 14 }),
        ),
    ]
}

fn tunnels() -> Vec<Case> {
    let inner = ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &udp(1234, 53, b"inside")));
    let vxlan = udp(
        4000,
        4789,
        &[&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat(),
    );
    // The header of IPv4 has options of four bytes.
    let geneve = udp(
        4000,
        6081,
        &[&[1, 0, 0x65, 0x58, 0, 0, 43, 0, 0, 0, 0, 0][..], &inner].concat(),
    );
    let gre = [
        &[0x20, 0, 0x86, 0xdd, 0, 0, 0, 44][..],
        &ipv6(UDP, &udp(1234, 53, b"in gre")),
    ]
    .concat();
    let to_port = |port: u16| json!({ "source_port": 4000, "destination_port": port });
    let in_tunnel = |tunnel: u32, id: u32, l2: u32| json!({ "tunnel": tunnel, "tunnel_id": id, "depth": 1, "l2": l2 });
    vec![
        Case {
            frame: ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &vxlan)),
            found: joined(over_ipv4(14, 84, dns(34, 56)), to_port(4789)),
            inside: Some(joined(over_ipv4(64, 34, dns(84, 6)), in_tunnel(3, 42, 50))),
        },
        Case {
            frame: ethernet(&[], IPV6, &ipv6(UDP, &geneve)),
            found: joined(over_ipv6(14, 108, dns(54, 60)), to_port(6081)),
            inside: Some(joined(over_ipv4(88, 34, dns(108, 6)), in_tunnel(4, 43, 74))),
        },
        Case {
            frame: ethernet(&[], IPV4, &ipv4(47, &[], 0, &gre)),
            found: over_ipv4(14, 82, json!({ "protocol": 47, "l4": 34 })),
            inside: Some(joined(over_ipv6(42, 54, dns(82, 6)), in_tunnel(2, 44, 42))),
        },
    ]
}

fn direction(hook: &str) -> Value {
    let mut metrics: Vec<Value> = MAPS.iter().map(|map| window(map, map)).collect();
    metrics[4]["agg"] = json!("sum");
    metrics.push(json!({ "name": "ring", "map": "ring", "type": "struct found" }));
    json!({ "hook": hook, "source": SOURCE, "metrics": metrics })
}

/// Returns the values of a map by their keys, without fields and addresses that are 0.
fn by_length(metric: &Value) -> BTreeMap<u64, Value> {
    let entries = metric["entries"].as_array().expect("entries");
    let value = |entry: &Value| {
        let mut value = entry["value"].clone();
        value
            .as_object_mut()
            .expect("a struct")
            .retain(|_, field| *field != 0 && *field != "::");
        (entry["key"].as_u64().expect("a length"), value)
    };
    entries.iter().map(value).collect()
}

/// Compares the findings in each packet. At TC, the outer tag has been taken out of the frame.
fn compare(found: &Value, cases: &[Case], is_tc: bool) {
    let seen = (by_length(&found["outside"]), by_length(&found["inside"]));
    for Case {
        frame,
        found,
        inside,
    } in cases
    {
        let length = frame.len() as u64;
        let mut found = found.clone();
        if is_tc && found["tags"] != Value::Null {
            for field in ["l3", "l4", "payload"] {
                found[field] = json!(found[field].as_u64().expect("an offset") - 4);
            }
        }
        assert_eq!(
            seen.0.get(&length),
            Some(&found),
            "the packet of {length} bytes"
        );
        assert_eq!(
            seen.1.get(&length),
            inside.as_ref(),
            "inside of the packet of {length} bytes"
        );
    }
    assert_eq!(seen.0.len(), cases.len(), "{found}");
    let payload = |length: u64| {
        let entries = found["payloads"]["entries"].as_array().expect("entries");
        &entries
            .iter()
            .find(|entry| entry["key"] == length)
            .expect("a packet with payload")["value"]
    };
    let first = b"plain\0\0\0";
    assert_eq!(
        *payload(47),
        json!({ "copied": 5, "first": first, "last": b"lain" })
    );
    assert_eq!(payload(60)["copied"], 8, "with the padding");
    let talks = found["talks"]["entries"].as_array().expect("entries");
    let is_it = |entry: &&Value| {
        let ports = [
            &entry["key"]["source_port"],
            &entry["key"]["destination_port"],
        ];
        entry["key"]["protocol"] == "UDP" && (ports == [53, 1234] || ports == [1234, 53])
    };
    let talks: Vec<&Value> = talks
        .iter()
        .filter(is_it)
        .map(|entry| &entry["value"])
        .collect();
    assert_eq!(
        talks,
        [5],
        "one conversation, of which one packet goes back"
    );
}

/// Asserts the losses in a document for a map that no metric shows.
fn assert_losses(found: &Value, map: &str, kind: &str, losses: &Value) {
    let said = &found[map];
    assert_eq!(
        (&said["map"], &said["type"], &said["entries"]),
        (&json!(map), &json!(kind), &json!([])),
        "{said}"
    );
    assert_eq!(
        (&said["completeness"], said.get("entries_used")),
        (losses, None),
        "{said}"
    );
}

#[test]
fn one_source_for_all_hooks() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = json!({ "interface": "mon0", "ingress": direction("tc") });
    daemon.put("/v1/probes/tc", &config).expect(201);
    let config = json!({ "interface": "mon0", "ingress": direction("xdp") });
    daemon.put("/v1/probes/xdp", &config).expect(201);
    let config = json!({ "interface": "mon1", "egress": direction("tc") });
    daemon.put("/v1/probes/egress", &config).expect(201);
    // The next probe has a metric that empties a map with each window and is not shown; another
    // metric has the name of a map.
    let mut hidden = direction("xdp");
    hidden["metrics"] = json!([
        { "name": "unnamed", "map": "unnamed", "snapshot": true, "init": true, "export": false },
        { "name": "unread", "map": "talks" },
    ]);
    daemon
        .put(
            "/v1/probes/hidden",
            &json!({ "interface": "mon0", "ingress": hidden }),
        )
        .expect(201);
    let _forward = topology.forward_to_egress()?;

    let cases: Vec<Case> = [whole(), parts(), tunnels()]
        .into_iter()
        .flatten()
        .collect();
    let packets = cases.len() as u64;
    let (entries, records) = (4, 4096 / (144 + 8));
    for round in 1..=2 {
        for case in &cases {
            send_frames(topology.generator(), "gen0", &case.frame, 1)?;
        }
        for (probe, direction) in [("xdp", "ingress"), ("tc", "ingress"), ("egress", "egress")] {
            let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
            let found = &document[direction];
            compare(found, &cases, probe != "xdp");
            let outside = &found["outside"];
            assert_eq!(
                (&outside["entries_used"], &outside["max_entries"]),
                (&json!(packets), &json!(64))
            );
            assert_eq!(
                (
                    outside.get("full"),
                    &outside["completeness"]["failed_inserts"]
                ),
                (None, &json!(0))
            );
            assert_eq!(outside["completeness"]["fill"], packets as f64 / 64.0);
            let few = &found["few"];
            assert_eq!(
                (&few["entries_used"], &few["full"]),
                (&json!(entries), &json!(true)),
                "{few}"
            );
            assert_eq!(
                few["completeness"],
                json!({ "fill": 1, "failed_inserts": packets - entries })
            );
            let lost = (round * packets).saturating_sub(records);
            assert_eq!(
                found["ring"]["completeness"],
                json!({ "failed_reserves": lost }),
                "{records} fit"
            );
            assert_losses(
                found,
                "unnamed",
                "hash",
                &json!({ "failed_inserts": round * (packets - entries) }),
            );
            // Programs discard their reserved records here, and no client reads: the discarded
            // records fill the ring.
            assert_losses(
                found,
                "unread",
                "ringbuf",
                &json!({ "failed_reserves": lost }),
            );
        }
        let document = daemon.json("/v1/probes/hidden/metrics");
        let found = &document["ingress"];
        assert_losses(
            found,
            "unnamed",
            "hash",
            &json!({ "failed_inserts": round * (packets - entries) }),
        );
        assert_eq!(found["unread_map"]["map"], "unread", "{found}");
        assert_eq!(found["unread"]["map"], "talks");
    }
    let page = daemon.get("/metrics").expect(200);
    let page = page.text();
    for (sample, number) in [
        (
            "twinprobe_map_entries{probe=\"tc\",direction=\"ingress\",map=\"outside\"}",
            packets,
        ),
        (
            "twinprobe_map_max_entries{probe=\"xdp\",direction=\"ingress\",map=\"outside\"}",
            64,
        ),
        (
            "twinprobe_map_failed_inserts_total{probe=\"egress\",direction=\"egress\",map=\"few\"}",
            2 * (packets - entries),
        ),
        (
            "twinprobe_map_failed_inserts_total{probe=\"tc\",direction=\"ingress\",map=\"unnamed\"}",
            2 * (packets - entries),
        ),
        (
            "twinprobe_map_failed_reserves_total{probe=\"xdp\",direction=\"ingress\",map=\"ring\"}",
            2 * packets - records,
        ),
    ] {
        assert!(
            page.contains(&format!("{sample} {number}\n")),
            "{sample} {number}: {page}"
        );
    }
    Ok(())
}
