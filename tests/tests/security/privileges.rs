//! The privileges of the daemon, and the directories that only the daemon may use.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::event_scene::{self, EVENTS, LINES};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::unit::as_under_the_unit;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology};

const LIMIT: Duration = PATIENCE;
const NOBODY: u32 = 65534;
/// BPF, PERFMON, NET_ADMIN, SETUID, SETGID, KILL; SYS_ADMIN and SYS_PTRACE for `netns`.
const KEPT: u64 = 1 << 39 | 1 << 38 | 1 << 12 | 1 << 7 | 1 << 6 | 1 << 5 | 1 << 21 | 1 << 19;

/// BPF, PERFMON, NET_ADMIN, SYS_ADMIN.
const PASSED_ON: u64 = 1 << 39 | 1 << 38 | 1 << 12 | 1 << 21;

/// Returns every file, directory and pin below `directory`, with its mode.
fn modes(directory: &Path) -> Result<Vec<(PathBuf, u32)>> {
    let mut found = vec![(directory.to_owned(), fs::metadata(directory)?.mode())];
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let metadata = match fs::symlink_metadata(&path) {
            // The daemon has files for the time of a change.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            found.extend(modes(&path)?);
        } else if !metadata.is_symlink() {
            found.push((path, metadata.mode()));
        }
    }
    Ok(found)
}

/// Checks the capabilities of each thread. `passed_on` are those that a program started by the
/// daemon gets.
fn keeps(daemon: &Daemon, passed_on: u64) -> Result<()> {
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    daemon.json("/v1/probes/p/metrics");
    for thread in fs::read_dir(format!("/proc/{}/task", daemon.pid()))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let is = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let set = |name: &str| is(name).and_then(|set| u64::from_str_radix(set, 16).ok());
        assert_eq!(
            (set("CapEff:"), set("CapPrm:")),
            (Some(KEPT), Some(KEPT)),
            "{status}"
        );
        let others = [set("CapInh:"), set("CapAmb:"), set("CapBnd:")];
        assert_eq!(others, [Some(passed_on), Some(0), Some(0)], "{status}");
        assert_eq!(
            (is("NoNewPrivs:"), is("Umask:")),
            (Some("1"), Some("0077")),
            "{status}"
        );
    }
    Ok(())
}

#[test]
fn the_daemon_of_root_keeps_what_it_needs() -> Result<()> {
    let topology = Topology::new()?;
    keeps(&Daemon::start(topology.monitor())?, 0)?;
    // Only a daemon that starts `xdp-loader` passes capabilities on.
    let loader = DaemonOptions::default()
        .argument("--xdp-loader")
        .argument("/bin/true");
    keeps(&Daemon::start_with(topology.monitor(), &loader)?, PASSED_ON)
}

#[test]
fn files_and_pins_are_the_daemons_alone() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::new()?);
    // Directories that somebody has made beforehand, with the usual mode.
    for directory in [
        directories.state().join("objects"),
        directories.bpffs().to_owned(),
    ] {
        fs::create_dir_all(directory)?;
    }
    let daemon = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        Arc::clone(&directories),
    )?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    daemon.json("/v1/probes/p/metrics");
    for directory in [directories.state(), directories.bpffs().to_owned()] {
        let found = modes(&directory)?;
        assert!(found.len() > 5, "{found:?}");
        for (path, mode) in found {
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        }
    }
    assert_eq!(fs::metadata(directories.socket())?.mode() & 0o777, 0o660);
    Ok(())
}

#[test]
fn directories_that_another_user_has_made_are_refused() -> Result<()> {
    let topology = Topology::new()?;
    let directories = |name: &str| -> Result<(Arc<Directories>, PathBuf)> {
        let directories = Arc::new(Directories::new()?);
        let path = match name {
            "state" => directories.state(),
            "objects" => directories.state().join("objects"),
            "bodies" => directories.state().join("bodies"),
            "pins" => directories.bpffs().to_owned(),
            "hooks" => directories.bpffs().join("hooks"),
            _ => directories.temporary().join("run"),
        };
        fs::create_dir_all(&path)?;
        chown(&path, Some(NOBODY), Some(NOBODY))?;
        Ok((directories, path))
    };
    for name in ["state", "objects", "bodies", "pins", "hooks", "socket"] {
        let (directories, path) = directories(name)?;
        let socket = format!("unix:{}/run/sock", directories.temporary().display());
        let options = DaemonOptions::default()
            .argument("--listen")
            .argument(socket);
        let daemon = Daemon::spawn_in(topology.monitor(), &options, directories)?;
        let message = format!("{} belongs to the user {NOBODY}", path.display());
        assert!(
            daemon.wait_for_log(&message, LIMIT),
            "{name}: {}",
            daemon.log()
        );
        assert!(!daemon.wait_for_start(LIMIT), "{name}: it listens");
        assert_eq!(fs::metadata(&path)?.uid(), NOBODY);
    }
    Ok(())
}

