//! A probe among the programs of libxdp's dispatcher, where the kernel lets extensions in;
//! elsewhere its refusal.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, Map, MapData};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Frame, PacketSocket};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Namespace, Topology, bpf};

use crate::scene::send_and_count;

const PROBE: &str = "/v1/probes/p";
const OTHER: &str = "/v1/probes/q";
const PACKETS: u64 = 500;
/// Fewer packets than the 256 that a veth's ring has room for.
const FEW: u64 = 100;

/// A program that `xdp-loader` has loaded at mon0. On drop all programs of libxdp are unloaded
/// there.
struct Neighbour<'a> {
    loader: PathBuf,
    namespace: &'a Namespace,
    object: PathBuf,
    pins: PathBuf,
    _files: TempDir,
}

impl<'a> Neighbour<'a> {
    fn load(loader: PathBuf, namespace: &'a Namespace) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let object = files.path().join("neighbour.o");
        std::fs::write(
            &object,
            bpf::compile(include_str!("../../bpf/neighbour.bpf.c"), &[])?,
        )?;
        let pins = Path::new("/sys/fs/bpf").join(format!("tp-neighbour-{}", std::process::id()));
        let neighbour = Self {
            loader,
            namespace,
            object,
            pins,
            _files: files,
        };
        neighbour.load_again()?;
        Ok(neighbour)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        self.namespace
            .output(self.loader.to_str().context("a path")?, arguments)
    }

    fn load_again(&self) -> Result<()> {
        let (pins, object) = (
            self.pins.to_str().context("a path")?,
            self.object.to_str().context("a path")?,
        );
        self.run(&["load", "-m", "native", "-p", pins, "mon0", object])
            .map(drop)
    }

    fn unload(&self) -> Result<()> {
        let status = self.status()?;
        // " => 50 neighbour 19 TAG XDP_PASS"
        let line = status
            .lines()
            .find(|line| line.contains(" neighbour "))
            .context("no neighbour")?;
        let id = line.split_whitespace().nth(3).context("no id")?;
        self.run(&["unload", "mon0", "-i", id]).map(drop)
    }

    /// The programs of libxdp's dispatcher, as `xdp-loader` shows them.
    fn status(&self) -> Result<String> {
        self.run(&["status", "mon0"])
    }

    fn count(&self) -> Result<u64> {
        let map = MapData::from_pin(self.pins.join("neighbour_count"))?;
        let counts: Array<_, u64> = Map::Array(map).try_into()?;
        Ok(counts.get(&0, 0)?)
    }
}

impl Drop for Neighbour<'_> {
    fn drop(&mut self) {
        let _ = self.run(&["unload", "mon0", "--all"]);
        let _ = std::fs::remove_dir_all(&self.pins);
    }
}

/// Sends packets and reads windows. Each packet is in one window of the probe, and the neighbour
/// sees each packet.
fn both_count(
    daemon: &Daemon,
    topology: &Topology,
    neighbour: Option<&Neighbour<'_>>,
) -> Result<()> {
    let before = neighbour.map(Neighbour::count).transpose()?;
    count_during(daemon, topology, || Ok(()))?;
    let Some((neighbour, before)) = neighbour.zip(before) else {
        return Ok(());
    };
    wait_for("the neighbour's count", PATIENCE, || {
        let counted = neighbour.count()? - before;
        ensure!(counted == PACKETS, "the neighbour has {counted}");
        Ok(())
    })
}

/// Sends packets and reads windows while `change` happens. Each packet is in one window.
fn count_during(
    daemon: &Daemon,
    topology: &Topology,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (mut change, mut changed) = (Some(change), Ok(()));
    let read = || {
        // The sender has packets under way, since none are counted yet.
        if let Some(change) = change.take() {
            changed = change();
        }
        count(daemon)
    };
    send_and_count(topology.generator(), "gen0", PACKETS, read)?;
    ensure!(count(daemon) == 0, "more than were sent");
    changed
}

/// The daemon dies and comes again. Packets that come meanwhile are counted.
fn count_without_daemon(
    daemon: Daemon,
    topology: &Topology,
    options: &DaemonOptions,
) -> Result<Daemon> {
    let directories = daemon.kill()?;
    let socket = topology
        .generator()
        .enter(|| PacketSocket::open("gen0"))??;
    for _ in 0..FEW {
        socket.send(Frame::default().bytes())?;
    }
    let daemon = Daemon::start_in(topology.monitor(), options, directories)?;
    let mut counted = 0;
    wait_for("the packets without a daemon", PATIENCE, || {
        counted += count(&daemon);
        ensure!(counted == FEW, "{counted} of {FEW}");
        Ok(())
    })?;
    Ok(daemon)
}

fn count(daemon: &Daemon) -> u64 {
    total(&daemon.json("/v1/probes/p/metrics"), "ingress", "packets")
}

fn config() -> Value {
    counter_config("mon0", "XDP_PASS")
}

