//! Bystanders: two probes beside the probe under test. They must lose nothing, even if that probe
//! or the daemon fails.
//!
//! [`Bystanders::deploy`] comes before the first probe of a test; [`Bystanders::finish`] is its
//! last statement. In between, [`Bystanders::check`] may be called whenever no packet is under way.
//! Their counts are compared with counters that are independent of the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::Daemon;
use crate::counter::{Counter, Place};
use crate::http::{self, Address};
use crate::netns::Namespace;
use crate::packets::send_frames;
use crate::sample::{total, window};
use crate::topology::{GEN0, MON0, MON1, SINK0, Topology};
use crate::wait::wait_for;
use crate::windows::Windows;

const SOURCE: &str = include_str!("../bpf/bystander.bpf.c");
/// The collector that acknowledges all windows except the newest, and the collector that
/// acknowledges none.
const COLLECTORS: [&str; 2] = ["ledger", "late"];
/// The number of packets that [`Bystanders::finish`] sends to show that the probes still count.
const FRAMES: u64 = 3;
/// The number of the oldest and of the newest windows that each check reads.
const LOOKED_AT: u64 = 4;
/// The interval of windows, longer than any test: of a probe with an interval, only a request
/// closes a window, no reader.
const INTERVAL: &str = "24h";
/// The time within which a packet that was sent must have been counted.
const ARRIVAL: Duration = Duration::from_secs(60);

/// The interfaces and hooks of the two probes, which the test must not remove.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    /// The interface of the probe at XDP.
    pub xdp: &'static str,
    /// `native` or `generic`. All XDP programs of an interface run in one mode.
    pub mode: &'static str,
    /// The interfaces of the probe at TC.
    pub tc: &'static [&'static str],
    /// True if the daemon is in another namespace than these interfaces.
    pub abroad: bool,
    /// True if the probe at XDP is for packets of several buffers. Then all others at the hook must
    /// also be for them.
    pub frags: bool,
}

impl Stand {
    /// Hooks of other programs that run before the probe under test.
    pub const BESIDE: Self = Self {
        xdp: MON0,
        mode: "native",
        tc: &[MON0, MON1],
        abroad: false,
        frags: false,
    };
    /// The same bystanders beside probes for packets of several buffers, such as those of the
    /// library.
    pub const FRAGS: Self = Self {
        frags: true,
        ..Self::BESIDE
    };
    /// The hooks of mon1, for tests that remove mon0 or use its hooks.
    pub const ELSEWHERE: Self = Self {
        xdp: MON1,
        tc: &[MON1],
        ..Self::BESIDE
    };

    /// The hooks of mon0 only, for tests that remove mon1.
    pub const AT_MON0: Self = Self {
        tc: &[MON0],
        ..Self::BESIDE
    };

    fn interfaces(&self) -> impl Iterator<Item = &'static str> {
        let further = self
            .tc
            .iter()
            .copied()
            .filter(|interface| *interface != self.xdp);
        std::iter::once(self.xdp).chain(further)
    }

    /// Returns the configuration of the probe at a hook. It counts every packet and lets it pass.
    fn config(&self, hook: &str, monitor: &Namespace) -> Value {
        let (interfaces, context, pass, map, collectors) = match hook {
            "xdp" => (
                &[self.xdp][..],
                "xdp_md",
                "XDP_PASS",
                "BPF_MAP_TYPE_ARRAY",
                &[][..],
            ),
            _ => (
                self.tc,
                "__sk_buff",
                "0",
                "BPF_MAP_TYPE_HASH",
                &COLLECTORS[..],
            ),
        };
        let section = if hook == "xdp" && self.frags {
            "xdp.frags"
        } else {
            hook
        };
        let mut config = json!({
            "interfaces": interfaces,
            "priority": -1000,
            "window": { "interval": INTERVAL, "retain": 100_000, "collectors": collectors },
            "ingress": {
                "hook": hook,
                "source": SOURCE,
                "defines": {
                    "SECTION": format!("\"{section}\""), "CONTEXT": context, "PASS": pass, "TYPE": map
                },
                "metrics": [
                    window("by_window", "by_window"),
                    { "name": "by_sum", "map": "by_sum", "snapshot": true },
                    { "name": "by_live", "map": "by_live" }
                ]
            }
        });
        if hook == "xdp" {
            config["ingress"]["mode"] = json!(self.mode);
        }
        if self.abroad {
            config["netns"] = json!(monitor.path());
        }
        config
    }
}

