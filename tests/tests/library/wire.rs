//! The probes count the packets of the wire, even if an interface changes packets, or say why not.
//! The test runs each probe at each hook on interfaces with offloads on and off, and compares it
//! with the traffic that the kernel's own TCP has sent. The table in `docs/exactness.md` has the
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

/// The interfaces of the matrix: the name in the monitor's namespace, and the heading of its
/// column.
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
/// The number of attempts at a transfer without repeated segments.
const ATTEMPTS: usize = 10;

/// A probe that counts all packets: the metric, and the fields that add up to packets and bytes, if
/// it has them.
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
    sum(
        "protocol-mix",
        "protocol_mix",
        "packets_total",
        "bytes_total",
    ),
    sum("packet-sizes", "size_class", "packets_total", "bytes_total"),
    sum("tcp-flags", "tcp_flags", "packets_total", "bytes_total"),
    sum("vlan", "vlan", "packets_total", "bytes_total"),
    sum("dscp-ecn", "dscp", "packets_total", "bytes_total"),
    sum("fragments-ttl", "fragment", "packets_total", "bytes_total"),
    Sum {
        probe: "heavy-hitters",
        metric: "all_bytes",
        packets: None,
        bytes: Some(""),
    },
    Sum {
        probe: "distinct-sources",
        metric: "sources",
        packets: Some("packets"),
        bytes: None,
    },
];

const fn sum(
    probe: &'static str,
    metric: &'static str,
    packets: &'static str,
    bytes: &'static str,
) -> Sum {
    Sum {
        probe,
        metric,
        packets: Some(packets),
        bytes: Some(bytes),
    }
}

/// Tells whether a reading of the probe's metric covers only the packets since the previous
/// reading.
pub fn is_reset(probe: &str) -> bool {
    [
        "packet-counter",
        "flow-features",
        "heavy-hitters",
        "distinct-sources",
    ]
    .contains(&probe)
}

/// One deployment of all probes: the hook and the mode of the ingress, and the examined directions
/// with their names in the table.
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
    Round {
        hook: "xdp",
        mode: Some("generic"),
        directions: &[("XDP, generic", "ingress")],
    },
    Round {
        hook: "tc",
        mode: None,
        directions: &[("TC ingress", "ingress"), ("TC egress", "egress")],
    },
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
        Ok(Self {
            daemon: Daemon::start(topology.monitor())?,
            topology,
        })
    }

    /// Deploys a probe at all interfaces.
    fn put(
        &self,
        name: &str,
        Round {
            hook,
            mode,
            directions,
        }: &Round,
    ) -> Result<Value> {
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
        // Without a map of both directions, the other direction only takes time.
        if directions.len() == 1 && config.get("shared_maps").is_none() {
            config
                .as_object_mut()
                .context("an object")?
                .remove("egress");
        }
        let answer = self.daemon.put(&format!("/v1/probes/{name}"), &config);
        ensure!(
            answer.status == 201,
            "PUT {name}: {} {}",
            answer.status,
            answer.text()
        );
        Ok(answer.json())
    }

    fn document(&self, name: &str) -> Value {
        self.daemon.json(&format!("/v1/probes/{name}/metrics"))
    }

    fn all_counted(&self, sums: &[(&Sum, &str)]) -> Result<Vec<Traffic>> {
        // One reading of a probe resets both directions.
        let mut documents = BTreeMap::new();
        for (sum, _) in sums {
            documents
                .entry(sum.probe)
                .or_insert_with(|| self.document(sum.probe));
        }
        sums.iter()
            .map(|(sum, direction)| counted(&documents[sum.probe], sum, direction))
            .collect()
    }

    /// Sends by TCP to the monitor, through the interface, and returns the incoming and outgoing
    /// traffic there, as reported by the sockets.
    fn transfer(&self, interface: &str) -> Result<Connection> {
        let (near, far) = (self.topology.monitor(), self.topology.generator());
        let number = INTERFACES
            .iter()
            .position(|(name, _)| *name == interface)
            .context("an interface")?;
        match interface {
            "lo" => Connection::transfer(near, near, "127.0.0.1:0", SENT),
            _ => Connection::transfer(far, near, &format!("10.77.{number}.2:0"), SENT),
        }
    }
}

/// Returns the counts in a document for this direction, in total or since the previous reading.
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
        entries
            .iter()
            .map(|entry| of(entry).unwrap_or_default())
            .sum()
    };
    Ok(Traffic {
        frames: number(sum.packets),
        bytes: number(sum.bytes),
    })
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
        namespace.run(
            "ip",
            &[
                "address",
                "add",
                &format!("10.77.{number}.{last}/24"),
                "dev",
                name,
            ],
        )?;
        let (other, mac) = (
            3 - last,
            format!("02:00:00:00:{number:02x}:{:02x}", 3 - last),
        );
        let other = format!("10.77.{number}.{other}");
        namespace.run(
            "ip",
            &[
                "neigh",
                "replace",
                &other,
                "lladdr",
                &mac,
                "dev",
                name,
                "nud",
                "permanent",
            ],
        )?;
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
    INTERFACES
        .iter()
        .map(|(name, _)| ((*name).to_owned(), verdict(name)))
        .collect()
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
    let words: Vec<&str> = known
        .iter()
        .filter(|(text, _)| reason.contains(text))
        .map(|(_, word)| *word)
        .collect();
    format!("approximate: {}", words.join(", "))
}

