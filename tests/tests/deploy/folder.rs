//! `serve --probes DIR`: probes from files, as Kubernetes mounts a ConfigMap.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology};

/// A mounted ConfigMap: files are links into a directory that one rename exchanges.
struct Volume {
    path: PathBuf,
    version: u32,
}

impl Volume {
    fn new(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path)?;
        let mut volume = Self { path, version: 0 };
        volume.set(&[])?;
        Ok(volume)
    }

    /// Replaces all files, in the way of kubelet.
    fn set(&mut self, files: &[(&str, String)]) -> Result<()> {
        self.version += 1;
        let (old, new) = (
            format!("..{}", self.version - 1),
            format!("..{}", self.version),
        );
        let at = |name: &str| self.path.join(name);
        fs::create_dir(at(&new))?;
        for (name, text) in files {
            fs::write(at(&new).join(name), text)?;
        }
        symlink(&new, at("..data_tmp"))?;
        fs::rename(at("..data_tmp"), at("..data"))?;
        for (name, _) in files.iter().filter(|(name, _)| !at(name).is_symlink()) {
            symlink(Path::new("..data").join(name), at(name))?;
        }
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with("..") && !files.iter().any(|(file, _)| *file == name) {
                fs::remove_file(entry.path())?;
            }
        }
        if at(&old).exists() {
            fs::remove_dir_all(at(&old))?;
        }
        Ok(())
    }
}

fn options(volume: &Volume, removed: &str) -> DaemonOptions {
    DaemonOptions::default()
        .argument("--probes")
        .argument(&volume.path)
        .argument("--probes-removed")
        .argument(removed)
}

fn probe(help: &str) -> String {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["metrics"] =
        json!([{ "name": "packets", "map": "packets", "help": help, "snapshot": true }]);
    config.to_string()
}

fn status(daemon: &Daemon, name: &str) -> Option<Value> {
    let answer = daemon.get(&format!("/v1/probes/{name}"));
    (answer.status == 200).then(|| answer.json())
}

fn revision(daemon: &Daemon, name: &str) -> Option<u64> {
    status(daemon, name)?["revision"].as_u64()
}

fn until(what: &str, look: impl Fn() -> bool) -> Result<()> {
    wait_for(what, PATIENCE, || {
        ensure!(look(), "not yet");
        Ok(())
    })
}

fn failed(daemon: &Daemon, file: &str) -> bool {
    daemon
        .get("/metrics")
        .text()
        .contains(&format!("twinprobe_probe_file_failed{{file=\"{file}\"}} 1"))
}

#[test]
fn probes_follow_their_files() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::new()?);
    let mut volume = Volume::new(directories.temporary().join("probes"))?;
    volume.set(&[("a.yaml", probe("first")), ("b.json", probe("first"))])?;
    let daemon = Daemon::start_in(topology.monitor(), &options(&volume, "remove"), directories)?;
    until("probes at the start", || {
        ["a", "b"]
            .iter()
            .all(|name| revision(&daemon, name) == Some(1))
    })?;
    ensure!(status(&daemon, "a").is_some_and(|status| status["pushed_by"] == "file:a.yaml"));
    daemon
        .put("/v1/probes/own", &serde_json::from_str(&probe("own"))?)
        .expect(201);
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    generator.send(1000)?;

    // A change of one file is a change of one probe, which loses nothing.
    volume.set(&[("a.yaml", probe("second")), ("b.json", probe("first"))])?;
    until("the change", || revision(&daemon, "a") == Some(2))?;
    ensure!(revision(&daemon, "b") == Some(1));
    generator.send(1000)?;
    for name in ["a", "b"] {
        let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
        ensure!(
            total(&document, "ingress", "packets") == 2000,
            "{name}: {document}"
        );
    }

    // A file with a mistake changes nothing, and nothing is removed while its probes are unknown.
    for broken in [
        "interface: [",
        "interface: mon0\nbogus: 1\n",
        "interface: mon0\ningress: { source: int x }\n",
    ] {
        volume.set(&[("a.yaml", broken.to_owned())])?;
        until("the report", || failed(&daemon, "a.yaml"))?;
        ensure!(revision(&daemon, "a") == Some(2), "{broken}");
        volume.set(&[("a.yaml", probe("second")), ("b.json", probe("first"))])?;
        until("the cure", || !failed(&daemon, "a.yaml"))?;
    }
    ensure!(
        daemon.log().contains("the file of probes is not deployed"),
        "{}",
        daemon.log()
    );
    ensure!(revision(&daemon, "a") == Some(2) && revision(&daemon, "own") == Some(1));

    // The removal of a file removes its probe, and no other probe.
    volume.set(&[("b.json", probe("third"))])?;
    until("the removal", || revision(&daemon, "a").is_none())?;
    until("the change beside it", || revision(&daemon, "b") >= Some(2))?;
    ensure!(revision(&daemon, "own") == Some(1));

    // The daemon makes changes from the time without a daemon at its start.
    let directories = daemon.kill()?;
    volume.set(&[("c.yaml", probe("first"))])?;
    let daemon = Daemon::start_in(topology.monitor(), &options(&volume, "remove"), directories)?;
    until("the start", || {
        revision(&daemon, "c") == Some(1) && revision(&daemon, "b").is_none()
    })?;

    let directories = daemon.kill()?;
    volume.set(&[])?;
    let daemon = Daemon::start_in(topology.monitor(), &options(&volume, "keep"), directories)?;
    volume.set(&[("d.yaml", probe("first"))])?;
    until("another probe", || revision(&daemon, "d") == Some(1))?;
    ensure!(revision(&daemon, "c") == Some(1), "it is to be kept");
    Ok(())
}

