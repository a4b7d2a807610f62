//! The configurations of the model's probes: their hooks, the maps they count in, and how these are
//! read.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ledger::{Key, Mode, Room};
use crate::random::Random;

const SOURCE: &str = include_str!("../../bpf/model.bpf.c");
/// The number of low bits of a packet's number that count within its burst; the bits above are the
/// burst's key.
pub const SHIFT: u32 = 12;
/// The number of bursts that a run can have.
pub const KEYS: Key = 256;
/// The weight of a packet in each field of a value.
pub const WEIGHTS: [(&str, u64); 4] = [("", 1), ("packets", 1), ("bytes", 3), ("extra", 5)];
/// The number of entries of the queue.
pub const QUEUED: u32 = 1 << 16;

/// The maps of `model.bpf.c`.
pub const MAPS: [&str; 8] = [
    "array",
    "hash",
    "percpu_array",
    "percpu_hash",
    "trie",
    "global",
    "nested",
    "queue",
];

/// The hook and interface of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// XDP ingress of mon0.
    Xdp,
    /// XDP ingress of mon0 and of all interfaces that match `ext*`.
    XdpPattern,
    /// TC ingress of mon0.
    TcIngress,
    /// TC egress of mon1.
    TcEgress,
    /// TC ingress of the interface in the temporary namespace.
    Space,
}

/// The definition of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    pub map: &'static str,
    pub mode: Mode,
    /// The index of the value's type.
    pub layout: u32,
    pub entries: u32,
    /// True if the map `hash` has its other map type.
    pub other_type: bool,
    /// True for `on_replace: reset`.
    pub reset: bool,
}

/// The definition of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    pub place: Place,
    pub metrics: Vec<MetricSpec>,
    pub enforce: bool,
    /// The interval in milliseconds.
    pub interval: Option<u32>,
    pub collectors: bool,
    pub variant: u32,
    /// A part of the metrics' names, so that windows tell under which configuration they were
    /// closed.
    pub generation: u32,
    /// The namespace's path for [`Place::Space`].
    pub netns: Option<String>,
    /// The mistake for which the daemon must refuse the configuration.
    pub broken: Option<Broken>,
}

/// A mistake in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Compile,
    Verify,
    Config,
    Interface,
    /// The inner maps of a map of maps differ, and the verifier refuses.
    Inner,
}

impl MetricSpec {
    pub fn name(&self, generation: u32) -> String {
        format!("{}_{:?}_{generation}", self.map, self.mode).to_lowercase()
    }

