//! The time that a hook itself takes (XDP native and generic, TCX, clsact), the time to copy 1 KiB,
//! and the delay until user space has it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::Ebpf;
use aya::maps::PerCpuArray;
use aya::programs::tc::{self, NlOptions, TcAttachOptions};
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, Xdp, XdpMode};
use serde_json::json;
use twinprobe_tests::traffic::{Frame, FrameOptions};
use twinprobe_tests::{Daemon, DaemonOptions, Namespace, bpf};

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::events::consumer::{Consumer, Mode};
use crate::scenes::events::stand::{Load, Stand};
use crate::scenes::events::tool::{INTERFACE, Shape, Tool};
use crate::scenes::runs::Bare;
use crate::scenes::sources::HOOKS as SOURCE;

const PROBE: &str = "/v1/probes/hook";
/// The length of the frames from which 1 KiB is copied.
const LONG: usize = 1_100;

/// A hook by which a program gets packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    XdpNative,
    XdpGeneric,
    Tcx,
    Clsact,
}

impl Hook {
    const ALL: [Self; 4] = [Self::XdpNative, Self::XdpGeneric, Self::Tcx, Self::Clsact];

    const fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "XDP native",
            Self::XdpGeneric => "XDP generic",
            Self::Tcx => "TCX",
            Self::Clsact => "clsact",
        }
    }

    const fn is_xdp(self) -> bool {
        matches!(self, Self::XdpNative | Self::XdpGeneric)
    }
}

/// The program that is attached in front of the program that ends the packets' way.
enum Front<'a> {
    Bare,
    Probe(&'a Daemon),
}

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Latency of hooks",
        "How long does it take to call a hook at all, to copy 1 KiB there, and to bring it to user space?",
        "`invocation` is the additional time of a live packet with an empty program in its way, attached directly \
         or by the daemon, turn by turn. `null` compares packets without a program. Copies of 1 KiB are runs on one \
         frame (`BPF_PROG_TEST_RUN`), less the empty program. Events of 1 KiB are live, from the program to a \
         consumer. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "Packets end at a clsact filter that counts and drops them. The empty program is in front of it, at XDP \
         native, XDP generic, TCX or clsact (`bench/bpf/hooks.bpf.c`). It is a probe if the daemon attaches it. \
         `invocation` is time of the sending processor, which also receives. The last table has events of 1 KiB on \
         their way through a RINGBUF of 16 MiB: the time from `bpf_ktime_get_ns` in the program to the clock of the \
         consumer after it has read each byte, and its processor time."
        .to_owned();
    section.generator = Some(Stand::describe());
    let stand = Stand::new()?;
    let (table, invocations) = invocation(bench, &stand)?;
    section.tables.push(table);
    let (table, copies) = copies(bench, &stand)?;
    section.tables.push(table);
    let (table, curves) = retrieval(bench, &stand)?;
    section.tables.push(table);
    section.figures.push(Figure {
        name: "retrieval",
        title: "Time until a consumer has half of the events of 1 KiB",
        x: Axis {
            label: "events/s",
            logarithmic: true,
        },
        y: Axis {
            label: "us",
            logarithmic: true,
        },
        panels: vec![Panel {
            title: "1 KiB, XDP".into(),
            curves,
        }],
    });
    section.meaning = format!(
        "The call of a hook costs a packet less than the work of a program. The exception is generic XDP if it has \
         to copy the packet first. A copy of 1 KiB eight bytes at a time takes {copies} as long as one by the \
         kernel's helper. Most of the way to user space is the room in the ring, because the processor must fetch \
         its pages. The delay of an event in user space depends on its reader. A consumer that wakes for each event is some \
         tens of microseconds late and pays for each wake-up. The daemon gathers events for up to 20 ms, and they \
         share the cost."
    );
    section.claims = vec![
        Claim {
            claim: "invocation of a hook, empty program, ns",
            paper: "XDP 38, SK_SKB more than 1,000",
            ours: invocations.join("; "),
            peers: String::new(),
        },
        Claim {
            claim: "1 KiB copied in eBPF against by the kernel",
            paper: "10 times as long as in a kernel module",
            ours: copies,
            peers: String::new(),
        },
    ];
    Ok(section)
}

