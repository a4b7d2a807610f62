//! The shipped unit under a real systemd, which judges some settings beyond any list of them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use twinprobe_tests::binary;
use twinprobe_tests::sample::xdp_counter;

#[test]
fn the_shipped_unit_works_under_systemd() -> Result<()> {
    let systemd = ["/lib/systemd/systemd", "/usr/lib/systemd/systemd"].map(Path::new);
    if !systemd.iter().any(|path| path.exists()) {
        println!("no systemd: nothing was tested");
        return Ok(());
    }
    let directory = tempfile::Builder::new()
        .prefix("twinprobe-unit-")
        .tempdir_in("/tmp")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = xdp_counter("0")
        .replace("\"xdp\"", "\"tc\"")
        .replace("xdp_md", "__sk_buff");
    let metrics = serde_json::json!([{ "name": "packets", "map": "packets", "snapshot": true, "init": true }]);
    let ingress = serde_json::json!({ "hook": "tc", "source": source, "metrics": metrics });
    let probe = serde_json::json!({ "name": "p", "interface": "lo", "ingress": ingress });
    fs::write(directory.path().join("probe.json"), probe.to_string())?;
    let status = Command::new("timeout")
        .args([
            "--signal=KILL",
            "60",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--uts",
            "--ipc",
        ])
        .args(["--cgroup", "--net", "--mount-proc", "sh"])
        .arg(root.join("tests/security/systemd.sh"))
        .arg(directory.path())
        .arg(binary()?)
        .arg(root.join("../deploy/twinprobe.service"))
        .stdin(Stdio::null())
        .status()?;
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let (output, log) = (read("output"), read("daemon"));
    let shown = format!("{status}\n--- output ---\n{output}\n--- daemon ---\n{log}");
    assert!(output.ends_with("it works\n"), "{shown}");
    for expected in [
        // BPF, PERFMON, NET_ADMIN, SETUID, SETGID, KILL.
        "CapEff:\t000000c0000010e0",
        "CapBnd:\t000000c0000010e0",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "Umask:\t0077",
        "MemoryMax=4294967296",
        "TasksMax=1024",
        "LimitMEMLOCK=infinity",
        "OOMPolicy=continue",
        "window 2: ",
    ] {
        assert!(output.contains(expected), "{expected}: {shown}");
    }
    let confined = output
        .lines()
        .find(|line| line.starts_with("compiler confined"));
    assert!(
        confined.is_some_and(|line| line.ends_with("yes")),
        "{shown}"
    );
    assert!(log.contains("probe was adopted"), "{shown}");
    assert!(!log.contains("can't be expedited"), "{shown}");
    Ok(())
}
