//! Changes that fail or are interrupted: the disk, the kernel and the answer agree.

use std::fs;
use std::thread;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Daemon, DaemonOptions, KernelObjects, Topology};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn path(name: &str) -> String {
    format!("/v1/probes/{name}")
}

fn live(help: &str) -> Value {
    live_of("XDP_PASS", help)
}

fn live_of(verdict: &str, help: &str) -> Value {
    let mut config = counter_config("mon0", verdict);
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets", "help": help }]);
    config
}

/// A PUT that is still compiling when `--detach-on-exit` detaches attaches nothing afterwards.
#[test]
fn nothing_is_attached_after_detach_on_exit() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &live("")).expect(201);
    }
    let directories = daemon.kill()?;
    let [loaded, end] = ["loaded", "end"].map(|name| directories.temporary().join(name));
    let options = DaemonOptions::default()
        .argument("--detach-on-exit")
        .environment(
            "TWINPROBE_WAIT_AT",
            format!("loaded={},detached_all={}", loaded.display(), end.display()),
        );
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    let address = daemon.address();
    let body = live("new").to_string();
    let put = thread::spawn(move || {
        http::request(
            &address,
            "PUT",
            &path("b"),
            &[("content-type", "application/json")],
            body.as_bytes(),
        )
    });
    ensure!(
        daemon.wait_for_log("step=\"loaded\"", PATIENCE),
        "{}",
        daemon.log()
    );
    daemon.signal(libc::SIGTERM);
    ensure!(
        daemon.wait_for_log("step=\"detached_all\"", PATIENCE),
        "{}",
        daemon.log()
    );
    fs::write(&loaded, "")?;
    // The request is over: it is answered, or its connection has ended.
    let answer = put.join().expect("no panic");
    ensure!(
        answer.as_ref().map_or(true, |answer| answer.status == 503),
        "{answer:?}"
    );
    ensure!(!daemon.log().contains("deployed probe"), "{}", daemon.log());
    let link = topology
        .monitor()
        .output("ip", &["-d", "link", "show", "dev", "mon0"])?;
    ensure!(!link.contains("prog/xdp"), "{link}");
    fs::write(&end, "")?;
    let (exit, directories) = daemon.terminate()?;
    ensure!(exit.success(), "{exit}");
    let link = topology
        .monitor()
        .output("ip", &["-d", "link", "show", "dev", "mon0"])?;
    ensure!(!link.contains("prog/xdp"), "{link}");
    baseline.wait_for_only(directories.bpffs(), std::process::id())?;
    // The stored configurations are unchanged.
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    assert_eq!(
        NAMES.map(|name| daemon.json(&path(name))["revision"].clone()),
        [1, 1, 1]
    );
    Ok(())
}

/// A change that can't be committed to the store is taken back in the kernel as well.
#[test]
fn the_disk_and_the_kernel_agree_on_a_change_that_failed() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let new = live_of("XDP_DROP", "new");
    for change in ["PUT", "DELETE", "create"] {
        let mut daemon = Daemon::start(topology.monitor())?;
        for name in NAMES {
            daemon.put(&path(name), &live("")).expect(201);
        }
        let options = DaemonOptions::default().environment("TWINPROBE_FAIL_AT", "syncing");
        daemon = daemon.restart(libc::SIGKILL, &options)?;
        let bpffs = daemon.directories().bpffs().to_owned();
        let (before, objects) = (
            NAMES.map(|name| daemon.json(&path(name))),
            KernelObjects::pinned(&bpffs)?.counts(),
        );
        let sources = daemon.directories().state().join("objects");
        let compiled = || anyhow::Ok(fs::read_dir(&sources)?.count());
        let known = compiled()?;
        match change {
            "PUT" => daemon.put(&path("b"), &new).expect(500),
            "DELETE" => daemon.delete(&path("b")).expect(500),
            _ => daemon.put(&path("d"), &new).expect(500),
        };
        assert_eq!(compiled()?, known, "{change}");
        generator.send(100)?;
        for round in 1..=2 {
            assert_eq!(
                NAMES.map(|name| daemon.json(&path(name))),
                before,
                "{change}, {round}"
            );
            daemon.get(&path("d")).expect(404);
            assert_eq!(
                KernelObjects::pinned(&bpffs)?.counts(),
                objects,
                "{change}, {round}"
            );
            let counted = NAMES.map(|name| {
                total(
                    &daemon.json(&format!("/v1/probes/{name}/metrics")),
                    "ingress",
                    "packets",
                )
            });
            assert_eq!(counted, [100; 3], "{change}, {round}");
            daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        }
        // The change succeeds at the second attempt.
        match change {
            "PUT" => daemon.put(&path("b"), &new).expect(200),
            "DELETE" => daemon.delete(&path("b")).expect(204),
            _ => daemon.put(&path("d"), &new).expect(201),
        };
    }
    Ok(())
}

/// A daemon with `--detach-on-exit` that is stopped before it has taken everything over leaves
/// nothing.
#[test]
fn detach_on_exit_holds_from_the_first_moment() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &live("")).expect(201);
    }
    let mut directories = daemon.kill()?;
    for step in ["opened", "claimed", "loaded"] {
        let go = directories.temporary().join(step);
        let options = DaemonOptions::default()
            .argument("--detach-on-exit")
            .environment("TWINPROBE_WAIT_AT", format!("{step}={}", go.display()));
        let daemon = Daemon::spawn_in(topology.monitor(), &options, directories)?;
        ensure!(
            daemon.wait_for_log("waits for a test", PATIENCE),
            "{}",
            daemon.log()
        );
        daemon.signal(libc::SIGTERM);
        if step == "opened" {
            // The daemon handles the signal after its pause.
            fs::write(&go, "")?;
        }
        ensure!(
            daemon.wait_for_log("draining", PATIENCE),
            "{}",
            daemon.log()
        );
        fs::write(go, "")?;
        let (exit, left) = daemon.terminate()?;
        ensure!(exit.success(), "{exit}");
        directories = left;
        let link = topology
            .monitor()
            .output("ip", &["-d", "link", "show", "dev", "mon0"])?;
        ensure!(!link.contains("prog/xdp"), "{step}: {link}");
        assert_eq!(
            KernelObjects::pinned(directories.bpffs())?.counts(),
            KernelObjects::default().counts(),
            "{step}"
        );
        baseline.wait_for_only(directories.bpffs(), std::process::id())?;
    }
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    assert_eq!(
        NAMES.map(|name| daemon.json(&path(name))["state"].clone()),
        ["running"; 3]
    );
    Ok(())
}