/// The program that ends the packets' way. Dropping the value detaches it.
struct Finish {
    namespace: Namespace,
    ebpf: Option<Ebpf>,
}

impl Finish {
    fn attach(namespace: &Namespace) -> Result<Self> {
        let ebpf = namespace.enter(|| {
            let mut ebpf = bpf::load(SOURCE, &["COPY=0".into()])?;
            // The clsact qdisc exists already.
            let _ = tc::qdisc_add_clsact(INTERFACE);
            attach_filter(&mut ebpf, "finish", u16::MAX)?;
            anyhow::Ok(ebpf)
        })??;
        Ok(Self {
            namespace: namespace.clone(),
            ebpf: Some(ebpf),
        })
    }

    fn ended(&self) -> Result<u64> {
        let map = self
            .ebpf
            .as_ref()
            .and_then(|ebpf| ebpf.map("ended"))
            .context("no counter")?;
        let ended: PerCpuArray<_, u64> = map.try_into()?;
        Ok(ended.get(&0, 0)?.iter().sum())
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        let ebpf = self.ebpf.take();
        // A filter is removed by interface index, which is valid only inside the namespace.
        if let Err(error) = self.namespace.enter(|| drop(ebpf)) {
            eprintln!("remove a program: {error}");
        }
    }
}

fn attach_filter(ebpf: &mut Ebpf, name: &str, priority: u16) -> Result<()> {
    let program: &mut SchedClassifier = ebpf.program_mut(name).context("no program")?.try_into()?;
    program.load()?;
    let options = TcAttachOptions::Netlink(NlOptions {
        priority,
        ..NlOptions::default()
    });
    program
        .attach_with_options(INTERFACE, TcAttachType::Ingress, options)
        .context("attach a filter")?;
    Ok(())
}

/// Measures the additional time of a packet with an empty program at each hook.
fn invocation(bench: &Bench, stand: &Stand) -> Result<(Table, Vec<String>)> {
    let mut table = Table::new(&[
        "hook",
        "attached",
        "rounds",
        "a packet without, ns",
        "invocation, ns",
        "null, ns",
    ]);
    let finish = Finish::attach(stand.topology.monitor())?;
    let clsact = Daemon::start_with(
        stand.topology.monitor(),
        &DaemonOptions::default()
            .argument("--tc-attach")
            .argument("clsact"),
    )?;
    let rounds = bench.rounds(15, 1);
    let mut said = Vec::new();
    for hook in bench.cases(&Hook::ALL, &[Hook::XdpNative]) {
        let daemon = if hook == Hook::Clsact {
            &clsact
        } else {
            &stand.daemon
        };
        for (name, front) in [
            ("directly", Front::Bare),
            ("by twinprobe", Front::Probe(daemon)),
        ] {
            let compared = Comparison::measure(rounds, |way| {
                let _attached = match (way, &front) {
                    (Way::Base, _) => None,
                    (Way::Other, Front::Bare) => Some(Attached::Bare(attach_empty(
                        hook,
                        stand.topology.monitor(),
                    )?)),
                    (Way::Other, Front::Probe(daemon)) => Some(Attached::deploy(daemon, hook)?),
                };
                let before = finish.ended()?;
                let load = Load::Steady {
                    rate: 1,
                    duration: Duration::from_millis(bench.times(150, 60)),
                };
                let sent = stand.send(load)?;
                let ended = finish.ended()? - before;
                ensure!(
                    ended == sent.packets,
                    "{} packets were sent, {ended} came to their end",
                    sent.packets
                );
                sent.per_packet.context("too short")
            })?;
            let difference = compared.difference();
            said.push(format!("{} {name} {:.0}", hook.name(), difference.value));
            table.row([
                hook.name().to_owned(),
                name.to_owned(),
                rounds.to_string(),
                Estimate::of(&compared.base).show(1),
                difference.show(1),
                compared.null_difference().show(1),
            ]);
        }
    }
    Ok((table, said))
}

