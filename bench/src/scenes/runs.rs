//! Runs of programs on one frame (`BPF_PROG_TEST_RUN`): programs of the daemon, and programs that
//! are loaded without it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use aya::Ebpf;
use aya::maps::RingBuf;
use aya::programs::{SchedClassifier, Xdp, XdpMode};
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::programs::Program;
use twinprobe_tests::{Topology, bpf};

/// The CPU that runs the programs, if it exists: interrupts tend to go to the first one.
const CPU: usize = 1;
/// The number of the next interface for a program.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A program that is loaded without the daemon.
#[derive(Debug)]
pub struct Bare {
    ebpf: Ebpf,
    program: Program,
}

impl Bare {
    /// Loads a program of a source for `xdp` or `tc`.
    ///
    /// At XDP the program is attached to an interface of its own, because the kernel calls a
    /// program directly only while it is attached at XDP somewhere.
    pub fn load(
        source: &str,
        hook: &str,
        name: &str,
        defines: &[String],
        topology: &Topology,
    ) -> Result<Self> {
        let mut defines = defines.to_vec();
        if hook == "tc" {
            // The name of the section that aya knows.
            defines.extend(["TC".into(), "SECTION=\"classifier\"".into()]);
        }
        let mut ebpf = bpf::load(source, &defines)?;
        let program = ebpf.program_mut(name).context("no program")?;
        let id = if hook == "xdp" {
            let xdp: &mut Xdp = program.try_into()?;
            xdp.load().context("load a program")?;
            let interface = format!("bare{}", NEXT.fetch_add(1, Ordering::Relaxed));
            topology
                .monitor()
                .run("ip", &["link", "add", &interface, "type", "veth"])?;
            topology
                .monitor()
                .enter(|| xdp.attach(&interface, XdpMode::Skb))?
                .context("attach a program")?;
            xdp.info()?.id()
        } else {
            let tc: &mut SchedClassifier = program.try_into()?;
            tc.load().context("load a program")?;
            tc.info()?.id()
        };
        Ok(Self {
            ebpf,
            program: Program::from_id(id)?,
        })
    }

    /// Runs it. Returns the nanoseconds per run.
    pub fn run(&mut self, hook: &str, frame: &[u8], repeat: u32) -> Result<f64> {
        let time = run(&self.program, hook, frame, repeat)?;
        // Makes room for the next run.
        if let Some(ring) = self.ebpf.map_mut("events") {
            let mut ring = RingBuf::try_from(ring)?;
            while ring.next().is_some() {}
        }
        Ok(time)
    }
}

/// Runs a program on one CPU; it must let the packet pass. Returns the nanoseconds of processor
/// time per run.
pub fn run(program: &Program, hook: &str, frame: &[u8], repeat: u32) -> Result<f64> {
    let pass = if hook == "xdp" { 2 } else { -1 };
    thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            if thread::available_parallelism()?.get() > CPU {
                pin_to_cpu(CPU).context("move to a CPU")?;
            }
            let runs = program.run(frame, repeat)?;
            ensure!(
                runs.verdict == pass,
                "the verdict was {}, not {pass}",
                runs.verdict
            );
            Ok(runs.time.as_nanos() as f64 / f64::from(repeat))
        });
        measuring
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
