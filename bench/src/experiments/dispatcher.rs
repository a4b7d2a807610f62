//! The time that the dispatcher adds to a packet, without the time of the probes' programs.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use aya::Ebpf;
use aya::maps::{Array, ProgramArray};
use aya::programs::{ProgramFd, SchedClassifier, Xdp, XdpMode};
use serde_json::{Value, json};
use twinprobe_tests::programs::Program;
use twinprobe_tests::traffic::Frame;
use twinprobe_tests::{Daemon, bpf, sample};

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::libxdp::{self, MOST};
use crate::scenes::returns;
use crate::scenes::runs::run as run_program;

const CHAINS: [usize; 5] = [1, 2, 4, 8, 16];
/// The goals in nanoseconds: for one probe, and for each further probe.
const FIRST: f64 = 1.0;
const FURTHER: f64 = 2.0;
const COUNTERS: &str = include_str!("../../bpf/counters.bpf.c");
const PROG_ARRAY: &str = include_str!("../../bpf/prog_array.bpf.c");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// A program that only returns.
    Empty,
    /// A program that counts in an ARRAY, which is a metric with twins.
    Counter,
}

/// A chain of probes of one kind.
#[derive(Clone, Copy)]
struct Chain {
    hook: &'static str,
    verdict: &'static str,
    body: Body,
}

