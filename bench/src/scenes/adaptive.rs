//! Monitors that compute features of packets: non-adaptive, adaptive and fully adaptive ones (Fig.
//! 6), and an empty program.

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

use super::sender::Sender;
use crate::frame::options::{Bench, Generator};
use crate::frame::site::Site;

/// The features of a monitor.
pub const ALL: u32 = 100;
const METRICS: &str = "/v1/probes/probe/metrics";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No features: the program drops the packet, and does nothing else.
    Empty,
    /// The program has all features, whichever are switched on.
    NonAdaptive,
    /// All features are in the program, which checks at run time which of them are switched on.
    Adaptive,
    /// The program has only the requested features.
    FullyAdaptive,
}

/// A running probe on its own interface.
pub struct Probe {
    site: Site,
    sender: Sender,
    /// The program, unless the daemon has loaded it.
    loaded: Option<Ebpf>,
    daemon: Option<Daemon>,
    hook: &'static str,
    wanted: u32,
    /// The number of times that the program has run.
    runs: u64,
    pub map_bytes: u64,
}

impl Probe {
    pub fn new(bench: &Bench, kind: Kind, hook: &'static str, wanted: u32) -> Result<Self> {
        // The packets are the kernel's own, as only its generator sends as many in the same time.
        let site = Site::new(&Bench {
            generator: Generator::Traffic,
            ..bench.clone()
        })?;
        let sender = Sender::new(&site, Spread::default())?;
        let mut probe = Self {
            site,
            sender,
            loaded: None,
            daemon: None,
            hook,
            wanted,
            runs: 0,
            map_bytes: 0,
        };
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
        let metric =
            json!({ "name": "features", "map": "features", "snapshot": true, "init": true });
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
        self.map_bytes = status["cost"]["map_bytes"]
            .as_u64()
            .context("the size of the maps")?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Loads the program and attaches it directly.
    fn load(&mut self, kind: Kind) -> Result<()> {
        let section = if self.hook == "tc" {
            "classifier"
        } else {
            self.hook
        };
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
        if kind == Kind::Empty {
            self.wanted = 0;
        } else if kind == Kind::Adaptive {
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
    pub fn time(&mut self, repeat: u32) -> Result<f64> {
        let runs = self
            .site
            .attached(self.hook)?
            .run(Frame::default().bytes(), repeat)?;
        self.runs += u64::from(repeat);
        Ok(runs.time.as_nanos() as f64 / f64::from(repeat))
    }

    /// Returns the nanoseconds of processor time of a packet that is sent and received.
    pub fn packet(&mut self, packets: u64) -> Result<f64> {
        self.runs += packets;
        Ok(1e9 * self.sender.send(packets)? / packets as f64)
    }

    /// Checks that each wanted feature has counted each packet, and that the other features have
    /// counted none.
    pub fn check(&self) -> Result<()> {
        let found: Vec<u64> = match (&self.daemon, &self.loaded) {
            (Some(daemon), _) => {
                let document = daemon.json(METRICS);
                let entries = document["ingress"]["features"]["entries"]
                    .as_array()
                    .context("entries")?;
                entries
                    .iter()
                    .filter_map(|entry| entry["value"].as_u64())
                    .collect()
            }
            (None, Some(ebpf)) if self.wanted > 0 => {
                let features: Array<_, u64> =
                    ebpf.map("features").context("features")?.try_into()?;
                features.iter().collect::<Result<_, _>>()?
            }
            _ => Vec::new(),
        };
        ensure!(
            found.len() >= self.wanted as usize,
            "{} features",
            found.len()
        );
        for (feature, found) in found.into_iter().enumerate() {
            let each = if feature < self.wanted as usize {
                feature as u64 + 1
            } else {
                0
            };
            ensure!(
                found == self.runs * each,
                "feature {feature} has {found} after {} packets",
                self.runs
            );
        }
        Ok(())
    }
}

/// Returns the bytes that the kernel says a map takes, as `bpftool map show` does.
fn map_bytes(map: &Map) -> Result<u64> {
    let Map::Array(data) = map else {
        anyhow::bail!("another type of map")
    };
    let info = fs::read_to_string(format!(
        "/proc/self/fdinfo/{}",
        data.fd().as_fd().as_raw_fd()
    ))?;
    let bytes = info
        .lines()
        .find_map(|line| line.strip_prefix("memlock:"))
        .context("memlock of a map")?;
    Ok(bytes.trim().parse()?)
}

/// Returns a program with this number of features. Feature n adds n + 1.
fn source(kind: Kind, hook: &str, section: &str, features: u32) -> String {
    let (context, drop) = if hook == "xdp" {
        ("xdp_md", 1)
    } else {
        ("__sk_buff", 2)
    };
    let maps = match kind {
        Kind::Empty => "",
        Kind::Adaptive => "MAP(features);\nMAP(flags);\n",
        Kind::NonAdaptive | Kind::FullyAdaptive => "MAP(features);\n",
    };
    let mut body = String::new();
    for feature in 0..features {
        // Writing to a String can't fail.
        let _ = match kind {
            Kind::Empty => Ok(()),
            Kind::Adaptive => writeln!(body, "\tASK({feature});"),
            Kind::NonAdaptive | Kind::FullyAdaptive => writeln!(body, "\tFEATURE({feature});"),
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
         {maps}\
         SEC(\"{section}\") int monitor(struct {context} *ctx)\n\
         {{\n\
         {body}\
         \treturn {drop};\n\
         }}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    )
}
