//! What the probes count is what is on the wire, whatever an interface does to packets, or they say why not: each probe at each
//! hook on interfaces with offloads on and off, beside what the kernel's own TCP has sent. The table in `docs/exactness.md` has the
//! verdicts; `UPDATE_GOLDEN=1` writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use twinprobe_tests::netns::Namespace;
use twinprobe_tests::probes::{self, index};
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::wire::{Connection, Traffic, pair, settled, switch_off};
use twinprobe_tests::{Daemon, Topology};

/// The interfaces of the matrix: the name in the monitor's namespace, and the heading of its column.
const INTERFACES: [(&str, &str); 7] = [
    ("m-plain", "veth, as it is made"),
    ("m-gro", "veth, GRO on"),
    ("m-off", "veth, offloads off"),
    ("m-jumbo", "veth, MTU 9000"),
    ("m-near", "veth, both ends known, offloads off"),
    ("lo", "loopback"),
    ("m-tun", "tun"),
];

/// The bytes that are sent by TCP.
pub const SENT: usize = 2 << 20;
/// The times that a transfer is tried in which nothing is sent again.
const ATTEMPTS: usize = 10;

/// A probe that counts all packets: the metric, and the fields that add up to packets and bytes, if it has them.
pub struct Sum {
    pub probe: &'static str,
    pub metric: &'static str,
    pub packets: Option<&'static str>,
    pub bytes: Option<&'static str>,
}

pub const SUMS: [Sum; 11] = [
    sum("packet-counter", "protocols", "packets", "bytes"),
    sum("flow-features", "flows", "IN_PKTS", "IN_BYTES"),
    sum("top-talkers", "talkers_all", "packets", "bytes"),
    sum("protocol-mix", "protocol_mix", "packets_total", "bytes_total"),
    sum("packet-sizes", "size_class", "packets_total", "bytes_total"),
    sum("tcp-flags", "tcp_flags", "packets_total", "bytes_total"),
    sum("vlan", "vlan", "packets_total", "bytes_total"),
    sum("dscp-ecn", "dscp", "packets_total", "bytes_total"),
    sum("fragments-ttl", "fragment", "packets_total", "bytes_total"),
    Sum { probe: "heavy-hitters", metric: "all_bytes", packets: None, bytes: Some("") },
    Sum { probe: "distinct-sources", metric: "sources", packets: Some("packets"), bytes: None },
];

const fn sum(probe: &'static str, metric: &'static str, packets: &'static str, bytes: &'static str) -> Sum {
    Sum { probe, metric, packets: Some(packets), bytes: Some(bytes) }
}

/// Tells whether a reading of the probe's metric says what came since the reading before.
pub fn is_reset(probe: &str) -> bool {
    ["packet-counter", "flow-features", "heavy-hitters", "distinct-sources"].contains(&probe)
}

/// One deployment of all probes: the hook and the mode of the ingress, and the directions that are looked at as the table names
/// them.
struct Round {
    hook: &'static str,
    mode: Option<&'static str>,
    directions: &'static [(&'static str, &'static str)],
}

const ROUNDS: [Round; 3] = [
    Round {
        hook: "xdp",
        mode: Some("auto"),
        directions: &[("XDP, native where there is a driver", "ingress")],
    },
    Round { hook: "xdp", mode: Some("generic"), directions: &[("XDP, generic", "ingress")] },
    Round { hook: "tc", mode: None, directions: &[("TC ingress", "ingress"), ("TC egress", "egress")] },
];

/// The rows of the table: round, direction and cells, with the probes that have them.
type Rows = BTreeMap<(usize, usize, Vec<String>), BTreeSet<String>>;

