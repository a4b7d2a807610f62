//! Slices of time in which frames are counted, with the daemon at work or stopped.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use twinprobe_tests::measure::processor_seconds;
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Meter};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, Topology, probes};

use super::placebo::Placebo;
use super::wall::{now, sleep_until};
use crate::frame::site::LOADED;

const PROBE: &str = "counter";

/// A daemon with the packet-counter at mon0, which drops the frames.
pub struct Scene {
    pub daemon: Daemon,
    pub windows: Windows,
    topology: Topology,
}

/// The process that works in some slices and rests in others.
#[derive(Debug)]
pub enum Subject<'a> {
    Daemon(&'a Daemon),
    Placebo(Placebo),
}

impl Subject<'_> {
    fn pid(&self) -> u32 {
        match self {
            Self::Daemon(daemon) => daemon.pid(),
            Self::Placebo(placebo) => placebo.pid(),
        }
    }

    pub fn pause(&self) {
        match self {
            Self::Daemon(daemon) => daemon.pause(),
            Self::Placebo(placebo) => placebo.signal(libc::SIGSTOP),
        }
    }

    pub fn resume(&self) {
        match self {
            Self::Daemon(daemon) => daemon.resume(),
            Self::Placebo(placebo) => placebo.signal(libc::SIGCONT),
        }
    }
}

/// A running generator, which sends frames by a single call into the kernel.
pub struct Traffic {
    meter: Meter,
    thread: JoinHandle<Result<u64>>,
    subject: u32,
}

/// The packets and the processor times between two instants.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The beginning in nanoseconds since the Unix epoch; `to` is the end.
    pub from: u64,
    pub to: u64,
    pub packets: f64,
    pub seconds: f64,
    /// The processor seconds of the sender, which is also the receiver.
    pub sender: f64,
    /// The processor seconds of the daemon, or of the placebo.
    pub subject: f64,
}

#[derive(Clone, Copy)]
struct Edge {
    wall: u64,
    at: Instant,
    sent: u64,
    sender: Duration,
    subject: f64,
}

/// Keeps this thread, and those it starts, off the CPU that sends and receives.
pub fn step_aside() -> Result<()> {
    pin_to_cpu(LOADED + 1).context("one CPU sends and receives, another one is to measure")
}

impl Scene {
    /// Starts the daemon. The clock closes windows if there is an interval; otherwise none are
    /// closed.
    pub fn new(interval: Option<Duration>) -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut config = probes::configuration("packet-counter", "mon0")?;
        let object = config.as_object_mut().context("an object")?;
        object.retain(|field, _| ["interface", "ingress"].contains(&field.as_str()));
        // The program drops the frames: otherwise the network stack would take most of the time.
        let source =
            probes::source("packet-counter")?.replace("return XDP_PASS", "return XDP_DROP");
        config["ingress"]["source"] = source.into();
        config["ingress"]["verdict"] = "enforce".into();
        config["window"] = json!({ "retain": 100_000 });
        if let Some(interval) = interval {
            config["window"]["interval"] = format!("{}ms", interval.as_millis()).into();
            config["window"]["align"] = true.into();
        }
        daemon
            .put(&format!("/v1/probes/{PROBE}"), &config)
            .expect(201);
        let windows = Windows::of(&daemon, PROBE);
        Ok(Self {
            daemon,
            windows,
            topology,
        })
    }

    /// Sends frames for about this long.
    pub fn send(&self, duration: Duration, subject: &Subject<'_>) -> Result<Traffic> {
        let options = GeneratorOptions {
            cpu: Some(LOADED),
            ..GeneratorOptions::default()
        };
        let mut generator = Generator::new(self.topology.generator(), "gen0", options)?;
        // The trial measures the rate and warms everything up. Each call needs about 24 ms to
        // begin.
        generator.send(1 << 20)?;
        let (started, trial) = (Instant::now(), 8 << 20);
        generator.send(trial)?;
        let rate = trial as f64 / (started.elapsed().as_secs_f64() - 0.024);
        let meter = generator.meter()?;
        let before = meter.sent()?;
        let count = (rate * duration.as_secs_f64()) as u64;
        let thread = thread::spawn(move || {
            generator.send(count)?;
            generator.sent()
        });
        while meter.sent()? == before {
            ensure!(!thread.is_finished(), "the generator ended");
            thread::yield_now();
        }
        Ok(Traffic {
            meter,
            thread,
            subject: subject.pid(),
        })
    }

    /// Returns the ends of all windows so far, in nanoseconds since the Unix epoch.
    pub fn ends(&self) -> Result<Vec<u64>> {
        let nanoseconds = |text: &str| {
            let end: jiff::Timestamp = text.parse()?;
            Ok(u64::try_from(end.as_nanosecond())?)
        };
        self.windows
            .try_list("")?
            .windows
            .iter()
            .map(|window| nanoseconds(&window.end))
            .collect()
    }

    /// Closes the open window and returns the packets in all windows.
    pub fn counted(&self) -> Result<u64> {
        self.windows.close();
        let mut sum = 0;
        for seq in self.windows.try_list("")?.seqs() {
            let document = self.windows.get(seq);
            let entries = document["ingress"]["ingress_protocols"]["entries"].as_array();
            for entry in entries.context("entries")? {
                sum += entry["value"]["packets"].as_u64().context("a count")?;
            }
        }
        Ok(sum)
    }
}

impl Traffic {
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Measures a slice from now to `until`. Returns `None` if the frames ended.
    pub fn slice(&self, until: u64) -> Result<Option<Slice>> {
        let from = self.edge()?;
        sleep_until(until);
        let to = self.edge()?;
        Ok((!self.is_over()).then(|| Slice {
            from: from.wall,
            to: to.wall,
            packets: (to.sent - from.sent) as f64,
            seconds: (to.at - from.at).as_secs_f64(),
            sender: to.sender.saturating_sub(from.sender).as_secs_f64(),
            subject: to.subject - from.subject,
        }))
    }

    /// Waits for the end. Returns the number of frames sent.
    pub fn join(self) -> Result<u64> {
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn edge(&self) -> Result<Edge> {
        let subject = processor_seconds(self.subject)?;
        let wall = now();
        // The sending thread ends with the last frame.
        let sender = self.meter.processor_time().unwrap_or_default();
        // The count and the time are read next to each other because the rate is the most sensitive
        // value.
        let (sent, at) = (self.meter.sent()?, Instant::now());
        Ok(Edge {
            wall,
            at,
            sent,
            sender,
            subject,
        })
    }
}

impl Slice {
    pub fn rate(&self) -> f64 {
        self.packets / self.seconds
    }

    /// Returns the processor seconds of a packet.
    pub fn per_packet(&self) -> f64 {
        self.sender / self.packets
    }
}