pub fn run(bench: &Bench) -> Result<Section> {
    let repeat = bench.times(1_000_000, 20_000) as u32;
    let mut section = Section::new(
        "Dispatcher",
        "What does it cost to share a hook and to have twins?",
        format!(
            "`BPF_PROG_TEST_RUN` on one 60-byte frame, {repeat} runs at a time, of the attached program (the \
             dispatcher with all probes behind it), and of the same program by itself (`bare`): in turns, the \
             latter twice, which is the null comparison. A prog-array and libxdp are compared with `bare` in the \
             same way. Medians with intervals of 95 % (bootstrap)."
        ),
    );
    let many = CHAINS[CHAINS.len() - 1];
    section.details = format!(
        "Twins are flipped between rounds. Nanoseconds are of the thread's processor time per run, which include the \
         loop around the program. `added` is the difference within each round; `each further` is the `added` of a chain less \
         the `added` of one probe, divided by the number of further probes. It includes their programs: `own work` is the \
         time of a further counter in one program of {many} counters, and the goal is for the rest. \
         `prog-array` is the same for a chain in which each program calls the next one by an index from a map, as in \
         frameworks without a dispatcher. `libxdp` is the same for libxdp's dispatcher (`xdp-loader`, up to {MOST} \
         programs)."
    );
    section.generator =
        Some("none: the kernel runs the programs on a frame (`BPF_PROG_TEST_RUN`)".into());
    let mut table = Table::new(&[
        "hook",
        "verdict",
        "program",
        "probes",
        "rounds",
        "bare, ns",
        "dispatcher, ns",
        "added, ns",
        "null, ns",
        "each further, ns",
        "own work, ns",
        "goal",
        "prog-array, ns",
        "libxdp, ns",
    ]);
    let site = Site::new(bench)?;
    let daemon = site.daemon(&[])?;
    let (mut panels, mut firsts, mut furthers, mut peers) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut reasons = BTreeSet::new();
    for hook in ["xdp", "tc"] {
        let mut curves = Vec::new();
        for verdict in bench.cases(&["observe", "enforce"], &["observe"]) {
            for body in bench.cases(&[Body::Empty, Body::Counter], &[Body::Counter]) {
                let chain = Chain {
                    hook,
                    verdict,
                    body,
                };
                let (mut points, mut arrays, mut libxdp) = (Vec::new(), Vec::new(), Vec::new());
                let mut one: Option<Estimate> = None;
                let own = chain.own_work(&site, bench.rounds(21, 3), repeat)?;
                let lengths = bench.cases(&CHAINS, &[1, 2]);
                for length in 1..=lengths[lengths.len() - 1] {
                    daemon
                        .put(&path(length), &chain.config(site.interface()))
                        .expect(201);
                    if !lengths.contains(&length) {
                        continue;
                    }
                    let rounds = bench.rounds(21, 3);
                    let compared = chain.measure(&site, &daemon, rounds, repeat)?;
                    let array = chain.prog_array(&site, length, rounds, repeat)?;
                    let peer = chain.libxdp(&site, length, rounds, repeat)?;
                    let added = compared.difference();
                    let first = *one.get_or_insert(added);
                    let further = (added.value - first.value) / (length.max(2) - 1) as f64;
                    let goal = if length == 1 {
                        format!("<= {FIRST}: {}", added.at_most(FIRST))
                    } else {
                        let rest = further - own;
                        format!(
                            "<= {FURTHER}: {}",
                            if rest <= FURTHER { "yes" } else { "**no**" }
                        )
                    };
                    points.push((length as f64, Estimate::of(&compared.other)));
                    arrays.push((length as f64, Estimate::of(&array.other)));
                    match &peer {
                        Ok(peer) => {
                            libxdp.push((length as f64, Estimate::of(&peer.other)));
                            if length == 1 || length == 8 {
                                let added = peer.difference().value;
                                peers.push(format!("{}, {length}: {added:.1}", chain.name()));
                            }
                        }
                        Err(reason) => _ = reasons.insert(*reason),
                    }
                    if length == 1 {
                        firsts.push(format!(
                            "{hook} {verdict} {}: {:.1}",
                            chain.name(),
                            added.value
                        ));
                    } else if length == lengths[lengths.len() - 1] {
                        let rest = further - own;
                        furthers.push(format!("{hook} {verdict} {}: {rest:.1}", chain.name()));
                    }
                    table.row([
                        hook.to_owned(),
                        verdict.to_owned(),
                        chain.name().to_owned(),
                        length.to_string(),
                        rounds.to_string(),
                        Estimate::of(&compared.base).show(2),
                        Estimate::of(&compared.other).show(2),
                        added.show(2),
                        compared.null_difference().show(2),
                        if length == 1 {
                            String::new()
                        } else {
                            format!("{further:.2}")
                        },
                        if length == 1 {
                            String::new()
                        } else {
                            format!("{own:.2}")
                        },
                        goal,
                        array.difference().show(2),
                        peer.map_or_else(str::to_owned, |peer| peer.difference().show(2)),
                    ]);
                }
                for length in 1..=lengths[lengths.len() - 1] {
                    daemon.delete(&path(length)).expect(204);
                }
                curves.push(Curve {
                    name: format!("{verdict}, {}", chain.name()),
                    points,
                });
                if verdict == "observe" {
                    curves.push(Curve {
                        name: format!("prog-array, {}", chain.name()),
                        points: arrays,
                    });
                    if !libxdp.is_empty() {
                        curves.push(Curve {
                            name: format!("libxdp, {}", chain.name()),
                            points: libxdp,
                        });
                    }
                }
            }
        }
        panels.push(Panel {
            title: hook.to_uppercase(),
            curves,
        });
    }
    section.tables.push(table);
    section.figures.push(Figure {
        name: "dispatcher",
        title: "Time per packet of chains of probes",
        x: Axis {
            label: "probes",
            logarithmic: false,
        },
        y: Axis {
            label: "ns per packet",
            logarithmic: false,
        },
        panels,
    });
    let returns = returns::measure(&site.topology, bench.rounds(21, 3), repeat)?;
    section.meaning = format!(
        "A probe at a shared hook costs a packet a few nanoseconds more than a probe by itself: next to nothing \
         beside a lookup in a hash. The first probe costs a tail call (a direct jump, and a count that the kernel \
         keeps), and with twins a look at the epoch. Each further one also costs the call of a subprogram and a \
         return. A call that only returns takes {} ns here. Some processors need thunks for returns. If all \
         verdicts of the last probe stand, it has neither call nor return.",
        returns.show(2)
    );
    section.claims = vec![
        Claim {
            claim: "one probe behind the dispatcher against attached directly",
            paper: "goal <= +1 ns",
            ours: format!("{} ns", firsts.join("; ")),
            peers: libxdp::claim(&peers, &reasons),
        },
        Claim {
            claim: "each further probe",
            paper: "goal <= 2 ns",
            ours: format!("{} ns, without a counter's own work", furthers.join("; ")),
            peers: String::new(),
        },
    ];
    Ok(section)
}

