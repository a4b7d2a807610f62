//! The world of a run: namespaces, traffic, a daemon, and models for the comparison.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::beside::Beside;
use super::ledger::{Key, Range};
use super::plan::PROBES;
use super::probe::{ProbeModel, Turn};
use super::sender::{self, Socket};
use super::spec::{KEYS, Place, ProbeSpec};
use super::time::{Clock, now};
use crate::counter::{Counter, Place as CounterPlace};
use crate::http::{self, Address, Response};
use crate::random::Random;
use crate::topology::{GEN0, MON0, MON1, SINK0, interface_stats};
use crate::traffic::Generator;
use crate::wait::{EndOnDrop, PATIENCE, wait_for};
use crate::{Daemon, DaemonOptions, Directories, EgressForward, Namespace, Topology};

/// The place of each probe.
pub const PLACES: [Place; PROBES.len()] = [
    Place::Xdp,
    Place::XdpPattern,
    Place::TcIngress,
    Place::TcEgress,
    Place::Space,
];
/// The number of unacknowledged windows above which all are acknowledged, so that none is lost.
const MANY: u64 = 40;

/// The state of a run.
pub struct World {
    // The fields are dropped in this order: the daemon ends before its interfaces are removed.
    pub daemon: Option<Daemon>,
    pub directories: Arc<Directories>,
    pub options: DaemonOptions,
    /// True if the daemon is about to die.
    pub doomed: bool,
    /// True if requests may fail, which must change nothing.
    pub trouble: bool,
    beside: Beside,
    /// The present name of the temporary interface; `extra_socket` sends to it.
    pub extra: Option<&'static str>,
    extra_socket: Option<Socket>,
    /// True if the daemon has no capabilities in other namespaces.
    pub little: bool,
    /// The temporary namespace.
    pub space: Option<(Namespace, Socket)>,
    pub clock: Arc<Clock>,
    pub probes: BTreeMap<usize, ProbeModel>,
    next_key: Key,
    pub next_order: u64,
    pub next_generation: u32,
    socket: Socket,
    generator: Generator,
    sink: Counter,
    _forward: EgressForward,
    pub topology: Topology,
}

/// The packets of one burst, with the times of the first and the last one.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub key: Key,
    pub packets: u64,
    pub begun: i128,
    pub ended: i128,
}

