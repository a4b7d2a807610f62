//! The store from outside: `twinprobe store export` and `twinprobe doctor --state-dir`, beside a
//! daemon and without one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use twinprobe_tests::store::examined;
use twinprobe_tests::windows::{Windows, config};
use twinprobe_tests::{Daemon, Directories, Store, Topology, binary};

fn twinprobe(arguments: &[&str], state_dir: &Path) -> Result<Output> {
    let mut command = Command::new(binary()?);
    command.args(arguments).arg("--state-dir").arg(state_dir);
    command.output().with_context(|| format!("{arguments:?}"))
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Exports to a new directory. Returns the directory with the output.
fn exported(directories: &Directories, name: &str) -> Result<(std::path::PathBuf, Output)> {
    let to = directories.temporary().join(name);
    let path = to.to_str().context("a path is text")?;
    let output = twinprobe(&["store", "export", "--to", path], &directories.state())?;
    Ok((to, output))
}

#[test]
fn windows_become_files_and_damage_is_told() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    // Windows of `large` are files beside the store.
    for (name, keys, priority) in [("small", "4", 0), ("large", "6000", 1)] {
        let mut config = config(&json!({}), &[("KEYS", keys)]);
        config["ingress"]["verdict"] = json!("observe");
        config["priority"] = json!(priority);
        daemon
            .put(&format!("/v1/probes/{name}"), &config)
            .expect(201);
    }
    let mut known = Vec::new();
    for name in ["small", "large"] {
        let windows = Windows::of(&daemon, name);
        let instance = daemon.json(&format!("/v1/probes/{name}"))["instance"]
            .as_str()
            .map(str::to_owned);
        for seq in 1..=3 {
            windows.close();
            let file = format!(
                "{name}/{}/{seq}.json",
                instance.as_deref().unwrap_or_default()
            );
            known.push((file, windows.bytes(seq, "json")));
        }
    }
    let directories = daemon.directories();
    assert_eq!(examined(&directories)?.0, "ok", "beside a daemon");
    let (to, output) = exported(&directories, "beside")?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (file, content) in &known {
        let found = fs::read(to.join(file)).with_context(|| file.clone())?;
        assert!(found == *content, "{file} is not what the daemon answers");
    }
    let record: Value = serde_json::from_slice(&fs::read(to.join("small/probe.json"))?)?;
    assert_eq!(record["config"]["interface"], "mon0");

    let (_, directories) = daemon.terminate()?;
    let (verdict, found) = examined(&directories)?;
    assert_eq!(verdict, "ok", "without a daemon: {found}");
    let store = Store::open(&directories)?;
    store.flip_body("small", 2, 40, 1)?;
    store.flip_body("large", 3, 4000, 1)?;
    drop(store);
    let (verdict, found) = examined(&directories)?;
    assert!(
        verdict == "failed" && found.contains("window 2 of probe small"),
        "{found}"
    );
    assert!(found.contains("window 3 of probe large"), "{found}");
    let (to, output) = exported(&directories, "damaged")?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (file, content) in &known {
        let damaged = file.starts_with("small") && file.ends_with("/2.json")
            || file.starts_with("large") && file.ends_with("/3.json");
        let aside = to.join(file.replace(".json", ".damaged"));
        assert_eq!(
            fs::read(to.join(file)).is_ok_and(|found| found == *content),
            !damaged,
            "{file}"
        );
        assert_eq!(aside.exists(), damaged, "{}", aside.display());
    }
    Ok(())
}

#[test]
fn what_is_no_store_is_said_and_left_alone() -> Result<()> {
    let directories = Directories::new()?;
    fs::create_dir_all(directories.state())?;
    let (_, output) = exported(&directories, "none")?;
    assert!(
        !output.status.success() && text(&output.stderr).contains("no such file"),
        "{output:?}"
    );
    assert_eq!(
        fs::read_dir(directories.state())?.count(),
        0,
        "nothing is made"
    );
    fs::write(directories.state().join("store.sqlite"), "text")?;
    let (verdict, found) = examined(&directories)?;
    assert!(verdict == "failed" && found.contains("damaged"), "{found}");
    assert_eq!(
        fs::read_to_string(directories.state().join("store.sqlite"))?,
        "text"
    );
    Ok(())
}
