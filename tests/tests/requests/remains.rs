//! The remains of probes and of daemons in the kernel: nothing of a probe that was deleted, all of
//! one whose daemon has ended.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::sample::{counter_config, total, window, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, KernelObjects, Topology, alone, scaled};

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// The names of kernel objects of the daemon and of the sources in this file.
const OURS: &[&str] = &[
    "tp_dispatcher",
    "tp_slots",
    "tp_epochs",
    "tp_clocks",
    "count",
    "packets",
];

#[alone(
    "it looks for what is left in the kernel, where other daemons have objects of the same names"
)]
fn nothing_is_left_after_delete() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let hooks = daemon.directories().bpffs().join("hooks");
    let beside = std::fs::read_dir(&hooks)?.count();
    let mut config = counter_config("mon0", "XDP_PASS");
    let tc = xdp_counter("0")
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    config["egress"] = json!({ "source": tc, "metrics": [window("packets", "packets")] });
    let round = |name: &str| {
        daemon.put(name, &config).expect(201);
        daemon.put(name, &config).expect(200);
        daemon.get(&format!("{name}/metrics")).expect(200);
        daemon
            .put(
                name,
                &json!({ "interface": "mon0", "ingress": { "source": "int x;" } }),
            )
            .expect(422);
        daemon.delete(name).expect(204);
    };
    // The first round creates the threads and sockets that the daemon keeps.
    round("/v1/probes/warm");
    let (objects, files) = (KernelObjects::now()?, daemon.open_files());
    for n in 0..scaled(40, 200) {
        round(&format!("/v1/probes/p{n}"));
    }
    objects.wait_for_no_more(OURS)?;
    // The connection of an earlier request may still be open, at the first count as well as now.
    let limit = Instant::now() + PATIENCE;
    while daemon.open_files() > files {
        assert!(
            Instant::now() < limit,
            "{} descriptors, not {files}",
            daemon.open_files()
        );
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read_dir(hooks)?.count(), beside, "pins are left");
    bystanders.finish()
}

/// A daemon that stops leaves its probes counting; the next one on the same directories adopts
/// them.
#[alone("it looks for what is left in the kernel")]
fn probes_outlive_the_daemon_unless_told_otherwise() -> Result<()> {
    let topology = Topology::new()?;
    let before = KernelObjects::now()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut config = counter_config("mon0", "XDP_DROP");
    config["ingress"]["verdict"] = json!("enforce");
    daemon.put("/v1/probes/p", &config).expect(201);
    let behind = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
    let mut generator = generator(&topology)?;
    let (status, directories) = daemon.terminate()?;
    assert!(status.success(), "{status}");
    generator.send(1000)?;
    assert_eq!(behind.packets()?, 0, "the probe stopped with its daemon");

    let options = DaemonOptions::default().argument("--detach-on-exit");
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    assert_eq!(daemon.json("/v1/probes/p")["state"], "running");
    generator.send(1000)?;
    // The probe has also counted while no daemon ran.
    assert_eq!(
        total(&daemon.json("/v1/probes/p/metrics"), "ingress", "packets"),
        2000
    );
    bystanders.check()?;
    let (status, directories) = daemon.terminate()?;
    assert!(status.success(), "{status}");
    generator.send(1000)?;
    assert_eq!(behind.packets()?, 1000, "the probe is still there");
    drop((behind, generator, directories, bystanders));
    before.wait_for_no_more(OURS)
}

/// A daemon that is killed leaves its probes counting, and the next daemon adopts them.
#[test]
fn a_daemon_that_was_killed_is_succeeded() -> Result<()> {
    let topology = Topology::new()?;
    for tc in ["auto", "clsact"] {
        let options = DaemonOptions::default()
            .argument("--tc-attach")
            .argument(tc)
            .argument("--detach-on-exit");
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
        let mut config = counter_config("mon0", "0");
        config["ingress"]["hook"] = json!("tc");
        config["ingress"]["source"] = json!(
            xdp_counter("0")
                .replace("xdp_md", "__sk_buff")
                .replace("SEC(\"xdp\")", "SEC(\"tc\")")
        );
        daemon.put("/v1/probes/p", &config).expect(201);
        assert_eq!(
            daemon.json("/v1/probes/p")["interfaces"][0]["mode"],
            if tc == "auto" { "tcx" } else { tc }
        );
        let directories = daemon.kill()?;
        let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
        generator(&topology)?.send(1000)?;
        let document = daemon.json("/v1/probes/p/metrics");
        assert_eq!(total(&document, "ingress", "packets"), 1000, "{tc}");
        daemon.delete("/v1/probes/p").expect(204);
        let filters = Command::new("nsenter")
            .arg(format!("--net={}", topology.mon_netns_path().display()))
            .args(["tc", "filter", "show", "dev", "mon0", "ingress"])
            .output()?;
        assert!(
            filters.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&filters.stdout)
        );
        bystanders.finish()?;
    }
    Ok(())
}