/// Both probes, with the counters and the earlier answers that they are compared with.
#[derive(Debug)]
pub struct Bystanders {
    stand: Stand,
    monitor: Namespace,
    peers: [(&'static str, Namespace, &'static str); 2],
    /// The counters of packets that arrive at TC, one for each interface in `stand.tc`.
    at_tc: Vec<Counter>,
    probes: Vec<Bystander>,
}

#[derive(Debug)]
struct Bystander {
    address: Address,
    path: String,
    windows: Windows,
    collectors: &'static [&'static str],
    /// The answers of the last look: status, revisions, retained windows, and the end of the last
    /// window.
    status: Value,
    revisions: Value,
    retained: Vec<Vec<u8>>,
    end: Value,
    /// The number of packets in all closed windows.
    counted: u64,
    /// The number of packets that had arrived when the probe's sum began; `live_begun` for its live
    /// counter.
    begun: u64,
    live_begun: u64,
}

impl Bystanders {
    /// Deploys both at the interfaces and hooks of the probe under test. Call this before any other
    /// deployment.
    pub fn deploy(daemon: &Daemon, topology: &Topology) -> Result<Self> {
        Self::deploy_at(daemon, topology, Stand::BESIDE)
    }

    /// Deploys both at mon1, for tests that remove mon0 or use its hooks.
    pub fn deploy_elsewhere(daemon: &Daemon, topology: &Topology) -> Result<Self> {
        Self::deploy_at(daemon, topology, Stand::ELSEWHERE)
    }

    /// Deploys both at the interfaces of `stand`.
    pub fn deploy_at(daemon: &Daemon, topology: &Topology, stand: Stand) -> Result<Self> {
        let monitor = topology.monitor().clone();
        // The counters come before the daemon's dispatcher, so that both see every packet.
        let at_tc = stand
            .tc
            .iter()
            .map(|interface| Counter::attach(&monitor, interface, Place::TcxFirst));
        let mut bystanders = Self {
            at_tc: at_tc.collect::<Result<_>>()?,
            peers: [
                (MON0, topology.generator().clone(), GEN0),
                (MON1, topology.sink().clone(), SINK0),
            ],
            probes: Vec::new(),
            monitor,
            stand,
        };
        for (n, hook) in ["xdp", "tc"].into_iter().enumerate() {
            let name = format!("bystander-{hook}");
            let config = stand.config(hook, &bystanders.monitor);
            let begun = bystanders.arrived(n)?;
            daemon
                .put(&format!("/v1/probes/{name}"), &config)
                .expect(201);
            let collectors = if hook == "tc" { &COLLECTORS[..] } else { &[] };
            bystanders.probes.push(Bystander {
                address: daemon.address(),
                path: format!("/v1/probes/{name}"),
                windows: Windows::of(daemon, &name),
                collectors,
                status: Value::Null,
                revisions: Value::Null,
                retained: Vec::new(),
                end: Value::Null,
                counted: 0,
                begun,
                live_begun: begun,
            });
        }
        for _ in 0..2 {
            bystanders.send(FRAMES)?;
            bystanders.close()?;
        }
        // The open window then holds a packet that could be lost.
        bystanders.send(1)?;
        Ok(bystanders)
    }

    /// Checks that nothing was lost, added or changed since the last look. Closes a window of each.
    pub fn check(&mut self) -> Result<()> {
        for probe in &mut self.probes {
            probe.unchanged().with_context(|| probe.path.clone())?;
        }
        self.close()
    }

    /// Checks, sends some more packets and checks again: this finds a probe that is attached and
    /// counts nothing.
    pub fn finish(mut self) -> Result<()> {
        self.check()?;
        self.send(FRAMES)?;
        self.check()
    }

    /// Finishes like [`Bystanders::finish`] and deletes both, for tests that check the remains
    /// after the last probe.
    pub fn finish_and_delete(self, daemon: &Daemon) -> Result<()> {
        let paths: Vec<String> = self.probes.iter().map(|probe| probe.path.clone()).collect();
        self.finish()?;
        for path in paths {
            daemon.delete(&path).expect(204);
        }
        Ok(())
    }