/// The verdicts of the interfaces, by probe and direction.
type Said = BTreeMap<(String, &'static str), BTreeMap<String, String>>;

/// A daemon, and the interfaces of the matrix.
struct Scene {
    daemon: Daemon,
    topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let (near, far) = (topology.monitor(), topology.generator());
        for (number, (name, _)) in INTERFACES.iter().enumerate() {
            match *name {
                "lo" => near.run("ip", &["link", "set", "lo", "up"])?,
                "m-tun" => {
                    near.run("ip", &["tuntap", "add", name, "mode", "tun"])?;
                    near.run("ip", &["link", "set", name, "up"])?;
                }
                "m-near" => {
                    pair(near, name, near, "n-near")?;
                    switch_off(near, name)?;
                    switch_off(near, "n-near")?;
                    near.run("ip", &["link", "set", name, "up"])?;
                    near.run("ip", &["link", "set", "n-near", "up"])?;
                }
                _ => reachable(near, name, far, number)?,
            }
        }
        far.run("ip", &["link", "set", "lo", "up"])?;
        Ok(Self { daemon: Daemon::start(topology.monitor())?, topology })
    }

    /// Deploys a probe at all interfaces.
    fn put(&self, name: &str, Round { hook, mode, directions }: &Round) -> Result<Value> {
        let mut config = probes::configuration(name, "lo")?;
        let fields = config.as_object_mut().context("an object")?;
        fields.remove("interface");
        fields.insert("interfaces".to_owned(), json!(["m-*", "lo"]));
        if let Some(ingress) = config.get_mut("ingress") {
            ingress["hook"] = (*hook).into();
            ingress.as_object_mut().context("an object")?.remove("mode");
            if let Some(mode) = mode {
                ingress["mode"] = (*mode).into();
            }
        }
        // What nobody looks at takes time, but for maps that both directions need.
        if directions.len() == 1 && config.get("shared_maps").is_none() {
            config.as_object_mut().context("an object")?.remove("egress");
        }
        let answer = self.daemon.put(&format!("/v1/probes/{name}"), &config);
        ensure!(answer.status == 201, "PUT {name}: {} {}", answer.status, answer.text());
        Ok(answer.json())
    }

    fn document(&self, name: &str) -> Value {
        self.daemon.json(&format!("/v1/probes/{name}/metrics"))
    }

    fn all_counted(&self, sums: &[(&Sum, &str)]) -> Result<Vec<Traffic>> {
        // One reading of a probe resets both directions.
        let mut documents = BTreeMap::new();
        for (sum, _) in sums {
            documents.entry(sum.probe).or_insert_with(|| self.document(sum.probe));
        }
        sums.iter().map(|(sum, direction)| counted(&documents[sum.probe], sum, direction)).collect()
    }

    /// Sends by TCP to the monitor, through the interface, and returns what went in and out there by what the sockets say.
    fn transfer(&self, interface: &str) -> Result<Connection> {
        let (near, far) = (self.topology.monitor(), self.topology.generator());
        let number = INTERFACES.iter().position(|(name, _)| *name == interface).context("an interface")?;
        match interface {
            "lo" => Connection::transfer(near, near, "127.0.0.1:0", SENT),
            _ => Connection::transfer(far, near, &format!("10.77.{number}.2:0"), SENT),
        }
    }
}

/// Returns what a document says that its probe has counted in this direction, so far or since the reading before.
pub fn counted(document: &Value, sum: &Sum, direction: &str) -> Result<Traffic> {
    let metric = match sum.probe {
        "packet-counter" => format!("{direction}_{}", sum.metric),
        _ => sum.metric.to_owned(),
    };
    let entries = document[direction][&metric]["entries"].as_array();
    let entries = entries.with_context(|| format!("{}: no {direction}.{metric}", sum.probe))?;
    let number = |field: Option<&str>| {
        let of = |entry: &Value| match field {
            Some("") => entry["value"].as_u64(),
            Some(field) => entry["value"][field].as_u64(),
            None => Some(0),
        };
        entries.iter().map(|entry| of(entry).unwrap_or_default()).sum()
    };
    Ok(Traffic { frames: number(sum.packets), bytes: number(sum.bytes) })
}

