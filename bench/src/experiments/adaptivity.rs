//! Non-adaptive, adaptive and fully adaptive probes, by the number of features that are wanted (Fig. 6).

use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::{Context as _, Result, ensure};
use aya::Ebpf;
use aya::maps::{Array, Map};
use aya::programs::tc::{TcAttachOptions, TcAttachType};
use aya::programs::{LinkOrder, SchedClassifier, Xdp, XdpMode};
use serde_json::json;
use twinprobe_tests::traffic::{Frame, Spread};
use twinprobe_tests::{Daemon, bpf};

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::sender::Sender;

/// The features that a monitor knows.
const ALL: u32 = 100;
const WANTED: [u32; 6] = [1, 10, 25, 50, 75, 100];
/// The goal: at one feature the adaptive probe takes at least this many times as long.
const GOAL: f64 = 10.0;
const METRICS: &str = "/v1/probes/probe/metrics";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All features, whatever is wanted.
    NonAdaptive,
    /// All features are in the program, which looks up at run time which of them are wanted.
    Adaptive,
    /// Only what is wanted is in the program.
    FullyAdaptive,
}

/// A probe at work at an interface of its own.
struct Probe {
    site: Site,
    sender: Sender,
    /// The programs of the first two kinds, which are loaded here.
    loaded: Option<Ebpf>,
    daemon: Option<Daemon>,
    hook: &'static str,
    wanted: u32,
    /// How many times the program has run.
    runs: u64,
    map_bytes: u64,
}

pub fn run(bench: &Bench) -> Result<Section> {
    let (repeat, packets) = (bench.times(1_000_000, 10_000) as u32, bench.times(8_000_000, 20_000));
    let mut section = Section::new(
        "Adaptive and fully adaptive probes (Fig. 6)",
        "What does a packet cost if a program has only what is wanted, and what if it asks at run time?",
        format!(
            "Of {ALL} features some are wanted; a feature adds to an entry of an ARRAY. `non-adaptive` computes all of them, \
             `adaptive` looks up for each in a map whether it is wanted, both attached directly; `fully adaptive` is a probe \
             of twinprobe that has only those that are wanted, behind the dispatcher, with twins. Packets are dropped behind the \
             program. `ns` is the processor time of a run on a 60-byte frame ({repeat} runs at a time, `BPF_PROG_TEST_RUN` of what \
             the kernel has attached); `Mpps` is per second of the processor that sends and receives {packets} packets at a time, \
             which is most of a packet's time, without what a call of the generator takes before its first packet. In \
             turns; `null` compares fully adaptive with itself, in nanoseconds and in Mpps. Each feature has counted each \
             packet. Map bytes are those that the kernel says the programs' maps take (`bpftool map show`), and the daemon's \
             status for the probe with its twins. Medians with intervals of 95 % (bootstrap)."
        ),
    );
    section.generator = Some("the generator of the tests (`traffic`), on CPU 0; for `ns` none".into());
    let mut table = Table::new(&[
        "hook",
        "features",
        "non-adaptive, ns",
        "adaptive, ns",
        "fully adaptive, ns",
        "adaptive / fully, ns",
        "null",
        "Mpps: non-adaptive",
        "adaptive",
        "fully adaptive",
        "null",
        "map bytes: non-adaptive",
        "adaptive",
        "fully adaptive",
    ]);
    let (mut panels, mut claims) = (Vec::new(), Vec::new());
    for hook in ["xdp", "tc"] {
        let names = ["non-adaptive", "adaptive", "fully adaptive"];
        let mut curves = names.map(|name| Curve { name: name.into(), points: Vec::new() });
        for wanted in bench.cases(&WANTED, &[1]) {
            let mut non = Probe::new(bench, Kind::NonAdaptive, hook, wanted)?;
            let mut adaptive = Probe::new(bench, Kind::Adaptive, hook, wanted)?;
            let mut fully = Probe::new(bench, Kind::FullyAdaptive, hook, wanted)?;
            let rounds = bench.rounds(15, 1);
            let ns = Comparison::measure(rounds, |way| {
                if way == Way::Base { fully.time(repeat) } else { adaptive.time(repeat) }
            })?;
            let of_non = Comparison::measure(rounds, |way| {
                if way == Way::Base { fully.time(repeat) } else { non.time(repeat) }
            })?;
            let rounds = bench.rounds(5, 1);
            let rate = Comparison::measure(rounds, |way| {
                if way == Way::Base { fully.rate(packets) } else { adaptive.rate(packets) }
            })?;
            let rate_of_non = Comparison::measure(rounds, |way| {
                if way == Way::Base { fully.rate(packets) } else { non.rate(packets) }
            })?;
            for probe in [&non, &adaptive, &fully] {
                probe.check()?;
            }
            let times = [&of_non.other, &ns.other, &ns.base].map(Estimate::of);
            for (curve, time) in curves.iter_mut().zip(times) {
                curve.points.push((f64::from(wanted), time));
            }
            if wanted == 1 {
                let met = ns.ratio().at_least(GOAL);
                claims.push(format!("{hook}: {} times (goal: {met})", ns.ratio().show(1)));
            }
            let rates = [&rate_of_non.other, &rate.other, &rate.base].map(Estimate::of);
            table.row(
                [hook.to_owned(), wanted.to_string()]
                    .into_iter()
                    .chain(times.map(|time| time.show(1)))
                    .chain([ns.ratio().show(2), ns.null_ratio().show(2)])
                    .chain(rates.map(|rate| rate.show(2)))
                    .chain([rate.null_ratio().show(2)])
                    .chain([&non, &adaptive, &fully].map(|probe| probe.map_bytes.to_string())),
            );
        }
        panels.push(Panel { title: hook.to_uppercase(), curves: curves.into() });
    }
    section.tables.push(table);
    section.figures.push(Figure {
        name: "adaptivity",
        title: "Time per packet by the number of features that are wanted",
        x: Axis { label: "features wanted", logarithmic: false },
        y: Axis { label: "ns per packet", logarithmic: false },
        panels,
    });
    section.meaning = "A question that is asked while packets arrive is paid by each packet, also for what nobody wants. Push \
        another probe instead: a replacement has no gap."
        .to_owned();
    section.claims.push(Claim {
        claim: "adaptive against fully adaptive, one feature: time per packet",
        paper: "31.8 against 2.8 Mpps at XDP (11 times); goal >= 10",
        ours: claims.join("; "),
        peers: String::new(),
    });
    Ok(section)
}

