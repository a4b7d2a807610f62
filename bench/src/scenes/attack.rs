//! A flood of SYNs in ordinary traffic, and a daemon that watches for it: coarsely, finely, or
//! finely on demand.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::sys::{Stats, enable_stats};
use serde_json::{Value, json};
use twinprobe_tests::Daemon;
use twinprobe_tests::measure::ProcessorTime;
use twinprobe_tests::programs::{Counted, Program};
use twinprobe_tests::traffic::{
    Frame, FrameOptions, Generator, GeneratorOptions, Load, Running, Spread,
};
use twinprobe_tests::wait::wait_for;

use super::probes::nameless;
use crate::frame::options::Bench;
use crate::frame::site::{LOADED, Site};

/// Windows are closed this often.
pub const INTERVAL: &str = "100ms";
/// Packets per second.
pub const ORDINARY: u64 = 100_000;
pub const FLOOD: u64 = 300_000;
/// The coarse probe sees one packet of this many.
pub const SAMPLE: u64 = 64;
/// The number of SYNs in a window that counts as a flood. Ordinary traffic has none, and a window
/// of the flood has 30,000.
const SYNS: u64 = 5_000;
/// The number of flows in a window that counts as a flood. Ordinary traffic has 4,096.
const FLOWS: u64 = 8_192;
const PATIENCE: Duration = Duration::from_secs(20);
/// The time between two questions to the daemon while the bench waits for an answer.
const QUESTION: Duration = Duration::from_millis(5);
/// The points of a curve over a round.
const POINTS: u32 = 120;

/// A way to watch the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// An empty program, which measures the way to the hook.
    Empty,
    /// One packet in [`SAMPLE`] is counted, by its flags.
    Coarse,
    /// All packets are counted, by flow.
    Fine,
    /// The coarse probe, and a rule that deploys the fine one while it sees a flood.
    OnDemand,
}

/// The times of a round: a flood begins after two fifths of it.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub round: Duration,
    pub flood: Duration,
}

/// The results of a round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The nanoseconds of the programs for a packet, from the dispatcher on, with the kernel's
    /// counting.
    pub ns_per_packet: f64,
    pub packets: u64,
    /// The packets that the fine probe has seen.
    pub fine_packets: u64,
    /// The times from the first packet of the flood until the rule has fired, and until a window
    /// contains flows of the flood.
    pub detected_ms: Option<f64>,
    pub shown_ms: Option<f64>,
    /// The time from the end of the window at which the rule fired until packets reached the fine
    /// probe.
    pub reaction_ms: Option<f64>,
    /// Processor time of the daemon for each second, in milliseconds.
    pub daemon_ms: f64,
    /// Seconds, and the nanoseconds of a packet at that time.
    pub curve: Vec<(f64, f64)>,
}

/// Runs a round with a daemon of its own.
pub fn round(bench: &Bench, watch: Watch, times: Times) -> Result<Round> {
    let site = Site::new(bench)?;
    let daemon = site.daemon(&[])?;
    deploy(&site, &daemon, watch)?;
    let _counting = enable_stats(Stats::RunTime)?;
    let ordinary = sender(&site, LOADED, Kind::Ordinary)?.spawn(Load {
        rate: Some(ORDINARY),
        ..Load::default()
    });
    wait_for("packets", PATIENCE, || {
        ensure!(
            ordinary.sent() > ORDINARY / 2,
            "{} packets",
            ordinary.sent()
        );
        Ok(())
    })?;
    let mut watcher = Watcher {
        daemon: &daemon,
        site: &site,
        dispatchers: Dispatchers::default(),
        watch,
        _ordinary: ordinary,
        flood: None,
        flood_began: jiff::Timestamp::now(),
        round: Round::default(),
    };
    watcher.run(times)?;
    Ok(watcher.round)
}