/// The probe of a file may decide about packets only if the operator of the daemon allows it.
#[test]
fn files_have_the_role_that_the_daemon_gives_them() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::new()?);
    let mut volume = Volume::new(directories.temporary().join("probes"))?;
    let mut enforcing: Value = serde_json::from_str(&probe("drops"))?;
    enforcing["ingress"]["verdict"] = json!("enforce");
    volume.set(&[
        ("a.yaml", enforcing.to_string()),
        ("b.yaml", probe("observes")),
    ])?;
    let daemon = Daemon::start_in(
        topology.monitor(),
        &options(&volume, "keep"),
        Arc::clone(&directories),
    )?;
    until("the probe that observes", || {
        revision(&daemon, "b") == Some(1)
    })?;
    until("the refusal", || failed(&daemon, "a.yaml"))?;
    ensure!(
        revision(&daemon, "a").is_none(),
        "an operator's file enforces"
    );
    ensure!(
        daemon.log().contains("admin"),
        "the log says which role is needed: {}",
        daemon.log()
    );
    let directories = daemon.kill()?;
    let admin = options(&volume, "keep")
        .argument("--probes-role")
        .argument("admin");
    let daemon = Daemon::start_in(topology.monitor(), &admin, directories)?;
    until("the probe that enforces", || {
        revision(&daemon, "a") == Some(1)
    })
}

/// Tokens are exchanged as Kubernetes exchanges a Secret, without a signal.
#[test]
fn tokens_are_read_again_when_their_file_changes() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::new()?);
    let mut volume = Volume::new(directories.temporary().join("access"))?;
    let line = |digest: &str| format!("bot admin {digest}\n");
    // The SHA-256 of `one` and of `two`.
    let one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    let two = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";
    volume.set(&[("tokens", line(one))])?;
    let options = DaemonOptions::default()
        .argument("--tokens")
        .argument(volume.path.join("tokens"))
        .argument("--reload-on-change");
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    let status = |token: &str| {
        let bearer = format!("Bearer {token}");
        daemon
            .request("GET", "/v1/probes", &[("Authorization", &bearer)], b"")
            .status
    };
    ensure!((status("one"), status("two")) == (200, 401));
    volume.set(&[("tokens", line(two))])?;
    until("the new token", || status("two") == 200)?;
    ensure!(status("one") == 401);
    volume.set(&[("tokens", "bot\n".to_owned())])?;
    ensure!(
        daemon.wait_for_log("the file has mistakes", PATIENCE) && status("two") == 200,
        "{}",
        daemon.log()
    );
    Ok(())
}