    /// Adapts the expectations after daemons have ended with `--detach-on-exit` and no packet has
    /// come since: the open windows are closed, and live counters begin anew.
    pub fn detached(&mut self) -> Result<()> {
        for n in 0..self.probes.len() {
            let arrived = self.arrived(n)?;
            let probe = &mut self.probes[n];
            for seq in probe
                .windows
                .try_list(&format!("after={}", probe.retained.len()))?
                .seqs()
            {
                let document = probe.windows.try_get(seq)?.expect(200).json();
                probe
                    .add(&document)
                    .with_context(|| format!("{}: {document}", probe.path))?;
                // The next window begins when the next daemon deploys the probe.
                probe.end = Value::Null;
            }
            let lost = arrived - probe.begun - probe.counted;
            ensure!(
                lost == 0,
                "{}: {lost} packets were in no window in the end",
                probe.path
            );
            probe.remember()?;
        }
        self.begin_anew()
    }

    /// Adapts the expectations after the maps were lost with their pins and both probes were
    /// deployed anew: live counters and open windows begin anew with the next packet; closed
    /// windows, sums and everything else stay.
    pub fn begin_anew(&mut self) -> Result<()> {
        for n in 0..self.probes.len() {
            let arrived = self.arrived(n)?;
            let probe = &mut self.probes[n];
            probe.live_begun = arrived;
            probe.begun = arrived - probe.counted;
            probe.end = Value::Null;
        }
        Ok(())
    }

    /// Returns the number of packets that have arrived for the probe of this number.
    fn arrived(&self, probe: usize) -> Result<u64> {
        if probe == 0 {
            return received(&self.monitor, self.stand.xdp);
        }
        self.at_tc.iter().map(Counter::packets).sum()
    }

    /// Sends packets that no network stack answers to each interface that has one of the probes.
    fn send(&self, count: u64) -> Result<()> {
        let mut frame = [0; 60];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        for interface in self.stand.interfaces() {
            let peer = self.peers.iter().find(|(end, ..)| *end == interface);
            let (_, namespace, peer) =
                peer.with_context(|| format!("nobody sends to {interface}"))?;
            let before = received(&self.monitor, interface)?;
            send_frames(namespace, peer, &frame, count)?;
            wait_for("the packets to bystanders", ARRIVAL, || {
                let now = received(&self.monitor, interface)?;
                ensure!(
                    now >= before + count,
                    "{interface} has {now} after {before}, {count} were sent"
                );
                Ok(())
            })?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        for n in 0..self.probes.len() {
            let before = self.arrived(n)?;
            let document = self.probes[n].windows.try_close()?.expect(201).json();
            let after = self.arrived(n)?;
            let probe = &mut self.probes[n];
            probe
                .add_closed(&document, before, after)
                .with_context(|| format!("{}: {document}", probe.path))?;
        }
        Ok(())
    }
}

impl Bystander {
    fn get(&self, rest: &str) -> Result<Value> {
        let answer = http::request(
            &self.address,
            "GET",
            &format!("{}{rest}", self.path),
            &[],
            b"",
        )?;
        ensure!(
            answer.status == 200,
            "GET {rest}: {} {}",
            answer.status,
            answer.text()
        );
        Ok(answer.json())
    }

    /// Checks everything that a client can see and that packets do not change.
    fn unchanged(&self) -> Result<()> {
        let (status, revisions) = (self.status()?, self.get("/revisions")?);
        ensure!(
            status == self.status,
            "its status: {}",
            difference(&self.status, &status)
        );
        let changes = || difference(&self.revisions, &revisions);
        ensure!(revisions == self.revisions, "its revisions: {}", changes());
        let newest = self.retained.len() as u64;
        let list = self.windows.try_list("")?;
        let seqs: Vec<u64> = (1..=newest).collect();
        ensure!(
            list.seqs() == seqs && list.lost == 0,
            "windows {seqs:?} were retained: {list:?}"
        );
        // Tests that check often have too many windows to read all each time.
        let looked_at = |seq: &u64| *seq <= LOOKED_AT || *seq + LOOKED_AT > newest;
        for (seq, known) in (1..).zip(&self.retained).filter(|(seq, _)| looked_at(seq)) {
            let answer = self.windows.try_get(seq)?;
            ensure!(
                answer.status == 200 && answer.body == *known,
                "window {seq} is {}",
                answer.text()
            );
        }
        for (collector, acknowledged) in self.collectors.iter().zip([newest - 1, 0]) {
            let list = self.windows.try_list(&format!("collector={collector}"))?;
            let left: Vec<u64> = (acknowledged + 1..=newest).collect();
            ensure!(
                list.seqs() == left && list.lost == 0,
                "{left:?} are left to {collector}: {list:?}"
            );
        }
        Ok(())
    }

