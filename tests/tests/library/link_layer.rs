//! The headers in front of IP: tags that an interface keeps beside the packet, and interfaces that
//! have no Ethernet header.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use twinprobe_tests::probes;
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::{Daemon, Topology};

/// A tag that the sender keeps outside of the packet's bytes is visible at TC, but not at XDP, and
/// all outputs of the probe tell this.
#[test]
fn tags_that_are_beside_the_packet_are_seen_or_told() -> Result<()> {
    let topology = Topology::new()?;
    let (near, far) = (topology.monitor(), topology.generator());
    let directory = tempfile::tempdir()?;
    let push = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        SEC(\"tc\") int push(struct __sk_buff *skb)\n{\n\
        \tbpf_skb_vlan_push(skb, __builtin_bswap16(0x8100), 100 | 5 << 13);\n\treturn 0;\n}\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let object = directory.path().join("push.o");
    fs::write(&object, twinprobe_tests::bpf::compile(push, &[])?)?;
    far.run("tc", &["qdisc", "add", "dev", "gen0", "clsact"])?;
    let object = object.to_string_lossy().into_owned();
    far.run(
        "tc",
        &[
            "filter", "add", "dev", "gen0", "egress", "bpf", "da", "obj", &object, "sec", "tc",
        ],
    )?;
    let daemon = Daemon::start(near)?;
    let sender = far.enter(|| PacketSocket::open("gen0"))??;
    for hook in ["xdp", "tc"] {
        let mut config = probes::configuration("vlan", "mon0")?;
        config["ingress"]["hook"] = hook.into();
        if hook == "tc" {
            config["ingress"]
                .as_object_mut()
                .context("an object")?
                .remove("mode");
        }
        let report = daemon
            .post("/v1/validate?name=vlan", &config)
            .expect(200)
            .json();
        let status = daemon.put("/v1/probes/vlan", &config).expect(201).json();
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 128];
        frame.resize(142, 0);
        (0..10).try_for_each(|_| sender.send(&frame))?;
        let document = daemon.json("/v1/probes/vlan/metrics");
        let entry = &document["ingress"]["vlan"]["entries"][0];
        let doctor = String::from_utf8(daemon.client(&["doctor"])?.stdout)?;
        let page = daemon.get("/metrics").expect(200).text().to_owned();
        if hook == "tc" {
            let key = json!({ "tags": 1, "priority": 5, "vlan": 100, "inner_vlan": 0 });
            assert_eq!(entry["key"], key, "{document}");
            assert_eq!(
                entry["value"],
                json!({ "packets_total": 10, "bytes_total": 1460 })
            );
            assert_eq!(document["approximate"], Value::Null);
            assert!(!page.contains("twinprobe_approximate_info{"), "{page}");
            assert!(!doctor.contains("numbers are approximate"), "{doctor}");
        } else {
            assert_eq!(
                entry["value"],
                json!({ "packets_total": 10, "bytes_total": 1420 })
            );
            let advice = "txvlan off";
            for said in [
                &document["approximate"],
                &status["interfaces"][0]["approximate"],
            ] {
                assert!(
                    said.as_str().is_some_and(|said| said.contains(advice)),
                    "{said}"
                );
            }
            for warnings in [&report["warnings"], &status["warnings"]] {
                assert!(
                    warnings[0]["message"]
                        .as_str()
                        .is_some_and(|said| said.contains(advice)),
                    "{warnings}"
                );
            }
            assert!(doctor.contains(advice), "{doctor}");
            assert!(
                page.contains("twinprobe_approximate_info{probe=\"vlan\",reason=\"ingress: XDP"),
                "{page}"
            );
        }
        daemon.delete("/v1/probes/vlan").expect(204);
    }
    Ok(())
}

/// A program that reads an Ethernet header is refused where there is none, with the reason.
#[test]
fn who_reads_an_ethernet_header_is_refused_where_there_is_none() -> Result<()> {
    let topology = Topology::new()?;
    topology
        .monitor()
        .run("ip", &["tuntap", "add", "tun7", "mode", "tun"])?;
    topology
        .monitor()
        .run("ip", &["link", "set", "tun7", "up"])?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = probes::configuration("packet-counter", "tun7")?;
    for (method, path) in [
        ("PUT", "/v1/probes/packet-counter"),
        ("POST", "/v1/validate?name=packet-counter"),
    ] {
        let answer = match method {
            "PUT" => daemon.put(path, &config),
            _ => daemon.post(path, &config),
        };
        let error = answer.expect(422).json()["errors"][0].clone();
        assert_eq!(error["field"], "interface");
        let message = error["message"].as_str().context("a message")?;
        assert!(
            message.contains("tun7 has no Ethernet header (type none)"),
            "{message}"
        );
    }
    daemon.get("/v1/probes/packet-counter").expect(404);
    let ends = ["local", "10.9.9.1", "remote", "10.9.9.2"];
    for (kind, ends) in [
        ("wireguard", &[][..]),
        ("ipip", &ends),
        ("gre", &ends),
        ("sit", &ends),
    ] {
        let name = format!("other-{kind}");
        let add = [&["link", "add", &name, "type", kind], ends].concat();
        if topology.monitor().run("ip", &add).is_err() {
            eprintln!("this kernel has no {kind}: not tried here");
            continue;
        }
        let answer = daemon.put(
            "/v1/probes/packet-counter",
            &probes::configuration("packet-counter", &name)?,
        );
        let message = answer.expect(422).json()["errors"][0]["message"].to_string();
        assert!(message.contains("has no Ethernet header"), "{message}");
    }
    let mut config = probes::configuration("packet-counter", "tun7")?;
    let fields = config.as_object_mut().context("an object")?;
    fields.remove("interface");
    fields.insert("interfaces".to_owned(), json!(["tun*", "mon0"]));
    let status = daemon
        .put("/v1/probes/packet-counter", &config)
        .expect(201)
        .json();
    let places = status["interfaces"].as_array().context("interfaces")?;
    let pending = places
        .iter()
        .find(|at| at["interface"] == "tun7")
        .context("tun7")?;
    assert_eq!(pending["state"], "pending");
    assert!(
        pending["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("no Ethernet header")),
        "{pending}"
    );
    // A program that does not declare its reads of packets is admitted, with a warning.
    let own = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); } \
        seen SEC(\".maps\");\n\
        SEC(\"tc\") int see(struct __sk_buff *skb) { __u32 key = 0; __u64 *n = bpf_map_lookup_elem(&seen, &key);\n\
        \tif (n) __sync_fetch_and_add(n, 1);\n\treturn -1;\n}\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let metrics = json!([{ "name": "seen", "map": "seen" }]);
    let own = json!({ "interface": "tun7", "ingress": { "hook": "tc", "source": own, "metrics": metrics } });
    let status = daemon.put("/v1/probes/own", &own).expect(201).json();
    let warning = status["warnings"][0]["message"]
        .as_str()
        .context("a warning")?;
    assert!(warning.contains("tun7 has no Ethernet header"), "{warning}");
    Ok(())
}
