//! The scene of the tests of disks: a daemon that ends and starts in several ways, on a state that
//! outlives it.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::disk::FileSystem;
use twinprobe_tests::reboot::{booted, forget};
use twinprobe_tests::sample::window;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Running};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Disk, Topology};

const SOURCE: &str = include_str!("../../bpf/disks.bpf.c");
/// More than the store wants to have free.
const MEMORY: u64 = 1 << 30;
/// The packets per second of the busy neighbour.
const BUSY_RATE: u64 = 2000;

/// The place of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Memory,
    Disk(FileSystem),
}

/// A place, and whether another probe closes windows all the time.
pub type Surroundings = (Place, bool);

pub const SURROUNDINGS: [Surroundings; 4] = [
    (Place::Memory, false),
    (Place::Memory, true),
    (Place::Disk(FileSystem::Ext4), false),
    (Place::Disk(FileSystem::Ext4), true),
];

/// The ways in which a daemon ends before the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGTERM; the next daemon finds its pins.
    Restart,
    /// SIGKILL; the next daemon finds the pins of the killed daemon.
    Kill,
    /// SIGTERM; the machine boots again.
    Reboot,
    /// The machine loses power and boots again. The number chooses the writes that the disk has
    /// kept.
    PowerLoss(u64),
}

/// The configuration of a probe beside its name.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The bytes of an entry of the map `large`.
    pub size: u64,
    pub variant: u64,
    pub window: Option<Value>,
    pub reset: bool,
    pub expires: Option<&'static str>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            size: 16,
            variant: 0,
            window: Some(json!({ "retain": 1000 })),
            reset: false,
            expires: None,
        }
    }
}

impl Spec {
    /// Returns a configuration for the probe at `interface`.
    pub fn config_at(&self, interface: &str) -> Value {
        let metrics = json!([
            window("packets", "packets"),
            window("large", "large"),
            { "name": "total", "map": "total", "snapshot": true },
            { "name": "live", "map": "live" },
        ]);
        let defines = json!({ "SIZE": self.size.to_string(), "VARIANT": self.variant.to_string() });
        let ingress = json!({ "source": SOURCE, "defines": defines, "metrics": metrics });
        let mut config = json!({ "interface": interface, "ingress": ingress });
        if let Some(window) = &self.window {
            config["window"] = window.clone();
        }
        if self.reset {
            config["on_replace"] = json!("reset");
        }
        if let Some(expires) = self.expires {
            config["expires"] = json!(expires);
        }
        config
    }
}

/// A daemon, or none between two, with traffic.
pub struct Scene {
    /// The traffic. It stops before the other fields are removed.
    _busy: Option<Running>,
    daemon: Option<Daemon>,
    directories: Arc<Directories>,
    pub generator: Generator,
    topology: Topology,
    options: DaemonOptions,
    boot: u32,
}

impl Scene {
    pub fn new((place, is_busy): Surroundings) -> Result<Self> {
        let topology = Topology::new()?;
        let directories = Arc::new(match place {
            Place::Memory => Directories::with_state_in_memory(MEMORY)?,
            Place::Disk(kind) => Directories::with_state_on_disk(kind)?,
        });
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let options = DaemonOptions::default();
        let daemon = Daemon::start_in(topology.monitor(), &options, Arc::clone(&directories))?;
        let mut busy = None;
        if is_busy {
            let spec = Spec {
                window: Some(json!({ "interval": "10ms" })),
                ..Spec::default()
            };
            daemon
                .put("/v1/probes/busy", &spec.config_at("mon1"))
                .expect(201);
            let sender = Generator::new(topology.sink(), "sink0", GeneratorOptions::default())?;
            busy = Some(sender.spawn(Load {
                rate: Some(BUSY_RATE),
                ..Load::default()
            }));
        }
        Ok(Self {
            _busy: busy,
            daemon: Some(daemon),
            directories,
            generator,
            topology,
            options,
            boot: 0,
        })
    }

