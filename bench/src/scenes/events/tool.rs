//! The tools of "No Two Snowflakes Are Alike" (eBPF '25) at a network hook: the work of the program
//! in the kernel.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use aya::Ebpf;
use aya::maps::{HashMap, PerCpuArray};
use aya::programs::{SchedClassifier, TcAttachType, Xdp, XdpMode, tc};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::{Namespace, bpf};

use super::ledger::SIZE;
use crate::scenes::sources::EVENTS as SOURCE;

/// The interface that the tools are attached to.
pub const INTERFACE: &str = "mon0";

/// The work of a tool for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Counts the packet by its sender.
    Syscount,
    /// Reports the packet with an event of 156 bytes.
    RwTracer,
    /// Reports the packet with an event of 1,024 bytes.
    Kilobyte,
    /// Reports the packet with an event of 4,252 bytes.
    RwTracerAll,
}

impl Shape {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syscount => "syscount",
            Self::RwTracer => "rw-tracer",
            Self::Kilobyte => "1 KiB",
            Self::RwTracerAll => "rw-tracer-all",
        }
    }

    pub const fn payload(self) -> usize {
        match self {
            Self::Syscount | Self::RwTracer => 0,
            Self::Kilobyte => 1024 - SIZE,
            Self::RwTracerAll => 4096,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// `xdp` or `tc`.
    pub hook: &'static str,
    pub shape: Shape,
    /// The size of the ring in bytes.
    pub ring: u32,
    /// The nanoseconds between two events; 0 if each packet is one.
    pub interval: u64,
}

impl Tool {
    fn defines(self) -> Vec<(&'static str, String)> {
        let mut defines = vec![
            ("PAYLOAD", self.shape.payload().to_string()),
            ("INTERVAL", self.interval.to_string()),
            ("RING", self.ring.to_string()),
        ];
        if self.shape == Shape::Syscount {
            defines.push(("SYSCOUNT", "1".into()));
        }
        if self.hook == "tc" {
            defines.push(("TC", "1".into()));
        }
        defines
    }

    /// Returns the configuration of an equivalent probe.
    pub fn config(self) -> Value {
        let defines: serde_json::Map<_, _> = self
            .defines()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let metrics = match self.shape {
            Shape::Syscount => json!([{ "name": "counts", "map": "counts" }]),
            _ => json!([
                { "name": "events", "map": "events", "type": "struct event" },
                { "name": "producers", "map": "producers" }
            ]),
        };
        json!({
            "interface": INTERFACE,
            "ingress": {
                "hook": self.hook, "verdict": "enforce", "source": SOURCE, "defines": defines, "metrics": metrics
            }
        })
    }

    /// Loads the program without the daemon and attaches it. Its maps are pinned for the consumers.
    pub fn attach(self, namespace: &Namespace) -> Result<Attached> {
        let mut defines: Vec<_> = self
            .defines()
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        // The name of the section that aya knows.
        defines.push("SECTION=\"classifier\"".into());
        if self.hook == "xdp" {
            defines.pop();
        }
        let mut ebpf = bpf::load(SOURCE, &defines)?;
        namespace.enter(|| {
            let program = ebpf.program_mut("report").context("no program")?;
            if self.hook == "xdp" {
                let xdp: &mut Xdp = program.try_into()?;
                xdp.load().context("load a tool")?;
                xdp.attach(INTERFACE, XdpMode::Driver)
                    .context("attach a tool")?;
            } else {
                // The clsact qdisc exists already, or is not needed.
                let _ = tc::qdisc_add_clsact(INTERFACE);
                let classifier: &mut SchedClassifier = program.try_into()?;
                classifier.load().context("load a tool")?;
                classifier
                    .attach(INTERFACE, TcAttachType::Ingress)
                    .context("attach a tool")?;
            }
            anyhow::Ok(())
        })??;
        let pins = tempfile::Builder::new()
            .prefix("twinprobe-bench-")
            .tempdir_in("/sys/fs/bpf")?;
        for name in ["events", "counts"] {
            if let Some(map) = ebpf.map(name) {
                map.pin(pins.path().join(name))?;
            }
        }
        Ok(Attached {
            ebpf: Some(ebpf),
            namespace: namespace.clone(),
            pins,
        })
    }
}

/// A tool at work without the daemon. Dropping the value detaches it.
#[derive(Debug)]
pub struct Attached {
    ebpf: Option<Ebpf>,
    namespace: Namespace,
    pins: TempDir,
}

impl Attached {
    fn ebpf(&self) -> &Ebpf {
        self.ebpf.as_ref().expect("present until drop")
    }

    pub fn pin(&self, map: &str) -> PathBuf {
        self.pins.path().join(map)
    }

    /// Returns how many events there were, and how many of them found no room.
    pub fn produced(&self) -> Result<[u64; 2]> {
        let producers = self.ebpf().map("producers").context("no producers")?;
        let producers: PerCpuArray<_, [u64; 3]> = producers.try_into()?;
        let all = producers.get(&0, 0)?;
        Ok([1, 2].map(|field| all.iter().map(|one| one[field]).sum()))
    }

    /// Returns the sum of a tool's counts by sender.
    pub fn counted(&self) -> Result<u64> {
        let counts: HashMap<_, u32, u64> =
            self.ebpf().map("counts").context("no counts")?.try_into()?;
        let mut sum = 0;
        for entry in counts.iter() {
            sum += entry?.1;
        }
        Ok(sum)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let ebpf = self.ebpf.take();
        // A clsact filter is removed by interface index, which is valid only inside the namespace.
        if let Err(error) = self.namespace.enter(|| drop(ebpf)) {
            eprintln!("remove a tool: {error}");
        }
    }
}