/// The error of a loader that fails is shown, and everything stays as it is.
fn a_failed_loader_is_shown(topology: &Topology, neighbour: &Neighbour<'_>) -> Result<()> {
    let files = tempfile::tempdir()?;
    let script = files.path().join("loader");
    std::fs::write(&script, "#!/bin/sh\necho there is no room >&2\nexit 1\n")?;
    std::fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    let daemon = Daemon::start_with(topology.monitor(), &options(&script))?;
    let refused = daemon.put(PROBE, &config()).expect(409).json();
    let detail = refused["detail"].as_str().context("a detail")?;
    ensure!(
        detail.contains("there is no room") && detail.contains("mon0"),
        "{detail}"
    );
    daemon.get(PROBE).expect(404);
    ensure!(
        !neighbour.status()?.contains("twinprobe"),
        "{}",
        neighbour.status()?
    );
    Ok(())
}

fn options(loader: &Path) -> DaemonOptions {
    DaemonOptions::default()
        .argument("--xdp-loader")
        .argument(loader)
}

fn joined(topology: &Topology, neighbour: &Neighbour<'_>) -> Result<()> {
    a_failed_loader_is_shown(topology, neighbour)?;
    let options = options(&neighbour.loader);
    let mut daemon = Daemon::start_with(topology.monitor(), &options)?;
    let mut generic = config();
    generic["ingress"]["mode"] = json!("generic");
    let refused = daemon.put(PROBE, &generic).expect(409).json().to_string();
    ensure!(
        refused.contains("attached its dispatcher to mon0 in mode native"),
        "{refused}"
    );

    daemon.put(PROBE, &config()).expect(201);
    let shown = neighbour.status()?;
    ensure!(
        shown.contains(" twinprobe ") && shown.contains(" neighbour "),
        "{shown}"
    );
    both_count(&daemon, topology, Some(neighbour)).context("joined")?;
    daemon.put(OTHER, &config()).expect(201);
    daemon.put(PROBE, &config()).expect(200);
    both_count(&daemon, topology, Some(neighbour)).context("two probes, one replaced")?;
    daemon.delete(OTHER).expect(204);
    daemon = daemon.restart(libc::SIGTERM, &options)?;
    both_count(&daemon, topology, Some(neighbour)).context("started again")?;
    daemon = count_without_daemon(daemon, topology, &options)?;
    both_count(&daemon, topology, Some(neighbour)).context("killed")?;
    count_during(&daemon, topology, || neighbour.unload()).context("the neighbour goes")?;
    both_count(&daemon, topology, None).context("alone in libxdp's dispatcher")?;
    count_during(&daemon, topology, || neighbour.load_again()).context("the neighbour comes")?;
    both_count(&daemon, topology, Some(neighbour)).context("the neighbour is back")?;

    daemon.delete(PROBE).expect(204);
    let shown = neighbour.status()?;
    ensure!(
        !shown.contains("twinprobe") && shown.contains(" neighbour "),
        "{shown}"
    );
    let left: Vec<_> = std::fs::read_dir(daemon.directories().bpffs().join("hooks"))?.collect();
    ensure!(left.is_empty(), "{left:?}");

    // Somebody unloads everything: the daemon attaches its own dispatcher.
    daemon.put(PROBE, &config()).expect(201);
    neighbour.run(&["unload", "mon0", "--all"])?;
    wait_for("a new attachment", PATIENCE, || {
        let shown = neighbour.status()?;
        ensure!(shown.contains("tp_dispatcher"), "{shown}");
        Ok(())
    })?;
    both_count(&daemon, topology, None).context("at a hook of its own")?;
    ensure!(
        neighbour.load_again().is_err(),
        "xdp-loader has replaced the daemon's program"
    );
    both_count(&daemon, topology, None).context("after xdp-loader was refused")
}

#[test]
fn probes_join_the_dispatcher_of_libxdp() -> Result<()> {
    let topology = Topology::new()?;
    // tests/kernels/run.sh names the loader of the guests and the guests' version; their kernels
    // allow extensions.
    let given = std::env::var_os("TWINPROBE_XDP_LOADER").map(PathBuf::from);
    let must_join = given.is_some();
    let is_old = std::env::var("TWINPROBE_LINUX").is_ok_and(|version| version == "5.10");
    let loader = given.unwrap_or_else(|| PathBuf::from("/usr/sbin/xdp-loader"));
    if !loader.is_file() {
        // The guests need the compiled object.
        bpf::compile(include_str!("../../bpf/neighbour.bpf.c"), &[])?;
        eprintln!("xdp-tools is not here, so nothing is joined");
        return Ok(());
    }
    let neighbour = Neighbour::load(loader, topology.monitor())?;
    let has_dispatcher = neighbour.status()?.contains("xdp_dispatcher");
    if (must_join || has_dispatcher) && !is_old {
        return joined(&topology, &neighbour);
    }
    let daemon = Daemon::start_with(topology.monitor(), &options(&neighbour.loader))?;
    let why = match is_old {
        true => "joining libxdp's dispatcher at mon0 failed",
        false => "this kernel refuses extensions (EPERM)",
    };
    let refused = daemon.put(PROBE, &config()).expect(409).json();
    let detail = refused["detail"].as_str().context("a detail")?;
    ensure!(detail.contains(why), "{detail}");
    ensure!(
        neighbour.status()?.contains(" neighbour "),
        "{}",
        neighbour.status()?
    );
    Ok(())
}