impl World {
    /// Starts a daemon. `little`: it has only the capabilities of the service's unit.
    pub fn new(options: DaemonOptions, little: bool) -> Result<Self> {
        let topology = Topology::new()?;
        let sink = Counter::attach(topology.sink(), SINK0, CounterPlace::XdpDrop)?;
        let forward = topology.forward_to_egress()?;
        let generator = sender::generator(topology.generator(), GEN0)?;
        let socket = Socket::new(topology.generator(), GEN0)?;
        let directories = Arc::new(Directories::with_state_in_memory(64 << 20)?);
        let mut options = options.environment(
            "TWINPROBE_CLOCK_OFFSET",
            directories.temporary().join("clock"),
        );
        if little {
            options.binary = Some(super::power::wrapper(directories.temporary())?);
        }
        let daemon = Daemon::start_in(topology.monitor(), &options, Arc::clone(&directories))?;
        Ok(Self {
            daemon: Some(daemon),
            directories,
            options,
            doomed: false,
            trouble: false,
            beside: Beside::start(&topology)?,
            extra: None,
            extra_socket: None,
            little,
            space: None,
            clock: Arc::default(),
            probes: BTreeMap::new(),
            next_key: 0,
            next_order: 0,
            next_generation: 0,
            socket,
            generator,
            sink,
            _forward: forward,
            topology,
        })
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.directories.socket())
    }

    /// Tells whether there may be too few keys for another step.
    pub const fn is_exhausted(&self) -> bool {
        self.next_key + 16 > KEYS
    }

    /// Returns the next key that enforcing probes drop, or do not drop.
    fn key(&mut self, dropped: bool) -> Key {
        while (self.next_key % 4 == 3) != dropped {
            self.next_key += 1;
        }
        self.next_key += 1;
        self.next_key - 1
    }

    /// Returns the probes that see packets of a key, in their order, and whether the packets reach
    /// the sink.
    fn path(&self, key: Key) -> (Vec<usize>, bool) {
        let at = |index: &usize| {
            let xdp = matches!(PLACES[*index], Place::Xdp | Place::XdpPattern);
            (if xdp { 0 } else { *index }, self.probes[index].order)
        };
        let here = self
            .probes
            .keys()
            .filter(|index| PLACES[**index] != Place::Space);
        let mut order: Vec<usize> = here.copied().collect();
        order.sort_by_key(at);
        let mut seen = Vec::new();
        for index in order {
            seen.push(index);
            if self.probes[&index].spec.enforce && key % 4 == 3 {
                return (seen, false);
            }
        }
        (seen, true)
    }

    /// Sends a burst while nothing else happens.
    pub fn send(&mut self, packets: u64, dropped: bool) -> Result<()> {
        let key = self.key(dropped);
        let before = self.sink.packets()?;
        let begun = now();
        sender::burst(&mut self.generator, key, packets)?;
        let (_, arrives) = self.path(key);
        let mut expected = if arrives { packets } else { 0 };
        let mut sent = vec![Sent {
            key,
            packets,
            begun,
            ended: 0,
        }];
        if !arrives {
            // A second burst that arrives shows that the dropped one has been counted.
            let marker = self.key(false);
            sender::burst(&mut self.generator, marker, 1)?;
            expected += 1;
            sent.push(Sent {
                key: marker,
                packets: 1,
                begun,
                ended: 0,
            });
        }
        self.wait_for_sink(before + expected)?;
        let ended = now();
        for sent in sent {
            self.account(Sent { ended, ..sent }, None);
        }
        Ok(())
    }

    fn wait_for_sink(&self, expected: u64) -> Result<()> {
        let arrived = wait_for("packets at the sink", PATIENCE, || {
            let arrived = self.sink.packets()?;
            ensure!(arrived >= expected, "{arrived} of {expected}");
            Ok(arrived)
        });
        let arrived = match arrived {
            Ok(arrived) => arrived,
            Err(error) => return Err(error.context(self.where_packets_are()?)),
        };
        ensure!(
            arrived == expected,
            "{arrived} packets at the sink, {expected} were expected"
        );
        Ok(())
    }

    /// Describes how far packets came that the sink misses: the counters of all ends, and of the
    /// kernel's backlog.
    fn where_packets_are(&self) -> Result<String> {
        let (monitor, sink) = (self.topology.monitor(), self.topology.sink());
        let stats = interface_stats;
        let backlog = std::fs::read_to_string("/proc/net/softnet_stat")?;
        Ok(format!(
            "gen0: {:?}\nmon0: {:?}\nmon1: {:?}\nsink0: {:?}\nsoftnet_stat:\n{backlog}",
            stats(self.topology.generator(), GEN0)?,
            stats(monitor, MON0)?,
            stats(monitor, MON1)?,
            stats(sink, SINK0)?,
        ))
    }

    /// Notes packets for all probes on their path. The probe `changing` has seen an unknown part of
    /// them.
    pub fn account(&mut self, sent: Sent, changing: Option<usize>) {
        let (path, _) = self.path(sent.key);
        for index in path {
            let packets = if changing == Some(index) {
                Range::up_to(sent.packets)
            } else {
                Range::exactly(sent.packets)
            };
            let probe = self.probes.get_mut(&index).expect("it is on the path");
            probe.see(sent.key, packets, sent.begun, sent.ended);
        }
        // The probe beside comes after the XDP programs, and only these drop packets.
        if self.path(sent.key).1 {
            self.beside.see(sent);
        }
    }

    /// Sets the present name of the temporary interface, and opens a socket that sends to it.
    pub fn set_extra(&mut self, name: Option<&'static str>) -> Result<()> {
        self.extra = name;
        self.extra_socket = match name {
            Some(_) => Some(Socket::new(self.topology.generator(), "genx0")?),
            None => None,
        };
        Ok(())
    }

    /// Tells whether the probe's temporary interface exists now.
    pub fn is_there(&self, index: usize) -> bool {
        match PLACES[index] {
            Place::Space => self.space.is_some(),
            _ => self.extra == Some("ext0"),
        }
    }

    /// Sends a burst into the temporary namespace.
    pub fn send_space(&mut self, packets: u64) -> Result<()> {
        if self.space.is_none() {
            return Ok(());
        }
        let key = self.key(false);
        let Some((space, socket)) = &self.space else {
            return Ok(());
        };
        let begun = now();
        let received = || interface_stats(space, "in0").map(|stats| stats.rx_packets);
        let before = received()?;
        for number in 0..packets as u32 {
            socket.send(key << super::spec::SHIFT | number)?;
        }
        wait_for("packets in the namespace", PATIENCE, || {
            let arrived = received()?;
            ensure!(
                arrived - before == packets,
                "{} of {packets}",
                arrived - before
            );
            Ok(())
        })?;
        for probe in self
            .probes
            .values_mut()
            .filter(|probe| probe.spec.place == Place::Space)
        {
            probe.see(key, Range::exactly(packets), begun, now());
        }
        Ok(())
    }

    /// Returns a random configuration of a new probe.
    pub fn choose(&self, index: usize, generation: u32, random: &mut Random) -> ProbeSpec {
        let mut spec = ProbeSpec::choose(PLACES[index], generation, random);
        spec.netns = (PLACES[index] == Place::Space).then(|| self.space_path());
        spec
    }

    /// Returns the path of the temporary namespace.
    pub fn space_path(&self) -> String {
        self.topology
            .generator()
            .path()
            .display()
            .to_string()
            .replace("-gen", "-space")
    }

    /// Sends a burst to the temporary interface, which only the probe with a pattern uses.
    pub fn send_extra(&mut self, packets: u64, seen: bool) -> Result<()> {
        let (Some(name), Some(socket)) = (self.extra, self.extra_socket.take()) else {
            return Ok(());
        };
        let key = self.key(false);
        let monitor = self.topology.monitor();
        let received = || interface_stats(monitor, name).map(|stats| stats.rx_packets);
        let before = received()?;
        let begun = now();
        for number in 0..packets as u32 {
            socket.send(key << super::spec::SHIFT | number)?;
        }
        wait_for("packets at the other interface", PATIENCE, || {
            let arrived = received()?;
            ensure!(
                arrived - before == packets,
                "{} of {packets}",
                arrived - before
            );
            Ok(())
        })?;
        self.extra_socket = Some(socket);
        if seen && name == "ext0" {
            for probe in self
                .probes
                .values_mut()
                .filter(|probe| probe.spec.place == Place::XdpPattern)
            {
                probe.see(key, Range::exactly(packets), begun, now());
            }
        }
        Ok(())
    }

    /// Runs `action` while packets that no probe drops pass, if `traffic`.
    pub fn during<T>(
        &mut self,
        traffic: bool,
        action: impl FnOnce(&Self) -> T,
    ) -> Result<(T, Option<Sent>)> {
        if !traffic {
            return Ok((action(self), None));
        }
        let key = self.key(false);
        let before = self.sink.packets()?;
        let begun = now();
        let done = AtomicBool::new(false);
        let (result, packets) = thread::scope(|scope| {
            let sending = scope.spawn(|| self.socket.send_until(key, &done));
            let end = EndOnDrop(&done);
            let result = action(self);
            drop(end);
            done.store(true, Ordering::Release);
            (result, sending.join())
        });
        let packets = packets.map_err(|_| anyhow::anyhow!("the sender panicked"))??;
        if let Err(error) = self.wait_for_sink(before + packets) {
            bail!("while something was done: {error:#}");
        }
        Ok((
            result,
            Some(Sent {
                key,
                packets,
                begun,
                ended: now(),
            }),
        ))
    }

    /// Sends a request. Returns `None` if the connection broke.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> Option<Response> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        http::request(&self.address(), method, path, &[], body.as_bytes()).ok()
    }

    /// Returns the status of a probe, `None` if it does not exist.
    pub fn status(&self, path: &str) -> Result<Option<Value>> {
        let answer = http::request(&self.address(), "GET", path, &[], b"")?;
        match answer.status {
            200 => Ok(Some(answer.json())),
            404 => Ok(None),
            _ => bail!("{path}: {answer:?}"),
        }
    }

    /// Starts a daemon on the state and pins of the last one.
    pub fn start(&mut self, options: &DaemonOptions) -> Result<()> {
        let daemon = Daemon::start_in(
            self.topology.monitor(),
            options,
            Arc::clone(&self.directories),
        )?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Ends the daemon, if there is one, and starts the next as usual.
    pub fn recover(&mut self) -> Result<()> {
        if let Some(daemon) = self.daemon.take() {
            let log = daemon.log();
            if log.contains("panicked") {
                bail!("the daemon panicked:\n{log}");
            }
            let _ = daemon.kill();
        }
        self.doomed = false;
        let options = self.options.clone();
        self.start(&options)
    }

    /// Checks the new windows of all probes. `turn` is a change of one of them.
    pub fn collect(&mut self, mut turn: Option<(usize, Turn)>) -> Result<()> {
        let address = self.address();
        for (index, probe) in &mut self.probes {
            let turn = turn
                .take_if(|(changed, _)| changed == index)
                .map(|(_, turn)| turn);
            probe
                .collect(&address, turn)
                .with_context(|| format!("windows of {}", probe.name))?;
        }
        Ok(())
    }

    /// Compares everything that can be read without a change.
    pub fn check(&mut self) -> Result<()> {
        self.collect(None)?;
        let list = http::request(&self.address(), "GET", "/v1/probes", &[], b"")?;
        ensure!(list.status == 200, "{list:?}");
        let list = list.json();
        let found = list["probes"].as_array().context("a list of probes")?;
        let mut names: Vec<&str> = self
            .probes
            .values()
            .map(|probe| probe.name.as_str())
            .collect();
        names.sort_unstable();
        let listed: Vec<&str> = found
            .iter()
            .filter_map(|probe| probe["name"].as_str())
            .collect();
        ensure!(
            listed == names,
            "probes are {listed:?}, they must be {names:?}"
        );
        for index in self.probes.keys().copied().collect::<Vec<_>>() {
            let is_there = self.is_there(index);
            let probe = self.probes.get_mut(&index).context("a probe")?;
            let status = found
                .iter()
                .find(|status| status["name"] == probe.name)
                .context("listed")?;
            super::status::check(probe, status, is_there)
                .with_context(|| format!("status of {}", probe.name))?;
        }
        self.beside.check()?;
        let address = self.address();
        for probe in self
            .probes
            .values_mut()
            .filter(|probe| probe.seq - probe.settled() > MANY)
        {
            probe.acknowledge_at(&address, probe.seq, None)?;
        }
        let indices: Vec<usize> = self.probes.keys().copied().collect();
        for index in indices {
            if !self.probes[&index].spec.has_windows()
                || self.probes[&index].spec.interval.is_some()
            {
                super::steps::read(self, index, false)?;
            }
        }
        Ok(())
    }
}
