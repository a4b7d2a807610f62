//! The failures that the test causes at the parts of a site.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::cable::{Cable, CableEnd};
use twinprobe_tests::random::Random;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::site::{NODES, Site, layout};
use crate::scene::{COLLECTOR, Stream};

/// The rounds of full counts.
pub const ROUNDS: u64 = 100;
/// In a full run, the first of this many cuts lasts longer than the timeouts of clients.
const LONG_CUTS: u64 = 12;
/// Longer than the five seconds that a request to the broker may take, and than the minute of one
/// to a daemon.
const LONG: [Duration; 2] = [Duration::from_secs(7), Duration::from_secs(65)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strike {
    KillStream,
    KillBroker,
    KillDaemon,
    /// The broker pauses for a moment; its connections stay.
    SilenceBroker,
    CutBroker,
    CutDaemon,
    FillBroker,
    FillDaemon,
    RenewBroker,
    RenewDaemons,
    ReplaceLayout,
}

impl Strike {
    pub const ALL: [Self; 11] = [
        Self::KillStream,
        Self::KillBroker,
        Self::KillDaemon,
        Self::SilenceBroker,
        Self::CutBroker,
        Self::CutDaemon,
        Self::FillBroker,
        Self::FillDaemon,
        Self::RenewBroker,
        Self::RenewDaemons,
        Self::ReplaceLayout,
    ];
    pub const KILLS: [Self; 3] = [Self::KillStream, Self::KillBroker, Self::KillDaemon];
}

/// A site, the stream that runs there, and the strikes so far.
pub struct Chaos<'a> {
    pub site: &'a mut Site,
    random: Random,
    stream: Option<Stream>,
    /// The last window of each node that the stream has acknowledged.
    acknowledged: [u64; NODES.len()],
    layouts: [usize; NODES.len()],
    pub done: BTreeMap<Strike, u64>,
    /// The repeats and the gaps that streams have counted.
    pub counted: [u64; 2],
}

impl<'a> Chaos<'a> {
    pub fn new(site: &'a mut Site) -> Result<Self> {
        let stream = Some(site.stream()?);
        let (acknowledged, layouts) = ([0; NODES.len()], [0; NODES.len()]);
        let (random, done) = (Random::new(), BTreeMap::new());
        Ok(Self {
            site,
            random,
            stream,
            acknowledged,
            layouts,
            done,
            counted: [0; 2],
        })
    }

    /// Strikes once with each of these, in any order.
    pub fn round(&mut self, strikes: &[Strike]) -> Result<()> {
        let mut left = strikes.to_vec();
        while !left.is_empty() {
            let strike = left.swap_remove(self.random.below(left.len() as u64) as usize);
            let node = self.random.below(NODES.len() as u64) as usize;
            self.wait_until_acknowledged(node)?;
            self.pass();
            println!("{strike:?} at {}", NODES[node]);
            self.strike(strike, node)
                .with_context(|| format!("{strike:?} at {}", NODES[node]))?;
            *self.done.entry(strike).or_default() += 1;
        }
        Ok(())
    }

    /// Waits until the stream has acknowledged one more window of a node.
    fn wait_until_acknowledged(&mut self, node: usize) -> Result<()> {
        let (daemon, before) = (self.site.nodes[node].daemon(), self.acknowledged[node]);
        self.acknowledged[node] = wait_for("an acknowledgement", PATIENCE, || {
            let list = daemon.json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
            let after = list["after"].as_u64().unwrap_or_default();
            ensure!(after > before, "{}: {list}", NODES[node]);
            Ok(after)
        })?;
        Ok(())
    }

    /// Waits for at most the length of a window, so that a strike finds a half-written file, or a
    /// batch before its acknowledgement.
    fn pass(&mut self) {
        thread::sleep(Duration::from_millis(self.random.below(200)));
    }

