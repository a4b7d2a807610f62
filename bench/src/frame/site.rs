//! The place of an experiment: a monitored interface, and packets that arrive there.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::programs::Program;
use twinprobe_tests::traffic::{self, GeneratorOptions, Load, Spread};
use twinprobe_tests::{Daemon, DaemonOptions, Namespace, Topology, counter, topology};

use super::moongen;
use super::options::{Bench, Generator};

/// The longest time until the first packet, DPDK's start included.
const FIRST_PACKET: Duration = Duration::from_secs(60);
/// The longest time until an interface has counted the sent packets.
const LAST_PACKET: Duration = Duration::from_secs(10);
/// The CPU that sends and receives, if the kernel's generator sends.
pub const LOADED: usize = 0;

/// A monitored interface.
#[derive(Debug)]
pub struct Site {
    /// The namespaces and pairs, which a card does not need for its packets.
    pub topology: Topology,
    generator: Generator,
    namespace: Namespace,
    interface: String,
}

/// The sending of packets. It ends on drop.
#[derive(Debug)]
pub enum Sending<'a> {
    Traffic(traffic::Running),
    MoonGen(moongen::Running, &'a Site, u64),
}

impl Site {
    pub fn new(bench: &Bench) -> Result<Self> {
        let topology = Topology::new()?;
        let generator = bench.generator.clone();
        let (namespace, interface) = match &generator {
            Generator::MoonGen(moongen::MoonGen {
                interface: Some(interface),
                ..
            }) => (Namespace::current()?, interface.clone()),
            _ => (topology.monitor().clone(), "mon0".to_owned()),
        };
        Ok(Self {
            topology,
            generator,
            namespace,
            interface,
        })
    }

    /// Returns the name of the monitored interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Describes the sender, for the document.
    pub fn describe(&self) -> String {
        match &self.generator {
            Generator::Traffic => {
                "the generator of the tests (`traffic`), which sends from the kernel on CPU 0; the \
                same CPU receives"
                    .to_owned()
            }
            Generator::MoonGen(moongen) => moongen.describe(),
        }
    }

    /// Starts a daemon without probes.
    pub fn daemon(&self, arguments: &[&str]) -> Result<Daemon> {
        let options = arguments
            .iter()
            .fold(DaemonOptions::default(), |options, argument| {
                options.argument(argument)
            });
        Daemon::start_with(&self.namespace, &options)
    }

    /// Sends as fast as possible until stopped. The first packets have arrived when this returns.
    pub fn send(&self, spread: Spread) -> Result<Sending<'_>> {
        let mut sending = match &self.generator {
            Generator::Traffic => Sending::Traffic(self.traffic(spread)?.spawn(Load::default())),
            Generator::MoonGen(moongen) => {
                let before = self.counted()?;
                Sending::MoonGen(self.start_moongen(moongen, spread, None)?, self, before)
            }
        };
        let limit = Instant::now() + FIRST_PACKET;
        while sending.sent()? == 0 {
            sending.check()?;
            ensure!(Instant::now() < limit, "no packet within {FIRST_PACKET:?}");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(sending)
    }

    /// Sends this many packets and waits for their arrival.
    pub fn send_count(&self, spread: Spread, count: u64) -> Result<()> {
        match &self.generator {
            Generator::Traffic => self.traffic(spread)?.send(count),
            Generator::MoonGen(moongen) => {
                let before = self.counted()?;
                let sent = self.start_moongen(moongen, spread, Some(count))?.join()?;
                ensure!(sent == count, "{sent} of {count} packets were sent");
                let limit = Instant::now() + LAST_PACKET;
                while self.counted()? < before + count {
                    ensure!(
                        Instant::now() < limit,
                        "{} of {count} packets arrived",
                        self.counted()? - before
                    );
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            }
        }
    }

    /// Makes the kernel's generator, even if the options name another one: for experiments that
    /// need figures from it alone.
    pub fn traffic(&self, spread: Spread) -> Result<traffic::Generator> {
        let options = GeneratorOptions {
            spread,
            cpu: Some(LOADED),
            ..GeneratorOptions::default()
        };
        traffic::Generator::new(self.topology.generator(), "gen0", options)
    }

    fn start_moongen(
        &self,
        moongen: &moongen::MoonGen,
        spread: Spread,
        count: Option<u64>,
    ) -> Result<moongen::Running> {
        match &moongen.interface {
            Some(interface) => moongen.start(&Namespace::current()?, interface, &spread, count),
            None => moongen.start(self.topology.generator(), "gen0", &spread, count),
        }
    }

    /// Returns the packets that the sending end of the pair, or the interface of a card, has
    /// counted.
    pub fn counted(&self) -> Result<u64> {
        if self.interface == "mon0" {
            return Ok(topology::interface_stats(self.topology.generator(), "gen0")?.tx_packets);
        }
        Ok(topology::interface_stats(&self.namespace, &self.interface)?.rx_packets)
    }

    /// Returns the program that the kernel calls first at the interface, by the kernel's own
    /// report.
    pub fn attached(&self, hook: &str) -> Result<Program> {
        self.attached_at(&self.interface, hook)
    }

    /// Returns the program that the kernel calls first at an interface of the monitored namespace.
    pub fn attached_at(&self, interface: &str, hook: &str) -> Result<Program> {
        let id = if hook == "xdp" {
            let link = self
                .namespace
                .output("ip", &["-j", "-d", "link", "show", "dev", interface])?;
            let link: serde_json::Value = serde_json::from_str(&link)?;
            link[0]["xdp"]["prog"]["id"]
                .as_u64()
                .context("a program at XDP")? as u32
        } else {
            *counter::tcx_order(&self.namespace, interface)?
                .first()
                .context("a program at TC")?
        };
        Program::from_id(id)
    }
}

impl Sending<'_> {
    /// Returns how many packets were sent so far, by whole batches.
    pub fn sent(&self) -> Result<u64> {
        match self {
            Self::Traffic(running) => Ok(running.sent()),
            Self::MoonGen(_, site, before) => Ok(site.counted()? - before),
        }
    }

    fn check(&mut self) -> Result<()> {
        match self {
            Self::Traffic(running) => {
                ensure!(!running.is_finished(), "the generator ended");
                Ok(())
            }
            Self::MoonGen(running, ..) => running.check(),
        }
    }

    /// Stops the sender, and returns the number of sent packets.
    pub fn stop(self) -> Result<u64> {
        match self {
            Self::Traffic(running) => running.stop(),
            Self::MoonGen(running, ..) => running.stop(),
        }
    }
}
