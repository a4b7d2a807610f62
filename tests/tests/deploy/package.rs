//! The Debian package: installed, upgraded under traffic, removed and purged, under a systemd, in a
//! copy of this system.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::sample::xdp_counter;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Topology, binary};

use crate::tools::{root, run};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(90);
/// The packages are installed only once, so the build makes them fast, not small.
const COMPRESSION: [&str; 2] = ["-Zgzip", "-z1"];

/// Builds the package of the binary under test, and the same as a later version.
fn build(directory: &Path) -> Result<()> {
    let first = directory.join("1.deb");
    let mut command = Command::new("sh");
    command
        .arg(root().join("deploy/debian/build.sh"))
        .arg(&first)
        .arg(binary()?)
        .args(COMPRESSION);
    run(&mut command)?;
    let tree = directory.join("tree");
    run(Command::new("dpkg-deb").arg("-R").arg(&first).arg(&tree))?;
    let control = fs::read_to_string(tree.join("DEBIAN/control"))?;
    let version = control
        .lines()
        .find(|line| line.starts_with("Version: "))
        .context("a version")?;
    fs::write(
        tree.join("DEBIAN/control"),
        control.replace(version, "Version: 999"),
    )?;
    run(Command::new("dpkg-deb")
        .args(COMPRESSION)
        .arg("-b")
        .arg(&tree)
        .arg(directory.join("2.deb")))?;
    fs::remove_dir_all(tree)?;
    Ok(())
}

#[test]
fn the_package_comes_goes_and_is_replaced_without_losing_a_packet() -> Result<()> {
    let exists = |path: &&str| Path::new(path).exists();
    let systemd = ["/lib/systemd/systemd", "/usr/lib/systemd/systemd"]
        .iter()
        .any(exists);
    if !systemd || !["/usr/sbin/adduser", "/usr/bin/dh"].iter().all(exists) {
        println!("NOT TESTED: no systemd, adduser or debhelper");
        return Ok(());
    }
    let directory = tempfile::Builder::new()
        .prefix("twinprobe-package-")
        .tempdir_in("/tmp")?;
    let at = |name: &str| directory.path().join(name);
    build(directory.path())?;
    let topology = Topology::new()?;
    let metrics = json!([{ "name": "packets", "map": "packets", "snapshot": true }]);
    let ingress = json!({ "source": xdp_counter("XDP_PASS"), "metrics": metrics });
    fs::write(
        at("probe.json"),
        json!({ "name": "p", "interface": "mon0", "ingress": ingress }).to_string(),
    )?;
    let mut command = Command::new("timeout");
    command
        .args([
            "--signal=KILL",
            "150",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--uts",
            "--ipc",
        ])
        .args(["--cgroup", "--mount-proc", "sh"])
        .arg(root().join("tests/tests/deploy/package.sh"))
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut child = topology.monitor().enter(|| command.spawn())??;
    let shown = || {
        ["output", "daemon"]
            .map(|name| fs::read_to_string(at(name)).unwrap_or_default())
            .join("\n---\n")
    };
    let mut await_file = |name: &str| {
        wait_for(name, LIMIT, || {
            ensure!(at(name).exists() || child.try_wait()?.is_some(), "not yet");
            Ok(())
        })?;
        ensure!(at(name).exists(), "{}", shown());
        Ok(())
    };
    await_file("counting")?;
    let running =
        Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.spawn(Load {
            rate: Some(20_000),
            ..Load::default()
        });
    fs::write(at("sending"), "")?;
    await_file("upgraded")?;
    let sent = running.stop()?;
    fs::write(at("sent.new"), sent.to_string())?;
    fs::rename(at("sent.new"), at("sent"))?;
    let status = child.wait()?;
    let output = fs::read_to_string(at("output"))?;
    ensure!(
        output.ends_with("it works\n"),
        "{status}: {sent} were sent\n{}",
        shown()
    );
    for expected in [
        "/run/twinprobe drwxr-x--- root:twinprobe",
        "/run/twinprobe/twinprobe.sock srw-rw---- root:twinprobe",
        "/var/lib/twinprobe drwx------",
        " /etc/default/twinprobe ",
        "\n999\n",
    ] {
        ensure!(output.contains(expected), "{expected}: {}", shown());
    }
    let confined = output
        .lines()
        .find(|line| line.starts_with("compiler confined"));
    ensure!(
        confined.is_some_and(|line| line.ends_with("yes")),
        "{}",
        shown()
    );
    ensure!(sent > 10_000, "{sent}");
    Ok(())
}
