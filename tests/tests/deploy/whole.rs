//! `serve --probes DIR`: a file is one change, and each content of it is deployed once.

use std::fs;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology};

/// A daemon with a directory of probes.
struct Scene {
    daemon: Daemon,
    directories: Arc<Directories>,
    _topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let directories = Arc::new(Directories::new()?);
        fs::create_dir(directories.temporary().join("probes"))?;
        let options = DaemonOptions::default()
            .argument("--probes")
            .argument(directories.temporary().join("probes"));
        let daemon = Daemon::start_in(topology.monitor(), &options, Arc::clone(&directories))?;
        Ok(Self {
            daemon,
            directories,
            _topology: topology,
        })
    }

    /// Replaces the file `all.yaml` atomically.
    fn write(&self, probes: &Value) -> Result<()> {
        let at = |name: &str| self.directories.temporary().join(name);
        fs::write(at("new"), json!({ "probes": probes }).to_string())?;
        Ok(fs::rename(at("new"), at("probes/all.yaml"))?)
    }

    fn revision(&self, name: &str) -> Option<u64> {
        let answer = self.daemon.get(&format!("/v1/probes/{name}"));
        (answer.status == 200)
            .then(|| answer.json()["revision"].as_u64())
            .flatten()
    }

    fn failed(&self) -> bool {
        self.daemon
            .get("/metrics")
            .text()
            .contains("twinprobe_probe_file_failed{file=\"all.yaml\"} 1")
    }

    /// Waits until the file was looked at `times` more times, each after a change of another file.
    fn look(&self) -> Result<()> {
        let at = |name: &str| self.directories.temporary().join("probes").join(name);
        fs::write(at("mark.json"), "{")?;
        self.until("a look", || {
            self.daemon
                .get("/metrics")
                .text()
                .contains("twinprobe_probe_file_failed{file=\"mark.json\"} 1")
        })?;
        fs::remove_file(at("mark.json"))?;
        self.until("another look", || {
            !self.daemon.get("/metrics").text().contains("mark.json")
        })
    }

    fn until(&self, what: &str, look: impl Fn() -> bool) -> Result<()> {
        wait_for(what, PATIENCE, || {
            ensure!(look(), "not yet: {}", self.daemon.log());
            Ok(())
        })
    }
}

fn probe(help: &str) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["metrics"] =
        json!([{ "name": "packets", "map": "packets", "help": help, "snapshot": true }]);
    config
}

/// A probe whose program does not compile, and one whose interface is not there yet.
fn bad() -> [Value; 2] {
    let mut source = probe("bad");
    source["ingress"]["source"] = json!("int x = ;");
    let mut interface = probe("bad");
    interface["interface"] = json!("none");
    [source, interface]
}

#[test]
fn of_a_file_with_a_bad_probe_none_is_deployed_and_nothing_is_undone() -> Result<()> {
    let scene = Scene::new()?;
    scene.write(&json!({ "a": probe("first"), "b": probe("first") }))?;
    scene.until("both probes", || {
        scene.revision("a") == Some(1) && scene.revision("b") == Some(1)
    })?;
    for bad in bad() {
        scene.write(&json!({ "a": probe("second"), "b": bad, "c": probe("second") }))?;
        scene.until("the report", || scene.failed())?;
        ensure!(
            scene.revision("a") == Some(1) && scene.revision("c").is_none(),
            "{}",
            scene.daemon.log()
        );
        ensure!(
            scene.daemon.log().contains("not deployed"),
            "{}",
            scene.daemon.log()
        );
        let located = [
            "b: ingress.source: line 1: ",
            "b: interface: there is no interface none",
        ];
        ensure!(
            located
                .iter()
                .any(|words| scene.daemon.log().contains(words)),
            "{}",
            scene.daemon.log()
        );
        scene.write(&json!({ "a": probe("first"), "b": probe("first") }))?;
        scene.until("the cure", || !scene.failed())?;
        ensure!(scene.revision("a") == Some(1), "that content was deployed");
    }
    // A probe that somebody pushes while the file fails stays, and a deletion holds as well.
    scene.write(&json!({ "a": probe("second"), "b": bad()[1] }))?;
    scene.until("the report", || scene.failed())?;
    scene
        .daemon
        .put("/v1/probes/a", &probe("pushed"))
        .expect(200);
    scene.daemon.delete("/v1/probes/b").expect(204);
    scene.look()?;
    scene.daemon.namespace().run(
        "ip",
        &[
            "link", "add", "none", "type", "veth", "peer", "name", "none2",
        ],
    )?;
    scene
        .daemon
        .namespace()
        .run("ip", &["link", "set", "none", "up"])?;
    scene.look()?;
    ensure!(
        scene.revision("a") == Some(2) && scene.revision("b").is_none(),
        "{}",
        scene.daemon.log()
    );
    scene.until("the reason", || {
        scene
            .daemon
            .log()
            .contains("somebody else has changed a probe")
    })?;
    // Another content of the file is another change.
    scene.write(&json!({ "a": probe("third"), "b": bad()[1] }))?;
    scene.until("the change", || {
        scene.revision("a") == Some(3) && scene.revision("b") == Some(1)
    })?;
    ensure!(!scene.failed());
    // A file that could not be read for a while has no other content afterwards.
    scene
        .daemon
        .put("/v1/probes/a", &probe("pushed"))
        .expect(200);
    scene.look()?;
    ensure!(scene.revision("a") == Some(4));
    Ok(())
}

/// A failure at attaching undoes earlier attachments.
#[test]
fn what_was_attached_before_a_failure_is_taken_back() -> Result<()> {
    let scene = Scene::new()?;
    for filler in 0..15 {
        scene
            .daemon
            .put(&format!("/v1/probes/z{filler}"), &probe("filler"))
            .expect(201);
    }
    scene
        .daemon
        .put("/v1/probes/a", &probe("before"))
        .expect(201);
    scene.daemon.delete("/v1/probes/z0").expect(204);
    // Sixteen probes fit: the second new one does not.
    scene.write(&json!({ "a": probe("after"), "b": probe("new"), "c": probe("new") }))?;
    scene.until("the report", || scene.failed())?;
    ensure!(
        scene.revision("b").is_none() && scene.revision("c").is_none(),
        "{}",
        scene.daemon.log()
    );
    let status = scene.daemon.json("/v1/probes/a");
    ensure!(
        status["config"]["ingress"]["metrics"][0]["help"] == "before",
        "{status}"
    );
    let revision = scene.revision("a");
    scene.look()?;
    ensure!(scene.revision("a") == revision, "tried once");
    Ok(())
}
