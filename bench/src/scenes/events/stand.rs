//! The place of tools and consumers: a daemon, an interface, and packets at a rate or in bursts.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use twinprobe_tests::measure::processor_seconds;
use twinprobe_tests::traffic::{Frame, FrameOptions, Generator, GeneratorOptions};
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Daemon, Topology};

use crate::frame::site::LOADED;

/// The length of the frames, by which consumers that trace all packets of the machine recognize
/// ours.
pub const LENGTH: usize = 93;
/// The time that a call of the generator takes to begin.
const BEGINNING: f64 = 0.024;
/// The number of times that packets are sent again, if others had this thread's processor while
/// they were sent.
const ATTEMPTS: u32 = 5;
/// The longest time until a consumer has read everything.
const REST: Duration = Duration::from_secs(30);

/// The way in which packets are sent.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// A rate as high as possible; the tool reports its packets per second.
    Steady { rate: u64, duration: Duration },
    /// Bursts of this many packets as fast as possible, each packet an event, with pauses between
    /// them.
    Bursts { packets: u64, times: u64 },
}

/// The packets that were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub packets: u64,
    /// The measured nanoseconds of a packet's way, sender and program.
    pub per_packet: Option<f64>,
}

#[derive(Debug)]
pub struct Stand {
    pub daemon: Daemon,
    pub topology: Topology,
    /// The consumer by libbpf.
    pub consumer: PathBuf,
    _directory: TempDir,
    /// The packets per second of the last load, a guess at first.
    rate: Cell<f64>,
    generator: RefCell<Generator>,
}

impl Load {
    /// Returns the nanoseconds between two events of a tool.
    pub const fn interval(self) -> u64 {
        match self {
            Self::Steady { rate, .. } => 1_000_000_000 / rate,
            Self::Bursts { .. } => 0,
        }
    }
}

impl Stand {
    pub fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let consumer = directory.path().join("consumer");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/consumer.c");
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-o"])
            .arg(&consumer)
            .args([source, "-lbpf", "-lelf", "-lz"]);
        let output = cc.output().context("start cc")?;
        ensure!(
            output.status.success(),
            "cc: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let frame = Frame::build(&FrameOptions {
            length: LENGTH,
            ..FrameOptions::default()
        })?;
        let options = GeneratorOptions {
            frame,
            cpu: Some(LOADED),
            ..GeneratorOptions::default()
        };
        let generator = RefCell::new(Generator::new(topology.generator(), "gen0", options)?);
        Ok(Self {
            daemon,
            topology,
            consumer,
            _directory: directory,
            rate: Cell::new(1e6),
            generator,
        })
    }

    /// Describes the sender, for the document.
    pub fn describe() -> String {
        format!("the generator of the tests (`traffic`), frames of {LENGTH} bytes, on CPU {LOADED}")
    }

    /// Sends, and returns when all packets have arrived.
    pub fn send(&self, load: Load) -> Result<Sent> {
        let mut generator = self.generator.borrow_mut();
        let started = Instant::now();
        match load {
            Load::Bursts { packets, times } => {
                for _ in 0..times {
                    // The pause is the time that a call takes to begin.
                    generator.send(packets)?;
                }
                Ok(Sent {
                    packets: packets * times,
                    per_packet: None,
                })
            }
            Load::Steady { duration, .. } => {
                let trial = (self.rate.get() / 20.0) as u64;
                generator.send(trial)?;
                let rate = trial as f64 / (started.elapsed().as_secs_f64() - BEGINNING).max(0.01);
                self.rate.set(rate);
                let count = (rate * duration.as_secs_f64()).max(1.0) as u64;
                let (mut packets, mut per_packet) = (trial, None);
                for _ in 0..ATTEMPTS {
                    per_packet = measure(&mut generator, count)?;
                    packets += count;
                    if per_packet.is_some() {
                        break;
                    }
                }
                Ok(Sent {
                    packets,
                    per_packet,
                })
            }
        }
    }
}

/// Sends, and returns the processor time of a packet in nanoseconds. `None` if the sending thread
/// had ended before its clock was read.
fn measure(generator: &mut Generator, count: u64) -> Result<Option<f64>> {
    let meter = generator.meter()?;
    let before = meter.sent()?;
    thread::scope(|scope| {
        let thread = scope.spawn(move || generator.send(count));
        while meter.sent()? == before && !thread.is_finished() {
            thread::yield_now();
        }
        // The thread's clock is readable as long as it sends.
        let edge = || Some((meter.processor_time().ok()?, meter.sent().ok()?));
        let (begin, mut end) = (edge(), None);
        while !thread.is_finished() {
            thread::sleep(Duration::from_millis(2));
            end = edge().filter(|_| !thread.is_finished()).or(end);
        }
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(begin.zip(end).and_then(|(begin, end)| {
            let packets = end.1.checked_sub(begin.1).filter(|packets| *packets > 0)?;
            let time = end.0.checked_sub(begin.0)?;
            Some(time.as_nanos() as f64 / packets as f64)
        }))
    })
}

/// Waits until a process does nothing. Returns its processor time in seconds.
pub fn at_rest(pid: u32) -> Result<f64> {
    let mut last = processor_seconds(pid)?;
    wait_for("rest", REST, || {
        thread::sleep(Duration::from_millis(10));
        let now = processor_seconds(pid)?;
        ensure!(
            std::mem::replace(&mut last, now) == now,
            "process {pid} is at work"
        );
        Ok(now)
    })
}