/// Makes an interface that a sender reaches without asking for its address.
fn reachable(near: &Namespace, name: &str, far: &Namespace, number: usize) -> Result<()> {
    pair(near, name, far, name)?;
    match name {
        "m-gro" => near.run("ethtool", &["-K", name, "gro", "on"])?,
        "m-off" => {
            switch_off(near, name)?;
            switch_off(far, name)?;
        }
        _ => {}
    }
    let macs = [(near, 2), (far, 1)];
    for (namespace, last) in macs {
        let mac = format!("02:00:00:00:{number:02x}:{last:02x}");
        namespace.run("ip", &["link", "set", name, "address", &mac])?;
        if name == "m-jumbo" {
            namespace.run("ip", &["link", "set", name, "mtu", "9000"])?;
        }
        namespace.run("ip", &["link", "set", name, "up"])?;
        namespace.run("ip", &["address", "add", &format!("10.77.{number}.{last}/24"), "dev", name])?;
        let (other, mac) = (3 - last, format!("02:00:00:00:{number:02x}:{:02x}", 3 - last));
        let other = format!("10.77.{number}.{other}");
        namespace
            .run("ip", &["neigh", "replace", &other, "lladdr", &mac, "dev", name, "nud", "permanent"])?;
    }
    Ok(())
}

/// Returns the verdict on each interface in this direction, that a status tells.
fn verdicts(status: &Value, direction: &str) -> BTreeMap<String, String> {
    let verdict = |name: &str| {
        let mut places = status["interfaces"].as_array().into_iter().flatten();
        let is_of = |at: &Value| at["direction"].is_null() || at["direction"] == direction;
        match places.find(|at| at["interface"] == name && is_of(at)) {
            None => "-".to_owned(),
            Some(at) if at["state"] == "pending" => "refused".to_owned(),
            Some(at) => at["approximate"].as_str().map_or("exact".to_owned(), short),
        }
    };
    INTERFACES.iter().map(|(name, _)| ((*name).to_owned(), verdict(name))).collect()
}

/// Says in a few words why numbers are approximate.
fn short(reason: &str) -> String {
    let known = [
        ("VLAN tags", "tags"),
        ("GRO", "GRO"),
        ("GSO", "GSO"),
        ("LRO", "LRO"),
        ("generic XDP runs", "behind XDP"),
    ];
    let words: Vec<&str> =
        known.iter().filter(|(text, _)| reason.contains(text)).map(|(_, word)| *word).collect();
    format!("approximate: {}", words.join(", "))
}

/// Every probe at every hook says the same of each interface as the page, and where it says that it is exact, it counts what the
/// kernel's own TCP has sent.
#[test]
fn what_is_said_to_be_exact_is_what_was_sent() -> Result<()> {
    let scene = Scene::new()?;
    let mut rows = Rows::new();
    for (place, round) in ROUNDS.iter().enumerate() {
        let mut said = Said::new();
        for name in probes::names()? {
            let entry = index::entry(&name)?;
            let lists = |field: &str, word: &str| {
                entry[field].as_array().into_iter().flatten().any(|known| known == word)
            };
            let directions = round.directions.iter().enumerate();
            let directions: Vec<_> =
                directions.filter(|(_, (_, direction))| lists("directions", direction)).collect();
            if directions.is_empty() || !lists("hooks", round.hook) {
                continue;
            }
            let status = scene.put(&name, round)?;
            for (number, (_, direction)) in directions {
                let of = verdicts(&status, direction);
                let cells: Vec<String> = INTERFACES.iter().map(|(name, _)| of[*name].clone()).collect();
                rows.entry((place, number, cells)).or_default().insert(name.clone());
                said.insert((name.clone(), direction), of);
            }
            if !SUMS.iter().any(|sum| sum.probe == name) {
                scene.daemon.delete(&format!("/v1/probes/{name}")).expect(204);
            }
        }
        compare(&scene, &said)?;
        let deployed: BTreeSet<&String> = said.keys().map(|(name, _)| name).collect();
        for name in deployed.into_iter().filter(|name| SUMS.iter().any(|sum| sum.probe == *name)) {
            scene.daemon.delete(&format!("/v1/probes/{name}")).expect(204);
        }
    }
    page(&rows)
}

