//! Replacements with other layouts: fields that keep their names keep their counts, new fields
//! begin at zero.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::layouts::{LAYOUT_MAPS, Layout, Reading, field, packets};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Bystanders, Daemon, Topology, scaled};

const PROBE: &str = "/v1/probes/p";
const METRICS: &str = "/v1/probes/p/metrics";
/// The length of the generator's frames.
const BYTES: u64 = 60;

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// Compares every field of every map with the packets that were sent since the field exists.
fn check(document: &Value, layout: u32, since: &Since, what: &str) {
    assert_eq!(packets(document), since.packets, "{what}");
    for map in LAYOUT_MAPS {
        let sum = |path: &str| field(document, map, path);
        let what = format!("{map}, {what}");
        if layout < 3 {
            assert_eq!(sum("/bytes"), since.others * BYTES, "{what}");
            assert_eq!(
                sum("/ports/even") + sum("/ports/odd"),
                since.others,
                "{what}"
            );
            // The fields are also compared one by one, so that the test notices exchanged fields.
            assert_eq!(sum("/ports/even"), since.even, "{what}");
        }
        if layout == 1 {
            assert_eq!(sum("/added"), since.added, "{what}");
        }
        let entry = &document["ingress"][map]["entries"][0]["value"];
        let fields: Vec<&str> = entry
            .as_object()
            .expect("a struct")
            .keys()
            .map(String::as_str)
            .collect();
        let expected: &[&str] = match layout {
            0 => &["packets", "bytes", "ports"],
            1 => &["first", "packets", "bytes", "added", "ports"],
            2 => &["ports", "bytes", "packets"],
            _ => &["packets"],
        };
        assert_eq!(fields, expected, "{what}");
    }
}

/// The expected counts of the fields.
#[derive(Clone, Debug, Default)]
struct Since {
    packets: u64,
    /// The packets in `bytes` and `ports`; `even` has those with an even port.
    others: u64,
    even: u64,
    added: u64,
}

impl Since {
    /// Adds `sent` packets that `layout` has counted. The first packet is number `before` of the
    /// run.
    fn add(&mut self, layout: u32, before: u64, sent: u64) {
        // The port of packet n is 1024 + n / 256 % 97.
        let even = (before..before + sent)
            .filter(|n| (n / 256 % 97) % 2 == 0)
            .count() as u64;
        self.packets += sent;
        if layout < 3 {
            self.others += sent;
            self.even += even;
        } else {
            (self.others, self.even) = (0, 0);
        }
        self.added = if layout == 1 { self.added + sent } else { 0 };
    }
}

/// Fields are added, moved, removed and added again, first without readings in between, then with
/// them.
#[test]
fn fields_are_carried_by_their_names() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for reading in Reading::ALL {
        for read_before in [false, true] {
            let mut generator = generator(&topology)?;
            let (mut since, mut sent) = (Since::default(), 0);
            for (step, layout) in [0, 1, 2, 3, 0, 2, 1].into_iter().enumerate() {
                let what = format!(
                    "{reading:?}, step {step}, layout {layout}, read before: {read_before}"
                );
                let config = Layout {
                    layout,
                    ..Layout::new(reading)
                }
                .config();
                daemon
                    .put(PROBE, &config)
                    .expect(if step == 0 { 201 } else { 200 });
                let next = 1000 + 10 * step as u64;
                generator.send(next)?;
                since.add(layout, sent, next);
                sent += next;
                if read_before || step == 6 {
                    check(&daemon.json(METRICS), layout, &since, &what);
                    if reading == Reading::Window {
                        since = Since::default();
                    }
                }
            }
            daemon.delete(PROBE).expect(204);
        }
    }
    bystanders.finish()
}

/// Counters are copied before the switch, and counts until the end of the switch are added: even a
/// new layout costs no packet.
#[test]
fn no_packet_is_lost_to_a_new_layout() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for reading in Reading::ALL {
        daemon
            .put(PROBE, &Layout::new(reading).config())
            .expect(201);
        let load = generator(&topology)?.spawn(Load::default());
        let rounds = scaled(10, 200);
        let mut sum = 0;
        let mut read = |arrived: u64| {
            let now =
                if reading == Reading::Window { sum } else { 0 } + packets(&daemon.json(METRICS));
            assert!(
                now >= sum && now >= arrived,
                "{reading:?}: {now} after {sum}, {arrived} had arrived"
            );
            sum = now;
            now
        };
        for round in 1..=rounds {
            let layout = (round % 4) as u32;
            daemon
                .put(
                    PROBE,
                    &Layout {
                        layout,
                        ..Layout::new(reading)
                    }
                    .config(),
                )
                .expect(200);
            // Live maps are read one after the other, and agree only while no packet comes.
            if round % 3 != 0 && reading != Reading::Live {
                read(load.arrived());
            }
        }
        let sent = load.stop()?;
        assert_eq!(read(sent), sent, "{reading:?} after {rounds} new layouts");
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}

/// Another map type or another key makes another map; the other maps stay. The counts of the old
/// map are in the window that ends at the replacement.
#[test]
fn a_map_of_another_type_or_key_starts_empty() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut generator = generator(&topology)?;
    for reading in Reading::ALL {
        for (define, value) in [("HASH_TYPE", "BPF_MAP_TYPE_LRU_HASH"), ("KEY", "__u64")] {
            let mut config = Layout::new(reading).config();
            daemon.put(PROBE, &config).expect(201);
            generator.send(1000)?;
            config["ingress"]["defines"][define] = json!(value);
            daemon.put(PROBE, &config).expect(200);
            generator.send(10)?;
            if reading != Reading::Live {
                assert_eq!(
                    packets(&daemon.json(METRICS)),
                    1000,
                    "{reading:?}, {define} {value}"
                );
            }
            let document = daemon.json(METRICS);
            for map in LAYOUT_MAPS {
                let expected = match reading {
                    _ if map == "in_hash" => 10,
                    Reading::Window | Reading::Init => 10,
                    Reading::Live | Reading::Cumulative => 1010,
                };
                let found = field(&document, map, "/packets");
                assert_eq!(found, expected, "{map}, {reading:?}, {define} {value}");
            }
            daemon.delete(PROBE).expect(204);
        }
    }
    bystanders.finish()
}