impl Probe {
    fn new(bench: &Bench, kind: Kind, hook: &'static str, wanted: u32) -> Result<Self> {
        // The packets are the kernel's own, as only its generator sends as many in the same time.
        let site =
            Site::new(&Bench { generator: crate::frame::options::Generator::Traffic, ..bench.clone() })?;
        let sender = Sender::new(&site, Spread::default())?;
        let mut probe =
            Self { site, sender, loaded: None, daemon: None, hook, wanted, runs: 0, map_bytes: 0 };
        if kind == Kind::FullyAdaptive {
            probe.deploy()?;
        } else {
            probe.load(kind)?;
        }
        Ok(probe)
    }

    /// Deploys the probe by the daemon.
    fn deploy(&mut self) -> Result<()> {
        let daemon = self.site.daemon(&[])?;
        let metric = json!({ "name": "features", "map": "features", "snapshot": true, "init": true });
        let config = json!({
            "interface": self.site.interface(),
            "ingress": {
                "hook": self.hook,
                "verdict": "enforce",
                "source": source(Kind::FullyAdaptive, self.hook, self.hook, self.wanted),
                "metrics": [metric],
            }
        });
        let status = daemon.put("/v1/probes/probe", &config).expect(201).json();
        self.map_bytes = status["cost"]["map_bytes"].as_u64().context("the size of the maps")?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Loads the program and attaches it directly.
    fn load(&mut self, kind: Kind) -> Result<()> {
        let section = if self.hook == "tc" { "classifier" } else { self.hook };
        let source = source(kind, self.hook, section, ALL);
        let interface = self.site.interface().to_owned();
        let hook = self.hook;
        let mut ebpf = self.site.topology.monitor().enter(|| {
            let mut ebpf = bpf::load(&source, &[])?;
            let program = ebpf.program_mut("monitor").context("no program")?;
            if hook == "xdp" {
                let xdp: &mut Xdp = program.try_into()?;
                xdp.load().context("load a program")?;
                xdp.attach(&interface, XdpMode::Driver)?;
            } else {
                let tc: &mut SchedClassifier = program.try_into()?;
                tc.load().context("load a program")?;
                let first = TcAttachOptions::TcxOrder(LinkOrder::first());
                tc.attach_with_options(&interface, TcAttachType::Ingress, first)?;
            }
            anyhow::Ok(ebpf)
        })??;
        if kind == Kind::Adaptive {
            let mut flags: Array<_, u64> = ebpf.map_mut("flags").context("flags")?.try_into()?;
            for feature in 0..self.wanted {
                flags.set(feature, 1, 0)?;
            }
        } else {
            self.wanted = ALL;
        }
        self.map_bytes = ["features", "flags"]
            .iter()
            .filter_map(|name| ebpf.map(name))
            .map(map_bytes)
            .sum::<Result<u64>>()?;
        self.loaded = Some(ebpf);
        Ok(())
    }

    /// Returns the nanoseconds of a run.
    fn time(&mut self, repeat: u32) -> Result<f64> {
        let runs = self.site.attached(self.hook)?.run(Frame::default().bytes(), repeat)?;
        self.runs += u64::from(repeat);
        Ok(runs.time.as_nanos() as f64 / f64::from(repeat))
    }

    /// Returns the million packets per processor second.
    fn rate(&mut self, packets: u64) -> Result<f64> {
        self.runs += packets;
        self.sender.rate(packets)
    }

    /// Checks that each wanted feature has counted each packet, and no other one any.
    fn check(&self) -> Result<()> {
        let found: Vec<u64> = match (&self.daemon, &self.loaded) {
            (Some(daemon), _) => {
                let document = daemon.json(METRICS);
                let entries = document["ingress"]["features"]["entries"].as_array().context("entries")?;
                entries.iter().filter_map(|entry| entry["value"].as_u64()).collect()
            }
            (None, Some(ebpf)) => {
                let features: Array<_, u64> = ebpf.map("features").context("features")?.try_into()?;
                features.iter().collect::<Result<_, _>>()?
            }
            (None, None) => Vec::new(),
        };
        ensure!(found.len() >= self.wanted as usize, "{} features", found.len());
        for (feature, found) in found.into_iter().enumerate() {
            let each = if feature < self.wanted as usize { feature as u64 + 1 } else { 0 };
            ensure!(found == self.runs * each, "feature {feature} has {found} after {} packets", self.runs);
        }
        Ok(())
    }
}

/// Returns the bytes that the kernel says a map takes, as `bpftool map show` does.
fn map_bytes(map: &Map) -> Result<u64> {
    let Map::Array(data) = map else { anyhow::bail!("another type of map") };
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", data.fd().as_fd().as_raw_fd()))?;
    let bytes = info.lines().find_map(|line| line.strip_prefix("memlock:")).context("memlock of a map")?;
    Ok(bytes.trim().parse()?)
}

/// Returns a program with this number of features. Feature n adds n + 1.
fn source(kind: Kind, hook: &str, section: &str, features: u32) -> String {
    let (context, drop) = if hook == "xdp" { ("xdp_md", 1) } else { ("__sk_buff", 2) };
    let flags = if kind == Kind::Adaptive { "MAP(flags);\n" } else { "" };
    let mut body = String::new();
    for feature in 0..features {
        // Writing to a String can't fail.
        let _ = match kind {
            Kind::Adaptive => writeln!(body, "\tASK({feature});"),
            _ => writeln!(body, "\tFEATURE({feature});"),
        };
    }
    format!(
        "#include <linux/bpf.h>\n\
         #include <bpf/bpf_helpers.h>\n\
         #define MAP(NAME) struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, {features}); \\\n\
         \t__type(key, __u32); __type(value, __u64); }} NAME SEC(\".maps\")\n\
         #define FEATURE(N) do {{ __u32 key = N; __u64 *value = bpf_map_lookup_elem(&features, &key); \\\n\
         \tif (value) *value += N + 1; }} while (0)\n\
         #define ASK(N) do {{ __u32 key = N; __u64 *value = bpf_map_lookup_elem(&flags, &key); \\\n\
         \tif (value && *value) FEATURE(N); }} while (0)\n\
         MAP(features);\n\
         {flags}\
         SEC(\"{section}\") int monitor(struct {context} *ctx)\n\
         {{\n\
         {body}\
         \treturn {drop};\n\
         }}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    )
}
