//! Files that grant rights: the daemon does not read files that other users could change.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, xdp_counter};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Namespace, Topology};

use crate::guarded::{Scene, Token};

/// The user `nobody`.
const OTHER: u32 = 65534;

fn mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

fn give(path: &Path, to: u32) -> Result<()> {
    Ok(chown(path, Some(to), None)?)
}

/// A way to let another user change a file, and the way back.
type Way = (
    &'static str,
    fn(&Path) -> Result<()>,
    fn(&Path) -> Result<()>,
);

const WAYS: [Way; 4] = [
    (
        "belongs to the user 65534",
        |file| give(file, OTHER),
        |file| give(file, 0),
    ),
    (
        "can be changed by other users",
        |file| mode(file, 0o646),
        |file| mode(file, 0o644),
    ),
    (
        "can be changed by other users",
        |file| mode(file, 0o664),
        |file| mode(file, 0o644),
    ),
    (
        "can be changed by other users",
        |file| mode(file.parent().unwrap_or(file), 0o777),
        |file| mode(file.parent().unwrap_or(file), 0o755),
    ),
];

#[test]
fn a_daemon_does_not_start_with_files_that_others_could_change() -> Result<()> {
    let here = Namespace::current()?;
    let directory = tempfile::tempdir()?;
    let inside = directory.path().join("inside");
    fs::create_dir(&inside)?;
    let file = inside.join("file");
    fs::write(&file, "")?;
    for option in ["--tokens", "--client-roles"] {
        for (words, spoil, mend) in WAYS {
            spoil(&file)?;
            let options = DaemonOptions::default().argument(option).argument(&file);
            let directories = Arc::new(Directories::new()?);
            let daemon = Daemon::spawn_in(&here, &options, Arc::clone(&directories))?;
            ensure!(!daemon.wait_for_start(PATIENCE), "{option} {words}");
            ensure!(
                daemon.wait_for_log(words, PATIENCE),
                "{option} {words}: {}",
                daemon.log()
            );
            mend(&file)?;
        }
    }
    for (words, spoil, mend) in WAYS {
        spoil(&inside)?;
        let options = DaemonOptions::default()
            .argument("--probes")
            .argument(&inside);
        let daemon = Daemon::spawn_in(&here, &options, Arc::new(Directories::new()?))?;
        ensure!(!daemon.wait_for_start(PATIENCE), "--probes {words}");
        ensure!(
            daemon.wait_for_log(words, PATIENCE),
            "--probes {words}: {}",
            daemon.log()
        );
        mend(&inside)?;
    }
    Ok(())
}

/// The earlier content still applies.
#[test]
fn a_file_that_others_could_change_is_not_read_again() -> Result<()> {
    let (old, new) = (Token::new("a", "admin")?, Token::new("b", "admin")?);
    let scene = Scene::new(&[&old], DaemonOptions::default())?;
    let status = |token: &Token| {
        let (name, value) = token.header();
        scene
            .over_tcp("GET", "/v1/probes", &[(name, &value)], b"")
            .status
    };
    for (words, spoil, mend) in WAYS {
        scene.tokens.write(&[&new])?;
        spoil(&scene.tokens.path)?;
        scene.reload()?;
        ensure!((status(&old), status(&new)) == (200, 401), "{words}");
        ensure!(
            scene.daemon.wait_for_log(words, PATIENCE),
            "{words}: {}",
            scene.daemon.log()
        );
        mend(&scene.tokens.path)?;
    }
    scene.reload()?;
    ensure!((status(&old), status(&new)) == (401, 200));
    Ok(())
}

fn enforcing() -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["verdict"] = json!("enforce");
    config["ingress"]["source_file"] = json!("p.bpf.c");
    if let Some(ingress) = config["ingress"].as_object_mut() {
        ingress.remove("source");
    }
    config
}

/// The file of a probe, its source, and the targets of both.
#[test]
fn probes_come_from_files_that_others_can_not_change_and_are_recorded() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::new()?);
    let at = |name: &str| directories.temporary().join(name);
    let (probes, elsewhere, audit) = (at("probes"), at("elsewhere"), at("audit"));
    for directory in [&probes, &elsewhere] {
        fs::create_dir(directory)?;
        mode(directory, 0o755)?;
    }
    let (file, source) = (probes.join("p.yaml"), probes.join("p.bpf.c"));
    fs::write(&source, xdp_counter("XDP_PASS"))?;
    let options = DaemonOptions::default()
        .argument("--probes")
        .argument(&probes)
        .argument("--probes-role")
        .argument("admin")
        .argument("--audit-log")
        .argument(&audit);
    let daemon = Daemon::start_in(topology.monitor(), &options, Arc::clone(&directories))?;
    let failed = || {
        daemon
            .get("/metrics")
            .text()
            .contains("twinprobe_probe_file_failed{file=\"p.yaml\"} 1")
    };
    let until = |what: &str, look: &dyn Fn() -> bool| {
        wait_for(what, PATIENCE, || {
            ensure!(look(), "not yet: {}", daemon.log());
            Ok(())
        })
    };
    let write = |path: &Path, owner: u32| -> Result<()> {
        fs::write(at("new"), enforcing().to_string())?;
        give(&at("new"), owner)?;
        Ok(fs::rename(at("new"), path)?)
    };
    // Another user's file; a link to another user's file; a file with another user's source.
    write(&file, OTHER)?;
    until("the refusal of a file", &failed)?;
    write(&elsewhere.join("p.yaml"), 0)?;
    give(&elsewhere, OTHER)?;
    symlink(elsewhere.join("p.yaml"), at("link"))?;
    fs::rename(at("link"), &file)?;
    until("the refusal of a link", &|| {
        daemon.log().contains("elsewhere belongs to the user 65534")
    })?;
    give(&source, OTHER)?;
    write(&file, 0)?;
    until("the refusal of a source", &|| {
        daemon.log().contains("p.bpf.c belongs to the user 65534")
    })?;
    daemon.get("/v1/probes/p").expect(404);
    give(&source, 0)?;
    until("the probe", &|| daemon.get("/v1/probes/p").status == 200)?;
    until("no failure", &|| !failed())?;

    let lines = fs::read_to_string(&audit)?;
    let lines: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let changes: Vec<&Value> = lines
        .iter()
        .filter(|line| line["who"] == "file:p.yaml")
        .collect();
    ensure!(changes.len() == 1, "{changes:?}");
    let change = changes[0];
    ensure!(
        change["what"] == "PUT /v1/probes/p" && change["outcome"] == 201,
        "{change}"
    );
    ensure!(
        change["from"] == json!({ "file": file }) && change["probe"] == "p",
        "{change}"
    );
    ensure!(
        change["sources"]["ingress"].is_string() && change["role"] == "admin",
        "{change}"
    );
    // The daemon reads no file of a directory that other users can change from now on.
    mode(&probes, 0o777)?;
    fs::write(
        probes.join("q.yaml"),
        counter_config("mon0", "XDP_PASS").to_string(),
    )?;
    until("the refusal of the directory", &|| {
        daemon.log().contains("can be changed by other users")
    })?;
    daemon.get("/v1/probes/q").expect(404);
    daemon.get("/v1/probes/p").expect(200);
    Ok(())
}
