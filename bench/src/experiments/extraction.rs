//! Reading and erasing maps of each type, in batches and one by one (Fig. 5).

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::Daemon;
use twinprobe_tests::measure::Sample;
use twinprobe_tests::traffic::Frame;

use crate::frame::client::Client;
use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::bcc::Bcc;

const SIZES: [u32; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
const QUICK: [u32; 1] = [100];
const METRICS: &str = "/v1/probes/probe/metrics";
/// The number of frames of one call that runs the program. A call can't be interrupted, so this
/// limits the time of a call.
const CALL: u32 = 1_000_000;

/// The most entries that BCC reads one by one.
const BCC_MOST: u32 = 100_000;
/// The types for which BCC has batches.
const BCC_BATCHES: [&str; 2] = ["HASH", "LRU_HASH"];

/// A map type, how a program writes an entry, and whether the kernel has batches for it.
const KINDS: [(&str, &str, bool); 7] = [
    ("HASH", "bpf_map_update_elem(&table, &n, &value, 0);", true),
    (
        "LRU_HASH",
        "bpf_map_update_elem(&table, &n, &value, 0);",
        true,
    ),
    (
        "PERCPU_HASH",
        "bpf_map_update_elem(&table, &n, &value, 0);",
        true,
    ),
    ("ARRAY", "bpf_map_update_elem(&table, &n, &value, 0);", true),
    (
        "PERCPU_ARRAY",
        "bpf_map_update_elem(&table, &n, &value, 0);",
        true,
    ),
    (
        "LPM_TRIE",
        "struct prefix p = { 32, n }; bpf_map_update_elem(&table, &p, &value, 0);",
        true,
    ),
    ("QUEUE", "bpf_map_push_elem(&table, &value, 0);", false),
];

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Reading and erasing maps (Fig. 5)",
        "How long does it take to read a map, and to read and erase it, by its entries?",
        "GET of a full map of u32 -> u64, from connecting to the Unix socket to the last byte of JSON, by a client \
         that discards what it reads: in turns in batches (`strategy: auto`) and one by one (`strategy: \
         iterative`), by two probes. `null` compares batches with batches. BCC reads its own map, in turns with ours. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "`read` is of a live metric; `read and erase` of one with `snapshot` and `init`: flip, grace period, \
         extraction, file and its fsync, reset. The kernel runs the program on frames, and so fills the map. Each \
         answer has all entries. The kernel has no batches for a QUEUE, and a pop both reads and erases. BCC runs \
         in one process. It reads in batches if it has them (HASH, LRU_HASH), else one by one, up to 100,000 entries. It sums the values in Python, and renders and stores nothing."
        .to_owned();
    let mut table = Table::new(&[
        "map",
        "operation",
        "entries",
        "rounds",
        "batches, us",
        "one by one, us",
        "one by one / batches",
        "null",
        "BCC, us",
        "BCC / ours",
    ]);
    let bcc_site = Site::new(bench)?;
    let mut bcc = Bcc::reader(bcc_site.topology.monitor())?;
    let mut against = Vec::new();
    let mut panels = Vec::new();
    let mut best = Vec::new();
    for (kind, write, batches) in bench.cases(&KINDS, &[KINDS[0], KINDS[4], KINDS[5], KINDS[6]]) {
        let mut curves = Vec::new();
        for (operation, erase) in [("read", false), ("read and erase", true)] {
            // A reading removes elements of a QUEUE.
            if !batches && !erase {
                continue;
            }
            let names = if batches {
                &["batches", "one by one"][..]
            } else {
                &["one by one"]
            };
            let mut points = vec![Vec::new(); names.len()];
            let mut bcc_points = Vec::new();
            for entries in bench.cases(&SIZES, &QUICK) {
                let site = Site::new(bench)?;
                let filled = Filled::new(&site, kind, write, entries, erase, batches)?;
                let rounds = bench.rounds((30_000 / u64::from(entries)).clamp(3, 60), 1);
                let mut peer = bcc
                    .as_mut()
                    .filter(|_| entries <= BCC_MOST || BCC_BATCHES.contains(&kind));
                if let Some(bcc) = peer.as_mut() {
                    bcc.make(kind, entries)?;
                    // The first reading touches the memory, as below.
                    bcc.read(erase)?;
                }
                let (compared, theirs) = filled.measure(rounds, peer)?;
                // Our best way: batches, if the type has them.
                let ours = if batches {
                    &compared.base
                } else {
                    &compared.other
                };
                let pairs = theirs
                    .values()
                    .iter()
                    .zip(ours.values())
                    .map(|(bcc, ours)| bcc / ours);
                let pairs: Sample = pairs.collect();
                let mut beside = [String::new(), String::new()];
                if !theirs.is_empty() {
                    let (time, ratio) = (Estimate::of(&theirs), Estimate::of(&pairs));
                    beside = [time.show(0), ratio.show(2)];
                    bcc_points.push((f64::from(entries), time));
                    if entries == BCC_MOST {
                        against.push(format!("{kind}, {operation}: {:.1}", ratio.value));
                    }
                }
                let [bcc_time, bcc_ratio] = beside;
                let both = [&compared.base, &compared.other].map(Estimate::of);
                for (points, estimate) in points.iter_mut().zip(both) {
                    points.push((f64::from(entries), estimate));
                }
                if batches && entries == 100_000 {
                    best.push(format!(
                        "{kind}, {operation}: {:.1}",
                        compared.ratio().value
                    ));
                }
                let only = |text: String| if batches { text } else { String::new() };
                table.row([
                    kind.to_owned(),
                    operation.to_owned(),
                    entries.to_string(),
                    rounds.to_string(),
                    only(both[0].show(0)),
                    both[1].show(0),
                    only(compared.ratio().show(2)),
                    compared.null_ratio().show(2),
                    bcc_time,
                    bcc_ratio,
                ]);
            }
            if !bcc_points.is_empty() {
                curves.push(Curve {
                    name: format!("{operation}, BCC"),
                    points: bcc_points,
                });
            }
            for (name, points) in names.iter().zip(points) {
                curves.push(Curve {
                    name: format!("{operation}, {name}"),
                    points,
                });
            }
        }
        panels.push(Panel {
            title: kind.to_owned(),
            curves,
        });
    }
    section.tables.push(table);
    section.figures.push(Figure {
        name: "maps",
        title: "Time to read a map over HTTP, and to read and erase it, by its entries",
        x: Axis {
            label: "entries",
            logarithmic: true,
        },
        y: Axis {
            label: "us",
            logarithmic: true,
        },
        panels,
    });
    section.meaning =
        "Up to some hundred entries the request and, with windows, the disk take most of the time. With more entries, batches \
        save most of the time. Use `iterative` only to compare."
            .to_owned();
    section.claims.push(Claim {
        claim: "batches against one by one, 100,000 entries, over HTTP",
        paper: "batches win from ten entries on",
        ours: best.join("; "),
        peers: if against.is_empty() {
            "BCC: not here".into()
        } else {
            format!("BCC by ours: {}", against.join("; "))
        },
    });
    Ok(section)
}