/// Sends through each interface, and compares the sums of the probes that say that they are exact there.
fn compare(scene: &Scene, said: &Said) -> Result<()> {
    let sums = said
        .keys()
        .filter_map(|(name, direction)| Some((SUMS.iter().find(|sum| sum.probe == name)?, *direction)));
    let sums: Vec<(&Sum, &str)> = sums.collect();
    let mut open = Vec::new();
    for (interface, _) in INTERFACES.into_iter().filter(|(name, _)| *name != "m-tun") {
        let (before, (received, sent)) = crossing(scene, &sums, interface, &mut open)?;
        let after = scene.all_counted(&sums)?;
        for (((sum, direction), before), after) in sums.iter().zip(before).zip(after) {
            let wanted = if *direction == "ingress" { received } else { sent };
            let wanted = Traffic {
                frames: if sum.packets.is_some() { wanted.frames } else { 0 },
                bytes: if sum.bytes.is_some() { wanted.bytes } else { 0 },
            };
            let before = if is_reset(sum.probe) { Traffic::default() } else { before };
            let found = Traffic { frames: after.frames - before.frames, bytes: after.bytes - before.bytes };
            let verdict = &said[&(sum.probe.to_owned(), *direction)][interface];
            ensure!(
                found == wanted || verdict != "exact",
                "{} at {interface}, {direction}: {found:?}, and {wanted:?} were sent",
                sum.probe
            );
        }
    }
    Ok(())
}

/// Sends through the interface. Returns what the probes had counted before, and what was received and sent there. On a busy machine
/// TCP may send again what was only late, with options that make the answers longer: then all is sent once more.
fn crossing(
    scene: &Scene,
    sums: &[(&Sum, &str)],
    interface: &str,
    open: &mut Vec<Connection>,
) -> Result<(Vec<Traffic>, (Traffic, Traffic))> {
    for _ in 0..ATTEMPTS {
        let before = scene.all_counted(sums)?;
        if interface == "m-near" {
            return Ok((before, (raw(scene, "n-near")?, raw(scene, "m-near")?)));
        }
        let connection = scene.transfer(interface)?;
        let sent = settled(&connection);
        open.push(connection);
        match sent {
            // Both sides are here.
            Ok((client, server)) if interface == "lo" => {
                return Ok((before, (client + server, client + server)));
            }
            Ok(sent) => return Ok((before, sent)),
            Err(error) => eprintln!("{interface}: {error:#}; all is sent once more"),
        }
    }
    bail!("{interface}: TCP sent something again each time")
}

/// Sends frames of all lengths, some with a tag, out of an interface.
fn raw(scene: &Scene, from: &str) -> Result<Traffic> {
    let socket = scene.topology.monitor().enter(|| PacketSocket::open(from))??;
    let mut sent = Traffic::default();
    for length in (60..1500).step_by(60) {
        for tag in [&[][..], &[0x81, 0, 0xa0, 100]] {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
            frame.extend(tag);
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((length as u16 - 14).to_be_bytes());
            frame.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 78, 0, 1, 10, 78, 0, 2]);
            frame.extend([4, 210, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 1, 0, 0, 0, 0]);
            frame.resize(length + tag.len(), 7);
            socket.send(&frame)?;
            sent = sent + Traffic { frames: 1, bytes: frame.len() as u64 };
        }
    }
    Ok(sent)
}

const BEGIN: &str = "<!-- the table is written by a test: UPDATE_GOLDEN=1 with library::wire -->\n";
const END: &str = "<!-- end of the table -->";

/// Compares the table with that of the page, or writes it.
fn page(rows: &Rows) -> Result<()> {
    let headings: Vec<&str> = INTERFACES.iter().map(|(_, heading)| *heading).collect();
    let mut table =
        format!("| hook | probes | {} |\n|{}\n", headings.join(" | "), "---|".repeat(headings.len() + 2));
    for ((place, number, cells), probes) in rows {
        let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
        table += &format!(
            "| {} | {} | {} |\n",
            ROUNDS[*place].directions[*number].0,
            probes.join(", "),
            cells.join(" | ")
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/exactness.md");
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page.split_once(BEGIN).context("the page has a place for the table")?;
    let (known, after) = rest.split_once(END).context("the table has an end")?;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return Ok(fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))?);
    }
    ensure!(known == table, "docs/exactness.md says\n{known}\nand it is so\n{table}");
    Ok(())
}