fn deploy(site: &Site, daemon: &Daemon, watch: Watch) -> Result<()> {
    let put = |name: &str, config: &Value| {
        drop(
            daemon
                .put(&format!("/v1/probes/{name}"), config)
                .expect(201),
        )
    };
    match watch {
        Watch::Empty => {
            let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
                SEC(\"xdp.frags\") int f(struct xdp_md *ctx) { return XDP_PASS; }\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";
            put(
                "empty",
                &json!({ "interface": site.interface(), "ingress": { "source": source, "metrics": [] } }),
            );
        }
        Watch::Fine => put("fine", &fine(site)?),
        Watch::Coarse | Watch::OnDemand => put("coarse", &coarse(site)?),
    }
    let rule = match watch {
        Watch::Empty | Watch::Coarse => return Ok(()),
        Watch::Fine => json!({
            "watch": "fine",
            "when": format!("count(ingress.flows) > {FLOWS}"),
            "do": [{ "mark": "flood" }],
        }),
        Watch::OnDemand => {
            let syns = "sum(ingress.tcp_flags, 'SYN') - sum(previous.ingress.tcp_flags, 'SYN')";
            let mut config = fine(site)?;
            config
                .as_object_mut()
                .context("a configuration")?
                .remove("interface");
            json!({
                "watch": "coarse",
                "when": format!("{syns} > {}", SYNS / SAMPLE),
                "do": [{ "apply": { "name": "fine", "config": config, "expires": "5m" } }],
            })
        }
    };
    if watch == Watch::OnDemand {
        // After this, the daemon has already compiled the source, as it has if an earlier probe
        // used it.
        put("fine", &fine(site)?);
        daemon.delete("/v1/probes/fine").expect(204);
    }
    daemon.put("/v1/rules/flood", &rule).expect(201);
    Ok(())
}

fn fine(site: &Site) -> Result<Value> {
    let mut config = nameless("flow-features", site.interface())?;
    config["window"] = json!({ "interval": INTERVAL });
    Ok(config)
}

fn coarse(site: &Site) -> Result<Value> {
    let mut config = nameless("tcp-flags", site.interface())?;
    let object = config.as_object_mut().context("a configuration")?;
    object.remove("egress");
    object.insert("window".into(), json!({ "interval": INTERVAL }));
    config["ingress"]["sample"] = SAMPLE.into();
    Ok(config)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ordinary,
    Flood,
}

fn sender(site: &Site, cpu: usize, kind: Kind) -> Result<Generator> {
    let cpu = Some(cpu % thread::available_parallelism()?.get());
    let flood = kind == Kind::Flood;
    let frame = FrameOptions {
        length: if flood {
            FrameOptions::default().length
        } else {
            300
        },
        tcp_flags: if flood { 0x02 } else { 0x10 },
        ..FrameOptions::default()
    };
    let spread = if flood {
        Spread {
            addresses: 65_536,
            ports: 1,
            base_address: [198, 51, 0, 0].into(),
            ..Spread::default()
        }
    } else {
        Spread {
            addresses: 64,
            ports: 64,
            ..Spread::default()
        }
    };
    let options = GeneratorOptions {
        frame: Frame::build(&frame)?,
        spread,
        cpu,
        ..GeneratorOptions::default()
    };
    Generator::new(site.topology.generator(), "gen0", options)
}

/// The programs that the interface had during the round. Each addition or removal of a probe makes
/// another dispatcher program.
#[derive(Default)]
struct Dispatchers(Vec<Program>);

impl Dispatchers {
    /// Finds the attached program. The kernel counts its runs from the first one on.
    fn follow(&mut self, site: &Site) -> Result<()> {
        let attached = site.attached("xdp")?;
        match self.0.last() {
            Some(last) if last.id()? == attached.id()? => {}
            _ => self.0.push(attached),
        }
        Ok(())
    }

    /// Returns the number of runs of all of them.
    fn counted(&self) -> Result<Counted> {
        self.0.iter().try_fold(Counted::default(), |sum, program| {
            let of = program.counted()?;
            Ok(Counted {
                runs: sum.runs + of.runs,
                nanoseconds: sum.nanoseconds + of.nanoseconds,
            })
        })
    }
}

/// A round under way.
struct Watcher<'a> {
    daemon: &'a Daemon,
    site: &'a Site,
    dispatchers: Dispatchers,
    watch: Watch,
    _ordinary: Running,
    flood: Option<(Running, Instant)>,
    flood_began: jiff::Timestamp,
    round: Round,
}