    /// Returns the fields of the values.
    pub fn fields(&self) -> &'static [&'static str] {
        match (self.map, self.layout) {
            ("queue", _) | (_, 0) => &[""],
            (_, 1 | 3) => &["packets", "bytes"],
            (_, 2) => &["bytes", "extra", "packets"],
            _ => &["packets"],
        }
    }

    pub fn is_snapshot(&self) -> bool {
        matches!(self.mode, Mode::Window | Mode::Sum)
    }

    /// Tells whether a reading removes anything from the map, so that the content is part of a
    /// window.
    pub fn is_windowed(&self) -> bool {
        self.mode != Mode::Live
    }

    /// Tells whether counts may be lost while the map is read and reset: the map is copied and
    /// reset in two steps, or a program still has a removed entry. A variable loses counts only by
    /// a kill between them.
    pub fn is_racy(&self) -> bool {
        self.mode == Mode::Init && self.map != "queue"
    }

    pub fn is_single(&self) -> bool {
        self.map == "global"
    }

    /// Returns the keys for which the map has room.
    pub fn room(&self) -> Room {
        match self.map {
            "array" | "percpu_array" => Room::Below(self.entries),
            "hash" if self.other_type => Room::Any(KEYS.into()),
            "hash" | "percpu_hash" | "trie" => Room::Any(self.entries.into()),
            _ => Room::Below(KEYS),
        }
    }

    /// Tells whether the metric's sum has room for only as many entries as the map.
    fn is_small_sum(&self) -> bool {
        let is_lru = self.map == "hash" && self.other_type;
        let comes_and_goes = matches!(self.map, "hash" | "percpu_hash" | "trie") && !is_lru;
        self.mode == Mode::Sum && self.entries < 64 && comes_and_goes
    }

    fn is_percpu(&self) -> bool {
        self.map.starts_with("percpu")
    }

    fn config(&self, generation: u32) -> Value {
        let map = if self.map == "global" {
            ".bss:global"
        } else {
            self.map
        };
        let mut metric = json!({ "name": self.name(generation), "map": map });
        metric["snapshot"] = json!(self.is_snapshot());
        // A queue is popped with or without `init`.
        let silent = self.map == "queue" && self.mode == Mode::Init && self.other_type;
        metric["init"] = json!(matches!(self.mode, Mode::Window | Mode::Init) && !silent);
        if self.is_percpu() {
            metric["agg"] = json!("sum");
        }
        if self.is_small_sum() {
            metric["sum_entries"] = json!(self.entries);
        }
        if self.reset {
            metric["on_replace"] = json!("reset");
        }
        metric
    }

    /// Returns a random metric on a map.
    pub fn choose(map: &'static str, random: &mut Random) -> Self {
        let mode = match map {
            "queue" => pick(random, &[Mode::Window, Mode::Init]),
            // Maps of maps are not added up.
            "nested" => pick(random, &[Mode::Live, Mode::Window, Mode::Init]),
            _ => pick(
                random,
                &[
                    Mode::Live,
                    Mode::Window,
                    Mode::Window,
                    Mode::Sum,
                    Mode::Sum,
                    Mode::Init,
                ],
            ),
        };
        let entries = if map == "queue" {
            QUEUED
        } else {
            pick(random, &[256, 300, 512])
        };
        Self {
            map,
            mode,
            layout: pick(random, &[0, 0, 0, 1, 2, 3, 4]),
            entries,
            other_type: random.below(4) == 0,
            reset: random.below(8) == 0,
        }
    }
}

/// Returns a random element of `of`.
pub fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

impl ProbeSpec {
    /// Returns a random configuration of a new probe.
    pub fn choose(place: Place, generation: u32, random: &mut Random) -> Self {
        let mut metrics = Vec::new();
        for map in MAPS {
            if random.below(2) == 0 {
                metrics.push(MetricSpec::choose(map, random));
            }
        }
        if metrics.is_empty() {
            metrics.push(MetricSpec::choose("hash", random));
        }
        let mut spec = Self {
            place,
            metrics,
            enforce: place == Place::Xdp && random.below(2) == 0,
            interval: (random.below(3) == 0).then(|| pick(random, &[60, 200, 700])),
            collectors: random.below(3) == 0,
            variant: 0,
            generation,
            netns: None,
            broken: None,
        };
        spec.settle();
        spec
    }

    /// Returns the next configuration of a probe, with one to three random changes.
    #[must_use]
    pub fn change(&self, generation: u32, random: &mut Random) -> Self {
        let mut spec = Self {
            generation,
            ..self.clone()
        };
        for _ in 0..=random.below(3) {
            spec.change_one(random);
        }
        spec.settle();
        spec
    }

    fn change_one(&mut self, random: &mut Random) {
        let at = random.below(self.metrics.len() as u64) as usize;
        let metric = &mut self.metrics[at];
        match random.below(12) {
            0 => self.variant += 1,
            1..=3 => metric.layout = pick(random, &[0, 0, 0, 1, 2, 3, 4]),
            4..=6 => metric.mode = MetricSpec::choose(metric.map, random).mode,
            7 if metric.map != "queue" => metric.entries = pick(random, &[16, 64, 256, 300, 512]),
            7 => metric.entries = pick(random, &[QUEUED, 2 * QUEUED]),
            8 => metric.other_type = !metric.other_type,
            9 => metric.reset = !metric.reset,
            10 => {
                if self.metrics.len() > 1 {
                    self.metrics.remove(at);
                }
            }
            _ => {
                let map = pick(random, &MAPS);
                if self.metrics.iter().all(|metric| metric.map != map) {
                    self.metrics.push(MetricSpec::choose(map, random));
                }
                if random.below(3) == 0 {
                    self.interval = pick(random, &[None, Some(60), Some(200), Some(700)]);
                }
                self.enforce ^= self.place == Place::Xdp && random.below(2) == 0;
            }
        }
    }