/// Two probes with a full map each. The map of one probe is read in batches.
struct Filled<'a> {
    site: &'a Site,
    daemon: Daemon,
    entries: u32,
    erase: bool,
    batches: bool,
    config: Box<dyn Fn(&str) -> Value>,
}

impl<'a> Filled<'a> {
    fn new(
        site: &'a Site,
        kind: &'static str,
        write: &'static str,
        entries: u32,
        erase: bool,
        batches: bool,
    ) -> Result<Self> {
        let interface = site.interface().to_owned();
        let (key, flags) = match kind {
            "LPM_TRIE" => ("struct prefix", "__uint(map_flags, 1);"),
            "QUEUE" => ("", ""),
            _ => ("__u32", ""),
        };
        let key = if key.is_empty() {
            String::new()
        } else {
            format!("__type(key, {key});")
        };
        // An LRU map evicts before it is full.
        let room = if kind == "LRU_HASH" {
            4 * entries + 1_024
        } else {
            entries
        };
        let source = format!(
            "#include <linux/bpf.h>\n\
             #include <bpf/bpf_helpers.h>\n\
             struct prefix {{ __u32 length, address; }};\n\
             struct {{ __uint(type, BPF_MAP_TYPE_{kind}); __uint(max_entries, {room}); {flags} {key} __type(value, __u64); }} \
             table SEC(\".maps\");\n\
             struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32); }} \
             position SEC(\".maps\");\n\
             SEC(\"xdp\") int fill(struct xdp_md *ctx)\n\
             {{\n\
             \t__u32 zero = 0, *next = bpf_map_lookup_elem(&position, &zero);\n\
             \tif (!next)\n\
             \t\treturn XDP_PASS;\n\
             \t__u32 n = *next;\n\
             \t*next = n + 1 == {entries} ? 0 : n + 1;\n\
             \t__u64 value = n;\n\
             \t{write}\n\
             \treturn XDP_PASS;\n\
             }}\n\
             char LICENSE[] SEC(\"license\") = \"GPL\";\n"
        );
        let config = Box::new(move |strategy: &str| {
            let agg = if kind.starts_with("PERCPU") {
                json!("sum")
            } else {
                Value::Null
            };
            let mut metric = json!({ "name": "table", "map": "table", "snapshot": erase, "init": erase, "strategy": strategy });
            if !agg.is_null() {
                metric["agg"] = agg;
            }
            json!({ "interface": interface, "ingress": { "source": source, "metrics": [metric] } })
        });
        let daemon = site.daemon(&["--max-map-bytes", "8589934592"])?;
        Ok(Self {
            site,
            daemon,
            entries,
            erase,
            batches,
            config,
        })
    }