impl Chain {
    const fn name(self) -> &'static str {
        match self.body {
            Body::Empty => "empty",
            Body::Counter => "counter, twins",
        }
    }

    fn measure(self, site: &Site, daemon: &Daemon, rounds: u64, repeat: u32) -> Result<Comparison> {
        let dispatcher = site.attached(self.hook)?;
        self.compare(site, &dispatcher, rounds, repeat, || {
            if self.body == Body::Counter {
                let document = daemon.json(&format!("{}/metrics", path(1)));
                let counted = sample::total(&document, "ingress", "packets");
                ensure!(
                    counted >= u64::from(repeat),
                    "the dispatcher did not run the probe: {counted}"
                );
            }
            Ok(())
        })
    }

    /// Returns the nanoseconds of each further counter in a single program without a dispatcher; 0
    /// for empty programs.
    fn own_work(self, site: &Site, rounds: u64, repeat: u32) -> Result<f64> {
        if self.body == Body::Empty {
            return Ok(0.0);
        }
        let many = CHAINS[CHAINS.len() - 1];
        let mut loaded = self.load_object(many)?;
        let counters = self.load(&mut loaded, "probe", Some((site, "mon1", XdpMode::Skb)))?;
        let compared = self.compare(site, &counters, rounds, repeat, || Ok(()))?;
        Ok(compared.difference().value / (many - 1) as f64)
    }

    /// Compares a chain with a single program without a dispatcher. `check` is called after each
    /// run of the chain.
    fn compare(
        self,
        site: &Site,
        chain: &Program,
        rounds: u64,
        repeat: u32,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<Comparison> {
        let mut loaded = self.load_object(1)?;
        let bare = self.load(&mut loaded, "probe", Some((site, "lo", XdpMode::Skb)))?;
        Comparison::measure(rounds, |way| {
            let time = run_program(
                if way == Way::Base { &bare } else { chain },
                self.hook,
                Frame::default().bytes(),
                repeat,
            )?;
            if way == Way::Other {
                check()?;
            }
            Ok(time)
        })
    }

    /// Loads a program of an object, and opens it by its id. With `at`, attaches the program at the
    /// XDP hook of this interface in the monitored namespace. The kernel calls a program directly
    /// only while the program is attached at XDP somewhere. Otherwise each run begins with the
    /// kernel's preparation of the program, which takes longer than many packets.
    fn load(
        self,
        ebpf: &mut Ebpf,
        name: &str,
        at: Option<(&Site, &str, XdpMode)>,
    ) -> Result<Program> {
        let program = ebpf.program_mut(name).context("no program")?;
        let id = if self.hook == "xdp" {
            let xdp: &mut Xdp = program.try_into()?;
            xdp.load().context("load a program")?;
            if let Some((site, interface, mode)) = at {
                site.topology
                    .monitor()
                    .enter(|| xdp.attach(interface, mode))??;
            }
            xdp.info()?.id()
        } else {
            let tc: &mut SchedClassifier = program.try_into()?;
            tc.load().context("load a program")?;
            tc.info()?.id()
        };
        Program::from_id(id)
    }

    /// Measures a chain of this many programs that call each other through a prog-array.
    fn prog_array(
        self,
        site: &Site,
        length: usize,
        rounds: u64,
        repeat: u32,
    ) -> Result<Comparison> {
        let [context, verdict] = self.names();
        let pins = tempfile::Builder::new()
            .prefix("twinprobe-bench-")
            .tempdir_in("/sys/fs/bpf")?;
        let pin = |map: &str| pins.path().join(map);
        let mut links: Vec<Ebpf> = Vec::new();
        for number in 0..=length {
            let mut defines = vec![
                format!("SECTION=\"{}\"", self.section()),
                format!("CONTEXT={context}"),
                format!("VERDICT={verdict}"),
                format!("NUMBER={number}"),
            ];
            if self.body == Body::Counter {
                defines.push("COUNTER".into());
            }
            let object = bpf::compile(PROG_ARRAY, &defines)?;
            let mut link = aya::EbpfLoader::new()
                .btf(None)
                .map_pin_path("chain", pin("chain"))
                .map_pin_path("after", pin("after"))
                .load(&object)
                .context("load a link")?;
            let at = links.is_empty().then_some((site, "mon1", XdpMode::Driver));
            self.load(&mut link, "link", at)?;
            links.push(link);
        }
        let [first, others @ ..] = &mut links[..] else {
            anyhow::bail!("no links")
        };
        let mut chain = ProgramArray::try_from(first.take_map("chain").context("a prog-array")?)?;
        for (number, link) in (1..).zip(others.iter()) {
            let fd: &ProgramFd = match link.program("link").context("no program")? {
                aya::programs::Program::Xdp(xdp) => xdp.fd()?,
                aya::programs::Program::SchedClassifier(tc) => tc.fd()?,
                _ => anyhow::bail!("another type of program"),
            };
            chain.set(number, fd, 0)?;
        }
        let mut after: Array<_, u32> = first.map_mut("after").context("indices")?.try_into()?;
        for number in 0..length as u32 {
            after.set(number, number + 1, 0)?;
        }
        let entry = match first.program("link").context("no program")? {
            aya::programs::Program::Xdp(xdp) => xdp.info()?.id(),
            aya::programs::Program::SchedClassifier(tc) => tc.info()?.id(),
            _ => anyhow::bail!("another type of program"),
        };
        let compared = self.compare(site, &Program::from_id(entry)?, rounds, repeat, || Ok(()))?;
        if self.body == Body::Counter {
            let last = others
                .last()
                .and_then(|link| link.map("packets"))
                .context("a counter")?;
            let counted: Array<_, u64> = last.try_into()?;
            ensure!(
                counted.get(&0, 0)? == rounds * u64::from(repeat),
                "the last program was not called"
            );
        }
        Ok(compared)
    }

    /// Measures this many programs that the dispatcher of libxdp calls, or says why that is not
    /// possible.
    fn libxdp(
        self,
        site: &Site,
        length: usize,
        rounds: u64,
        repeat: u32,
    ) -> Result<Result<Comparison, &'static str>> {
        if self.hook != "xdp" || self.verdict != "observe" || length > MOST {
            return Ok(Err(""));
        }
        let object = bpf::compile(&self.source(self.section(), 1), &[])?;
        let attached =
            match libxdp::Chain::attach(site.topology.monitor(), "mon1", &object, length)? {
                Ok(attached) => attached,
                Err(reason) => return Ok(Err(reason)),
            };
        let compared = self.compare(
            site,
            &site.attached_at("mon1", self.hook)?,
            rounds,
            repeat,
            || Ok(()),
        )?;
        drop(attached);
        Ok(Ok(compared))
    }

    /// Returns the type of the context, and the verdict that lets packets pass.
    fn names(self) -> [&'static str; 2] {
        if self.hook == "xdp" {
            ["xdp_md", "2"]
        } else {
            ["__sk_buff", "-1"]
        }
    }

    /// Returns the source of a program with this many counters, if it counts. `section` is its
    /// section's name, for its loader.
    fn source(self, section: &str, counters: usize) -> String {
        let [context, pass] = self.names();
        let maps = (0..counters).filter(|_| self.body == Body::Counter);
        let maps: String = maps
            .map(|at| format!(" with(packets{})", "_".repeat(at)))
            .collect();
        format!(
            "#define SECTION \"{section}\"\n#define CONTEXT {context}\n#define VERDICT {pass}\n\
             #define EACH(with){maps}\n{COUNTERS}"
        )
    }

    fn load_object(self, counters: usize) -> Result<Ebpf> {
        bpf::load(&self.source(self.section(), counters), &[])
    }

    /// Returns the section's name for loaders of other projects.
    fn section(self) -> &'static str {
        if self.hook == "xdp" {
            "xdp"
        } else {
            "classifier"
        }
    }

    fn config(self, interface: &str) -> Value {
        let metrics = match self.body {
            Body::Empty => json!([]),
            Body::Counter => json!([sample::window("packets", "packets")]),
        };
        let (hook, verdict, source) = (self.hook, self.verdict, self.source(self.hook, 1));
        json!({
            "interface": interface,
            "ingress": { "hook": hook, "verdict": verdict, "source": source, "metrics": metrics }
        })
    }
}

fn path(number: usize) -> String {
    format!("/v1/probes/probe{number}")
}