/// A process of the user `nobody` with a shared lock on a file or directory.
struct Holder(Child);

impl Holder {
    fn new(path: &Path) -> Result<Self> {
        let mut command = Command::new("flock");
        command
            .arg("--shared")
            .arg(path)
            .args(["sh", "-c", "echo has it; exec sleep 120"]);
        let mut holder = Self(
            command
                .uid(NOBODY)
                .gid(NOBODY)
                .stdout(Stdio::piped())
                .spawn()?,
        );
        let output = holder.0.stdout.as_mut().context("a pipe")?;
        output
            .read_exact(&mut [0; 7])
            .with_context(|| format!("nobody can't lock {}", path.display()))?;
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Earlier versions left locks that everybody could take.
#[test]
fn locks_of_others_keep_no_daemon_from_starting() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let (_, directories) = daemon.terminate()?;
    assert!(
        Holder::new(&directories.state().join("lock")).is_err(),
        "nobody can lock the state"
    );
    assert!(
        Holder::new(directories.bpffs()).is_err(),
        "nobody can lock the pins"
    );
    // The files as an earlier version left them.
    let lock = directories.state().join("lock");
    for path in [
        directories.temporary(),
        &directories.state(),
        directories.bpffs(),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644))?;
    // A daemon that finds no bpffs mounts one that others can't enter.
    let bpf = Path::new("/sys/fs/bpf");
    let mode = fs::metadata(bpf)?.mode() & 0o7777;
    fs::set_permissions(bpf, fs::Permissions::from_mode(mode | 0o001))?;
    let holders = [Holder::new(&lock)?, Holder::new(directories.bpffs())?];
    fs::set_permissions(bpf, fs::Permissions::from_mode(mode))?;
    let daemon = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        Arc::clone(&directories),
    )?;
    daemon.json("/v1/probes/p/metrics");
    // Another daemon can't start, with or without the holders.
    for holders in [Some(holders), None] {
        drop(holders);
        let second = Daemon::spawn_in(
            topology.monitor(),
            &DaemonOptions::default(),
            Arc::clone(&directories),
        )?;
        assert!(
            second.wait_for_log("in use by another twinprobe", LIMIT),
            "{}",
            second.log()
        );
        drop(second);
        let pins = Arc::new(Directories::with_pins_of(&directories)?);
        let second = Daemon::spawn_in(topology.monitor(), &DaemonOptions::default(), pins)?;
        assert!(
            second.wait_for_log("in use by another twinprobe, whose state directory", LIMIT),
            "{}",
            second.log()
        );
    }
    Ok(())
}

/// Each capability of the shipped unit is necessary for some function.
#[test]
fn each_capability_of_the_unit_is_needed() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let works = |without: &[&str]| -> Result<()> {
        let options = as_under_the_unit(temporary.path(), without)?;
        let daemon = Daemon::spawn_in(topology.monitor(), &options, Arc::new(Directories::new()?))?;
        ensure!(daemon.wait_for_start(LIMIT), "it does not start");
        let put = daemon.put("/v1/probes/p", &event_scene::config("PERF"));
        ensure!(put.status == 201, "{}", put.text());
        let mut stream = Stream::open(&daemon, EVENTS, LINES)?;
        let mut generator =
            Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        generator.send(1)?;
        stream.json()?;
        daemon.delete("/v1/probes/p").expect(204);
        Ok(())
    };
    works(&[])?;
    // `compiler.rs` shows the effect of a missing CAP_KILL.
    for capability in [
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_NET_ADMIN",
        "CAP_SETUID",
        "CAP_SETGID",
    ] {
        let outcome = works(&[capability]);
        println!("{capability}: {outcome:?}");
        assert!(outcome.is_err(), "{capability} is not needed");
    }
    Ok(())
}