    /// Adapts the configuration so that the daemon accepts it.
    fn settle(&mut self) {
        for metric in &mut self.metrics {
            // Inner maps and queues are never too small.
            if matches!(metric.map, "nested" | "queue") {
                metric.entries = metric.entries.max(KEYS);
            }
        }
        if !self.has_windows() {
            self.interval = None;
        }
    }

    pub fn has_windows(&self) -> bool {
        self.metrics.iter().any(MetricSpec::is_windowed)
    }

    pub fn metric(&self, map: &str) -> Option<&MetricSpec> {
        self.metrics.iter().find(|metric| metric.map == map)
    }

    /// Returns the configuration document.
    pub fn config(&self) -> Value {
        let (section, context, pass, drop) = match self.place {
            Place::Xdp | Place::XdpPattern => ("\"xdp\"", "xdp_md", "XDP_PASS", "XDP_DROP"),
            Place::TcIngress | Place::TcEgress | Place::Space => ("\"tc\"", "__sk_buff", "-1", "2"),
        };
        let mut defines: BTreeMap<String, String> = BTreeMap::new();
        let mut define = |name: String, value: &str| {
            defines.insert(name, value.to_owned());
        };
        define("SECTION".into(), section);
        define("CONTEXT".into(), context);
        define("PASS".into(), pass);
        define("DROP".into(), drop);
        define("VARIANT".into(), &self.variant.to_string());
        if self.enforce {
            define("ENFORCED".into(), "1");
        }
        if matches!(self.broken, Some(Broken::Verify | Broken::Inner)) {
            define("UNVERIFIABLE".into(), "1");
        }
        let compile_error = self.broken == Some(Broken::Compile);
        for metric in &self.metrics {
            let map = metric.map;
            define(format!("ON_{map}"), "1");
            let mut layout = metric.layout;
            if self.broken == Some(Broken::Inner) && map == "nested" {
                // The layout has the same size and other fields, if there is such a layout.
                layout = [4, 3, 0, 1, 0][layout as usize];
            }
            let layout = layout.to_string();
            define(
                format!("LAYOUT_{map}"),
                if compile_error { "nonsense" } else { &layout },
            );
            let entries = match metric.other_type && map == "hash" {
                // A small LRU_HASH evicts before it is full.
                true => 32 * metric.entries,
                false => metric.entries,
            };
            define(format!("ENTRIES_{map}"), &entries.to_string());
            if map == "hash" {
                let other = metric.other_type;
                define(
                    "TYPE_hash".into(),
                    if other {
                        "BPF_MAP_TYPE_LRU_HASH"
                    } else {
                        "BPF_MAP_TYPE_HASH"
                    },
                );
            }
        }
        let metrics: Vec<Value> = self
            .metrics
            .iter()
            .map(|metric| metric.config(self.generation))
            .collect();
        let mut direction = json!({ "source": SOURCE, "defines": defines, "metrics": metrics });
        direction["verdict"] = json!(if self.enforce { "enforce" } else { "observe" });
        if self.broken == Some(Broken::Config) {
            direction["metrics"][0]["map"] = json!("there_is_no_such_map");
        }
        let mut config = json!({ "window": { "retain": 100_000 } });
        match self.place {
            Place::Xdp | Place::XdpPattern => config["ingress"] = direction,
            Place::TcIngress | Place::Space => {
                direction["hook"] = json!("tc");
                config["ingress"] = direction;
            }
            Place::TcEgress => config["egress"] = direction,
        }
        config["interfaces"] = match self.place {
            _ if self.broken == Some(Broken::Interface) => json!(["nowhere0", "no/name"]),
            Place::Xdp | Place::TcIngress => json!(["mon0"]),
            Place::XdpPattern => json!(["mon0", "ext*"]),
            Place::TcEgress => json!(["mon1"]),
            Place::Space => json!(["in0"]),
        };
        if let Some(netns) = &self.netns {
            (config["netns"], config["wait_for_interface"]) = (json!(netns), json!(true));
        }
        if let Some(interval) = self.interval {
            config["window"]["interval"] = json!(format!("{interval}ms"));
        }
        if self.collectors {
            config["window"]["collectors"] = json!(["a", "b"]);
        }
        config
    }
}