/// A tag that the sender leaves beside the packet is seen at TC; at XDP it is not, and the probe says so everywhere.
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
    far.run("tc", &["filter", "add", "dev", "gen0", "egress", "bpf", "da", "obj", &object, "sec", "tc"])?;
    let daemon = Daemon::start(near)?;
    let sender = far.enter(|| PacketSocket::open("gen0"))??;
    for hook in ["xdp", "tc"] {
        let mut config = probes::configuration("vlan", "mon0")?;
        config["ingress"]["hook"] = hook.into();
        if hook == "tc" {
            config["ingress"].as_object_mut().context("an object")?.remove("mode");
        }
        let report = daemon.post("/v1/validate?name=vlan", &config).expect(200).json();
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
            assert_eq!(entry["value"], json!({ "packets_total": 10, "bytes_total": 1460 }));
            assert_eq!(document["approximate"], Value::Null);
            assert!(!page.contains("twinprobe_approximate_info{"), "{page}");
            assert!(!doctor.contains("numbers are approximate"), "{doctor}");
        } else {
            assert_eq!(entry["value"], json!({ "packets_total": 10, "bytes_total": 1420 }));
            let advice = "txvlan off";
            for said in [&document["approximate"], &status["interfaces"][0]["approximate"]] {
                assert!(said.as_str().is_some_and(|said| said.contains(advice)), "{said}");
            }
            for warnings in [&report["warnings"], &status["warnings"]] {
                assert!(
                    warnings[0]["message"].as_str().is_some_and(|said| said.contains(advice)),
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
    topology.monitor().run("ip", &["tuntap", "add", "tun7", "mode", "tun"])?;
    topology.monitor().run("ip", &["link", "set", "tun7", "up"])?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = probes::configuration("packet-counter", "tun7")?;
    for (method, path) in [("PUT", "/v1/probes/packet-counter"), ("POST", "/v1/validate?name=packet-counter")]
    {
        let answer = match method {
            "PUT" => daemon.put(path, &config),
            _ => daemon.post(path, &config),
        };
        let error = answer.expect(422).json()["errors"][0].clone();
        assert_eq!(error["field"], "interface");
        let message = error["message"].as_str().context("a message")?;
        assert!(message.contains("tun7 has no Ethernet header (type none)"), "{message}");
    }
    daemon.get("/v1/probes/packet-counter").expect(404);
    let ends = ["local", "10.9.9.1", "remote", "10.9.9.2"];
    for (kind, ends) in [("wireguard", &[][..]), ("ipip", &ends), ("gre", &ends), ("sit", &ends)] {
        let name = format!("other-{kind}");
        let add = [&["link", "add", &name, "type", kind], ends].concat();
        if topology.monitor().run("ip", &add).is_err() {
            eprintln!("this kernel has no {kind}: not tried here");
            continue;
        }
        let answer =
            daemon.put("/v1/probes/packet-counter", &probes::configuration("packet-counter", &name)?);
        let message = answer.expect(422).json()["errors"][0]["message"].to_string();
        assert!(message.contains("has no Ethernet header"), "{message}");
    }
    let mut config = probes::configuration("packet-counter", "tun7")?;
    let fields = config.as_object_mut().context("an object")?;
    fields.remove("interface");
    fields.insert("interfaces".to_owned(), json!(["tun*", "mon0"]));
    let status = daemon.put("/v1/probes/packet-counter", &config).expect(201).json();
    let places = status["interfaces"].as_array().context("interfaces")?;
    let pending = places.iter().find(|at| at["interface"] == "tun7").context("tun7")?;
    assert_eq!(pending["state"], "pending");
    assert!(
        pending["reason"].as_str().is_some_and(|reason| reason.contains("no Ethernet header")),
        "{pending}"
    );
    // A program that says nothing of what it reads is let in, with a warning.
    let own = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); } \
        seen SEC(\".maps\");\n\
        SEC(\"tc\") int see(struct __sk_buff *skb) { __u32 key = 0; __u64 *n = bpf_map_lookup_elem(&seen, &key);\n\
        \tif (n) __sync_fetch_and_add(n, 1);\n\treturn -1;\n}\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let metrics = json!([{ "name": "seen", "map": "seen" }]);
    let own = json!({ "interface": "tun7", "ingress": { "hook": "tc", "source": own, "metrics": metrics } });
    let status = daemon.put("/v1/probes/own", &own).expect(201).json();
    let warning = status["warnings"][0]["message"].as_str().context("a warning")?;
    assert!(warning.contains("tun7 has no Ethernet header"), "{warning}");
    Ok(())
}