/// Every probe at every hook has the page's verdict for each interface. Where the verdict is
/// "exact", the probe counts the packets that the kernel's own TCP has sent.
#[test]
fn what_is_said_to_be_exact_is_what_was_sent() -> Result<()> {
    let scene = Scene::new()?;
    let mut rows = Rows::new();
    for (place, round) in ROUNDS.iter().enumerate() {
        let mut said = Said::new();
        for name in probes::names()? {
            let entry = index::entry(&name)?;
            let lists = |field: &str, word: &str| {
                entry[field]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|known| known == word)
            };
            let directions = round.directions.iter().enumerate();
            let directions: Vec<_> = directions
                .filter(|(_, (_, direction))| lists("directions", direction))
                .collect();
            if directions.is_empty() || !lists("hooks", round.hook) {
                continue;
            }
            let status = scene.put(&name, round)?;
            for (number, (_, direction)) in directions {
                let of = verdicts(&status, direction);
                let cells: Vec<String> = INTERFACES
                    .iter()
                    .map(|(name, _)| of[*name].clone())
                    .collect();
                rows.entry((place, number, cells))
                    .or_default()
                    .insert(name.clone());
                said.insert((name.clone(), direction), of);
            }
            if !SUMS.iter().any(|sum| sum.probe == name) {
                scene
                    .daemon
                    .delete(&format!("/v1/probes/{name}"))
                    .expect(204);
            }
        }
        compare(&scene, &said)?;
        let deployed: BTreeSet<&String> = said.keys().map(|(name, _)| name).collect();
        for name in deployed
            .into_iter()
            .filter(|name| SUMS.iter().any(|sum| sum.probe == *name))
        {
            scene
                .daemon
                .delete(&format!("/v1/probes/{name}"))
                .expect(204);
        }
    }
    page(&rows)
}

/// Sends through each interface, and compares the sums of the probes that say that they are exact
/// there.
fn compare(scene: &Scene, said: &Said) -> Result<()> {
    let sums = said.keys().filter_map(|(name, direction)| {
        Some((SUMS.iter().find(|sum| sum.probe == name)?, *direction))
    });
    let sums: Vec<(&Sum, &str)> = sums.collect();
    let mut open = Vec::new();
    for (interface, _) in INTERFACES.into_iter().filter(|(name, _)| *name != "m-tun") {
        let (before, (received, sent)) = crossing(scene, &sums, interface, &mut open)?;
        let after = scene.all_counted(&sums)?;
        for (((sum, direction), before), after) in sums.iter().zip(before).zip(after) {
            let wanted = if *direction == "ingress" {
                received
            } else {
                sent
            };
            let wanted = Traffic {
                frames: if sum.packets.is_some() {
                    wanted.frames
                } else {
                    0
                },
                bytes: if sum.bytes.is_some() { wanted.bytes } else { 0 },
            };
            let before = if is_reset(sum.probe) {
                Traffic::default()
            } else {
                before
            };
            let found = Traffic {
                frames: after.frames - before.frames,
                bytes: after.bytes - before.bytes,
            };
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

/// Sends through the interface. Returns the earlier counts of the probes, and the traffic that was
/// received and sent there. On a busy machine TCP may repeat a segment that was only late, with
/// options that make the answers longer: then all is sent again.
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
            // Both ends are at this interface.
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
    let socket = scene
        .topology
        .monitor()
        .enter(|| PacketSocket::open(from))??;
    let mut sent = Traffic::default();
    for length in (60..1500).step_by(60) {
        for tag in [&[][..], &[0x81, 0, 0xa0, 100]] {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
            frame.extend(tag);
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((length as u16 - 14).to_be_bytes());
            frame.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 78, 0, 1, 10, 78, 0, 2]);
            frame.extend([
                4, 210, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 1, 0, 0, 0, 0,
            ]);
            frame.resize(length + tag.len(), 7);
            socket.send(&frame)?;
            sent = sent
                + Traffic {
                    frames: 1,
                    bytes: frame.len() as u64,
                };
        }
    }
    Ok(sent)
}

/// Compares the table with the table of the page, or writes the table into the page.
fn page(rows: &Rows) -> Result<()> {
    let headings: Vec<&str> = INTERFACES.iter().map(|(_, heading)| *heading).collect();
    let mut table = format!(
        "| hook | probes | {} |\n|{}\n",
        headings.join(" | "),
        "---|".repeat(headings.len() + 2)
    );
    for ((place, number, cells), probes) in rows {
        let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
        table += &format!(
            "| {} | {} | {} |\n",
            ROUNDS[*place].directions[*number].0,
            probes.join(", "),
            cells.join(" | ")
        );
    }
    table_of_page("library::wire", &table)
}

/// Compares a table with that which `docs/exactness.md` has between the marks of this test, or
/// writes it there.
pub fn table_of_page(test: &str, table: &str) -> Result<()> {
    let begin = format!("<!-- the table is written by a test: UPDATE_GOLDEN=1 with {test} -->\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/exactness.md");
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page
        .split_once(&begin)
        .context("the page has a place for the table")?;
    let (known, after) = rest.split_once(END).context("the table has an end")?;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return Ok(fs::write(
            &path,
            format!("{before}{begin}{table}{END}{after}"),
        )?);
    }
    ensure!(
        known == table,
        "docs/exactness.md says\n{known}\nand it is so\n{table}"
    );
    Ok(())
}

/// The mark after a table.
const END: &str = "<!-- end of the table -->";