impl Watcher<'_> {
    fn run(&mut self, times: Times) -> Result<()> {
        let flood_begins = times.round * 2 / 5;
        let flood = sender(self.site, LOADED + 1, Kind::Flood)?;
        let mut flood = Some(flood);
        let processor = ProcessorTime::of(self.daemon.pid())?;
        self.dispatchers.follow(self.site)?;
        let (begun, arrived) = (Instant::now(), self.site.counted()?);
        let first = self.dispatchers.counted()?;
        let (mut last, mut point) = (first, begun);
        let mut seen_at = (self.watch == Watch::Fine).then_some(arrived);
        while begun.elapsed() < times.round {
            if begun.elapsed() >= flood_begins
                && let Some(flood) = flood.take()
            {
                let load = Load {
                    rate: Some(FLOOD),
                    duration: Some(times.flood),
                    ..Load::default()
                };
                self.flood_began = jiff::Timestamp::now();
                self.flood = Some((flood.spawn(load), Instant::now()));
            }
            if self.flood.is_some() {
                self.ask(&mut seen_at)?;
            }
            if point.elapsed() >= times.round / POINTS {
                let now = self.dispatchers.counted()?;
                let at = begun.elapsed().as_secs_f64();
                self.round.curve.push((at, now.per_run_since(last)));
                (last, point) = (now, Instant::now());
            }
            thread::sleep(QUESTION);
        }
        self.dispatchers.follow(self.site)?;
        let (counted, arrived) = (self.dispatchers.counted()?, self.site.counted()? - arrived);
        let seconds = begun.elapsed().as_secs_f64();
        self.round.ns_per_packet = counted.per_run_since(first);
        self.round.packets = counted.runs - first.runs;
        // The two counts are read one after the other, so that they may differ a little.
        let missing = arrived.abs_diff(self.round.packets);
        ensure!(
            20 * missing <= arrived,
            "{arrived} packets arrived, {} counted",
            self.round.packets
        );
        self.round.daemon_ms =
            1e3 * (ProcessorTime::of(self.daemon.pid())?.own - processor.own) / seconds;
        if let Some(since) = seen_at {
            self.round.fine_packets += self.site.counted()? - since;
        }
        Ok(())
    }

    /// Asks the daemon for its counts, until they are complete.
    fn ask(&mut self, seen_at: &mut Option<u64>) -> Result<()> {
        let Some((_, begun)) = &self.flood else {
            return Ok(());
        };
        let ms = 1e3 * begun.elapsed().as_secs_f64();
        if matches!(self.watch, Watch::Empty | Watch::Coarse) {
            return Ok(());
        }
        if self.round.detected_ms.is_none() {
            let rule = self.daemon.json("/v1/rules/flood");
            ensure!(rule["state"] != "stopped", "{rule}");
            if rule["firings"][0]["done"].is_string() {
                self.round.detected_ms = Some(ms);
            }
            return Ok(());
        }
        let there = self.daemon.get("/v1/probes/fine").status == 200;
        match (there, *seen_at) {
            (true, None) => {
                *seen_at = Some(self.site.counted()?);
                self.dispatchers.follow(self.site)?;
            }
            (false, Some(since)) => {
                self.dispatchers.follow(self.site)?;
                self.round.fine_packets += self.site.counted()? - since;
                *seen_at = None;
            }
            _ => {}
        }
        if there && self.round.shown_ms.is_none() {
            self.look()?;
        }
        Ok(())
    }

    /// Looks for the first window of the fine probe that has the flood.
    fn look(&mut self) -> Result<()> {
        let rule = self.daemon.json("/v1/rules/flood");
        let fired: jiff::Timestamp = rule["firings"][0]["time"]
            .as_str()
            .context("a time")?
            .parse()?;
        let list = self.daemon.json("/v1/probes/fine/windows");
        for window in list["windows"].as_array().into_iter().flatten() {
            let [start, end] = ["start", "end"].map(|name| {
                window[name]
                    .as_str()
                    .unwrap_or_default()
                    .parse::<jiff::Timestamp>()
            });
            let (start, end) = (start?, end?);
            if self.round.reaction_ms.is_none() && self.watch == Watch::OnDemand {
                self.round.reaction_ms = Some((start - fired).total(jiff::Unit::Millisecond)?);
            }
            if end >= fired {
                let ms = (end - self.flood_began).total(jiff::Unit::Millisecond)?;
                self.round.shown_ms = Some(ms);
                return Ok(());
            }
        }
        Ok(())
    }
}