    fn strike(&mut self, strike: Strike, node: usize) -> Result<()> {
        match strike {
            Strike::KillStream => {
                self.end()?;
                self.stream = Some(self.site.stream()?);
            }
            Strike::KillBroker => {
                self.site.broker.kill()?;
                self.site.start_broker()?;
            }
            Strike::KillDaemon => self.site.nodes[node].kill_daemon()?,
            Strike::SilenceBroker => {
                self.site.broker.signal(libc::SIGSTOP)?;
                self.pass();
                self.site.broker.signal(libc::SIGCONT)?;
            }
            Strike::CutBroker => {
                let (end, time) = self.cut(Strike::CutBroker, LONG[0]);
                cut_for(&self.site.to_broker, end, time)?;
            }
            Strike::CutDaemon => {
                let (end, time) = self.cut(Strike::CutDaemon, LONG[1]);
                cut_for(&self.site.cables[node], end, time)?;
            }
            Strike::FillBroker => self.fill_broker()?,
            Strike::FillDaemon => self.fill_daemon(node)?,
            Strike::RenewBroker => {
                self.site.of_broker.renew()?;
                self.site.broker.signal(libc::SIGHUP)?;
            }
            Strike::RenewDaemons => {
                self.site.of_daemons.renew()?;
                self.site
                    .nodes
                    .iter()
                    .for_each(|node| node.daemon().signal(libc::SIGHUP));
            }
            Strike::ReplaceLayout => {
                self.layouts[node] += 1;
                let config = layout(self.layouts[node]);
                self.site.nodes[node]
                    .daemon()
                    .put("/v1/probes/p", &config)
                    .expect(200);
            }
        }
        Ok(())
    }

    /// Kills the stream, and notes what it has counted.
    pub fn end(&mut self) -> Result<()> {
        let stream = self.stream.take().context("the stream runs")?;
        let names = [
            "twinprobe_stream_repeats_total",
            "twinprobe_stream_gaps_total",
        ];
        let counted = self.site.at_center(|| {
            names
                .iter()
                .map(|name| stream.sample(&format!("{name}{{")))
                .collect::<Result<Vec<_>>>()
        })?;
        self.counted
            .iter_mut()
            .zip(counted)
            .for_each(|(sum, count)| *sum += count as u64);
        stream.kill()
    }

    /// Chooses the end and the time of a cut.
    fn cut(&mut self, strike: Strike, long: Duration) -> (CableEnd, Duration) {
        let end = if self.random.below(2) == 0 {
            CableEnd::Near
        } else {
            CableEnd::Far
        };
        let before = self.done.get(&strike).copied().unwrap_or_default();
        let is_long = scaled(1, ROUNDS) >= ROUNDS && before % LONG_CUTS == 0;
        (
            end,
            if is_long {
                long
            } else {
                Duration::from_millis(200 + self.random.below(800))
            },
        )
    }

    /// The disk of the broker is full until the stream has noticed. The broker must start again,
    /// because after that it stores nothing more.
    fn fill_broker(&mut self) -> Result<()> {
        let Self { site, stream, .. } = self;
        let stream = stream.as_ref().context("the stream runs")?;
        let failures = || site.at_center(|| stream.sample("twinprobe_stream_failures_total{"));
        let before = failures()?;
        site.broker_disk.fill()?;
        wait_for("failures", PATIENCE, || {
            // One failure may come from an earlier strike.
            ensure!(failures()? >= before + 2.0);
            Ok(())
        })?;
        site.broker.kill()?;
        site.broker_disk.free()?;
        site.start_broker()
    }

    /// The disk of a daemon is full until the daemon fails to close a window.
    fn fill_daemon(&mut self, node: usize) -> Result<()> {
        let daemon = self.site.nodes[node].daemon();
        let failures = || daemon.log().matches("windows can't be closed").count();
        let (before, directories) = (failures(), daemon.directories());
        directories.state_in_memory().fill()?;
        wait_for("a failure", PATIENCE, || {
            ensure!(failures() > before);
            Ok(())
        })?;
        self.pass();
        let daemon = self.site.nodes[node].daemon();
        daemon.directories().state_in_memory().free()
    }
}

fn cut_for(cable: &Cable, end: CableEnd, time: Duration) -> Result<()> {
    cable.cut(end)?;
    thread::sleep(time);
    cable.mend()
}