    /// Checks a window that a request has closed when at least `before` and at most `after` packets
    /// had arrived.
    fn add_closed(&mut self, document: &Value, before: u64, after: u64) -> Result<()> {
        let counters = [("by_sum", self.begun), ("by_live", self.live_begun)];
        for (metric, begun) in counters {
            let (least, most) = (before - begun, after - begun);
            let count = total(document, "ingress", metric);
            ensure!(
                (least..=most).contains(&count),
                "{count} in {metric}, of {least}"
            );
        }
        self.add(document)?;
        self.remember()
    }

    /// Checks a window against the windows before it.
    fn add(&mut self, document: &Value) -> Result<()> {
        let seq = self.retained.len() as u64 + 1;
        let window = &document["window"];
        ensure!(
            window["seq"] == seq && window.get("lost_windows").is_none(),
            "it should be window {seq}"
        );
        ensure!(
            self.end.is_null() || window["start"] == self.end,
            "the window before ended at {}",
            self.end
        );
        let [in_window, sum] =
            ["by_window", "by_sum"].map(|metric| total(document, "ingress", metric));
        ensure!(
            self.counted + in_window == sum,
            "{} in windows before, {in_window} here",
            self.counted
        );
        self.counted = sum;
        self.end = window["end"].clone();
        self.retained
            .push(self.windows.try_get(seq)?.expect(200).body);
        if let (Some(collector), true) = (self.collectors.first(), seq > 1) {
            self.windows
                .acknowledge(seq - 1, Some(collector))?
                .expect(204);
        }
        Ok(())
    }

    /// Returns the status without the measurements of a trial: a start that deploys the probe anew
    /// tries it again.
    fn status(&self) -> Result<Value> {
        let mut status = self.get("")?;
        let costs = status["cost"]["directions"]
            .as_object_mut()
            .into_iter()
            .flatten();
        for cost in costs.filter_map(|(_, cost)| cost.as_object_mut()) {
            cost.retain(|name, _| !["ns_per_packet", "noise_ns", "frame"].contains(&name.as_str()));
        }
        Ok(status)
    }

    /// Remembers the answers that must be the same at the next look.
    fn remember(&mut self) -> Result<()> {
        (self.status, self.revisions) = (self.status()?, self.get("/revisions")?);
        let attached = |interface: &Value| interface["state"] == "attached";
        let interfaces = self.status["interfaces"].as_array().context("interfaces")?;
        ensure!(
            self.status["state"] == "running"
                && interfaces.iter().all(attached)
                && !interfaces.is_empty(),
            "its status is {}",
            self.status
        );
        Ok(())
    }
}

/// Returns the number of packets that an interface has received, by its own counter. Reads a file
/// because a command would take long for a question this frequent.
fn received(namespace: &Namespace, interface: &str) -> Result<u64> {
    let text = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    let of = |line: &str| {
        line.trim_start()
            .strip_prefix(interface)?
            .strip_prefix(':')
            .map(str::to_owned)
    };
    let fields = text
        .lines()
        .find_map(of)
        .with_context(|| format!("there is no {interface}"))?;
    // The fields are bytes, packets, errors and more.
    let packets = fields
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok());
    packets.with_context(|| format!("no number of packets in {fields:?}"))
}

/// Describes the fields of an object that differ, as they were and as they are.
fn difference(before: &Value, now: &Value) -> String {
    let names = before
        .as_object()
        .into_iter()
        .chain(now.as_object())
        .flat_map(|fields| fields.keys());
    let changed: BTreeSet<&String> = names.filter(|name| before[*name] != now[*name]).collect();
    let change = |name: &&String| format!("{name} was {}, is {}", before[*name], now[*name]);
    changed.iter().map(change).collect::<Vec<_>>().join("; ")
}