/// An empty program at a hook. Dropping the value detaches it.
enum Attached<'a> {
    /// An empty program without a daemon. The value only keeps the program attached.
    Bare(#[expect(dead_code, reason = "held until the measurement is over")] Empty),
    Probe(&'a Daemon),
}

struct Empty {
    namespace: Namespace,
    ebpf: Option<Ebpf>,
}

impl Drop for Empty {
    fn drop(&mut self) {
        let ebpf = self.ebpf.take();
        if let Err(error) = self.namespace.enter(|| drop(ebpf)) {
            eprintln!("remove a program: {error}");
        }
    }
}

impl<'a> Attached<'a> {
    fn deploy(daemon: &'a Daemon, hook: Hook) -> Result<Self> {
        let [section, context, pass] = if hook.is_xdp() {
            ["xdp", "xdp_md", "2"]
        } else {
            ["tc", "__sk_buff", "-1"]
        };
        let source = format!(
            "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
             SEC(\"{section}\") int hook(struct {context} *ctx) {{ return {pass}; }}\n\
             char LICENSE[] SEC(\"license\") = \"GPL\";\n"
        );
        let mut ingress = json!({ "hook": section, "source": source, "metrics": [] });
        if hook.is_xdp() {
            ingress["mode"] = if hook == Hook::XdpNative {
                "native"
            } else {
                "generic"
            }
            .into();
        }
        let status = daemon
            .put(
                PROBE,
                &json!({ "interface": INTERFACE, "ingress": ingress }),
            )
            .expect(201)
            .json();
        let wanted = hook.name().trim_start_matches("XDP ").to_lowercase();
        ensure!(
            status
                .to_string()
                .contains(&format!("\"mode\":\"{wanted}\"")),
            "not {wanted}: {status}"
        );
        Ok(Self::Probe(daemon))
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let Self::Probe(daemon) = self {
            daemon.delete(PROBE).expect(204);
        }
    }
}

fn attach_empty(hook: Hook, namespace: &Namespace) -> Result<Empty> {
    let mut defines = vec!["COPY=0".to_owned()];
    if !hook.is_xdp() {
        // The name of the section that aya knows.
        defines.extend(["TC".into(), "SECTION=\"classifier\"".into()]);
    }
    let ebpf = namespace.enter(|| {
        let mut ebpf = bpf::load(SOURCE, &defines)?;
        match hook {
            Hook::XdpNative | Hook::XdpGeneric => {
                let xdp: &mut Xdp = ebpf.program_mut("hook").context("no program")?.try_into()?;
                xdp.load()?;
                let mode = if hook == Hook::XdpNative {
                    XdpMode::Driver
                } else {
                    XdpMode::Skb
                };
                xdp.attach(INTERFACE, mode).context("attach at XDP")?;
            }
            Hook::Tcx => {
                let tc: &mut SchedClassifier =
                    ebpf.program_mut("hook").context("no program")?.try_into()?;
                tc.load()?;
                let options = TcAttachOptions::TcxOrder(LinkOrder::first());
                tc.attach_with_options(INTERFACE, TcAttachType::Ingress, options)
                    .context("attach by TCX")?;
            }
            Hook::Clsact => attach_filter(&mut ebpf, "hook", 1)?,
        }
        anyhow::Ok(ebpf)
    })??;
    Ok(Empty {
        namespace: namespace.clone(),
        ebpf: Some(ebpf),
    })
}

/// Measures copies of 1 KiB. Returns the time of eBPF's own copy divided by that of the helper.
fn copies(bench: &Bench, stand: &Stand) -> Result<(Table, String)> {
    let mut table = Table::new(&["hook", "1 KiB copied", "ns", "null, ns", "by the helper's"]);
    let frame = Frame::build(&FrameOptions {
        length: LONG,
        ..FrameOptions::default()
    })?;
    let repeat = bench.times(50_000, 10_000) as u32;
    let mut said = Vec::new();
    for hook in bench.cases(&["xdp", "tc"], &["xdp"]) {
        let load = |copy: u32| {
            Bare::load(
                SOURCE,
                hook,
                "hook",
                &[format!("COPY={copy}")],
                &stand.topology,
            )
        };
        let mut helper = None;
        for (copy, name) in [
            (2, "by the kernel's helper"),
            (1, "eight bytes at a time"),
            (3, "into a ring, by the helper"),
        ] {
            let (mut empty, mut copying) = (load(0)?, load(copy)?);
            let compared = Comparison::measure(bench.rounds(15, 2), |way| match way {
                Way::Base => empty.run(hook, frame.bytes(), repeat),
                Way::Other => copying.run(hook, frame.bytes(), repeat),
            })?;
            let took = compared.difference();
            let by = took.value / *helper.get_or_insert(took.value);
            if copy == 1 {
                said.push(format!("{} {by:.1} times", hook.to_uppercase()));
            }
            table.row([
                hook.to_owned(),
                name.to_owned(),
                took.show(1),
                compared.null_difference().show(1),
                format!("{by:.2}"),
            ]);
        }
    }
    Ok((table, said.join(", ")))
}

/// Measures the time from the packet to user space for events of 1 KiB.
fn retrieval(bench: &Bench, stand: &Stand) -> Result<(Table, Vec<Curve>)> {
    let mut table = Table::new(&[
        "hook",
        "events/s",
        "consumer",
        "events",
        "half within, us",
        "99 % within, us",
        "us CPU/event",
    ]);
    let duration = Duration::from_millis(bench.times(500, 100));
    let mut curves = Vec::new();
    for hook in bench.cases(&["xdp", "tc"], &["xdp"]) {
        let all = [
            Consumer::Libbpf,
            Consumer::Aya,
            Consumer::Bcc,
            Consumer::Twinprobe,
        ];
        for consumer in bench.cases(&all, &[Consumer::Libbpf, Consumer::Twinprobe]) {
            if !consumer.is_here() {
                continue;
            }
            let mut points = Vec::new();
            for rate in bench.cases(&[100, 1_000, 10_000, 50_000], &[1_000]) {
                let tool = Tool {
                    hook,
                    shape: Shape::Kilobyte,
                    ring: 16 << 20,
                    interval: 0,
                };
                let mut outcomes = Vec::new();
                for _ in 0..bench.rounds(5, 1) {
                    outcomes.push(consumer.run(
                        stand,
                        tool,
                        Load::Steady { rate, duration },
                        Mode::Check,
                    )?);
                }
                let within = |which: usize| {
                    Estimate::of(
                        &outcomes
                            .iter()
                            .map(|outcome| outcome.latency[which] as f64 / 1e3)
                            .collect(),
                    )
                };
                points.push((rate as f64, within(0)));
                table.row([
                    hook.to_owned(),
                    rate.to_string(),
                    consumer.name().to_owned(),
                    outcomes
                        .iter()
                        .map(|outcome| outcome.delivered)
                        .sum::<u64>()
                        .to_string(),
                    within(0).show(0),
                    within(1).show(0),
                    Estimate::of(&outcomes.iter().map(|outcome| outcome.per_event()).collect())
                        .show(2),
                ]);
            }
            if hook == "xdp" {
                curves.push(Curve {
                    name: consumer.name().into(),
                    points,
                });
            }
        }
    }
    Ok((table, curves))
}