    /// Returns the running daemon.
    ///
    /// # Panics
    /// Panics if the last one did not start.
    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon runs")
    }

    /// Returns the disk of the state.
    ///
    /// # Panics
    /// Panics if the state is in memory.
    pub fn disk(&self) -> &Disk {
        self.directories.disk()
    }

    pub fn windows(&self, probe: &str) -> Windows {
        Windows::of(self.daemon(), probe)
    }

    pub fn path(probe: &str) -> String {
        format!("/v1/probes/{probe}")
    }

    /// Creates or replaces a probe and returns its status.
    #[track_caller]
    pub fn put(&self, probe: &str, spec: &Spec, status: u16) -> Value {
        self.daemon()
            .put(&Self::path(probe), &spec.config_at("mon0"))
            .expect(status)
            .json()
    }

    #[track_caller]
    pub fn status(&self, probe: &str) -> Value {
        self.daemon().json(&Self::path(probe))
    }

    /// Sends packets, which each probe at mon0 has counted when this returns.
    pub fn send(&mut self, count: u64) -> Result<()> {
        self.generator.send(count)
    }

    /// Waits until a lease has ended.
    pub fn wait_until_gone(&self, probe: &str) -> Result<()> {
        wait_for("the end of the lease", PATIENCE, || {
            let answer = self.daemon().get(&Self::path(probe));
            ensure!(answer.status == 404, "{}", answer.text());
            Ok(())
        })
    }

    /// Ends the daemon and starts the next one.
    pub fn end(&mut self, end: End) -> Result<()> {
        let daemon = self.daemon.take().context("a daemon runs")?;
        match end {
            End::Restart | End::Reboot => {
                let (status, _) = daemon.terminate()?;
                ensure!(status.success(), "the daemon ended with {status}");
            }
            End::Kill => drop(daemon.kill()?),
            End::PowerLoss(_) => {
                self.directories.disk().power_off()?;
                drop(daemon.kill()?);
            }
        }
        if let End::PowerLoss(seed) = end {
            let lost = self.directories.disk().power_on(seed)?;
            println!("power lost, seed {seed}: {lost:?}");
        } else if end == End::Reboot
            && let Some(disk) = self.directories.disk_if_any()
        {
            disk.remount()?;
        }
        if matches!(end, End::Reboot | End::PowerLoss(_)) {
            forget(&self.directories, self.topology.monitor(), None)?;
            self.boot += 1;
        }
        self.start().with_context(|| format!("after {end:?}"))
    }

    fn start(&mut self) -> Result<()> {
        let options = booted(&self.options, &self.directories, self.boot)?;
        let directories = Arc::clone(&self.directories);
        self.daemon = Some(Daemon::start_in(
            self.topology.monitor(),
            &options,
            directories,
        )?);
        Ok(())
    }
}

/// Returns the number of packets in a document of a window.
#[track_caller]
pub fn packets(document: &Value) -> u64 {
    let count = twinprobe_tests::sample::total(document, "ingress", "packets");
    let entries = document["ingress"]["large"]["entries"]
        .as_array()
        .expect("entries");
    let of_entry = |entry: &Value| {
        assert!(
            entry["value"]["mark"]
                .as_u64()
                .is_some_and(|mark| mark >= 1000),
            "an entry is cut off: {entry}"
        );
        entry["value"]["packets"].as_u64().expect("a number")
    };
    assert_eq!(
        entries.iter().map(of_entry).sum::<u64>(),
        count,
        "maps disagree in {}",
        document["window"]
    );
    count
}

/// Returns the cumulative sum in a document of a window.
#[track_caller]
pub fn total(document: &Value) -> u64 {
    twinprobe_tests::sample::total(document, "ingress", "total")
}

#[track_caller]
pub fn seq(document: &Value) -> u64 {
    document["window"]["seq"].as_u64().expect("a number")
}