    /// Measures both probes, and BCC once a round.
    fn measure(&self, rounds: u64, mut bcc: Option<&mut Bcc>) -> Result<(Comparison, Sample)> {
        let mut theirs = Sample::default();
        let ours = self.compare(rounds, |way| {
            if let (Way::Other, Some(bcc)) = (way, bcc.as_mut()) {
                theirs.add(bcc.read(self.erase)?);
            }
            Ok(())
        })?;
        Ok((ours, theirs))
    }

    fn compare(
        &self,
        rounds: u64,
        mut beside: impl FnMut(Way) -> Result<()>,
    ) -> Result<Comparison> {
        let mut client = Client::new(&self.daemon);
        let mut deployed = "";
        let mut answer = Vec::new();
        Comparison::measure(rounds, |way| {
            beside(way)?;
            let strategy = if way == Way::Base && self.batches {
                "auto"
            } else {
                "iterative"
            };
            if deployed != strategy {
                let replaced = self
                    .daemon
                    .put("/v1/probes/probe", &(self.config)(strategy));
                ensure!(replaced.status < 300, "{}", replaced.text());
                deployed = strategy;
                self.fill()?;
                // The first reading touches the memory.
                client.get(METRICS, &mut answer)?;
                if self.erase {
                    self.fill()?;
                }
            } else if self.erase {
                self.fill()?;
            }
            let started = Instant::now();
            client.get(METRICS, &mut answer)?;
            let time = 1e6 * started.elapsed().as_secs_f64();
            let values = answer
                .windows(8)
                .filter(|part| part == b"\"value\":")
                .count();
            ensure!(
                values == self.entries as usize,
                "{values} entries of {}",
                self.entries
            );
            Ok(time)
        })
    }

    /// Runs the attached program once for each entry.
    fn fill(&self) -> Result<()> {
        let program = self.site.attached("xdp").context("the dispatcher")?;
        let mut left = self.entries;
        while left > 0 {
            let now = left.min(CALL);
            program.run(Frame::default().bytes(), now)?;
            left -= now;
        }
        Ok(())
    }
}
