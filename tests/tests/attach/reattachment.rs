//! Reattachment: programs and filters that others remove at the daemon's hooks are noticed and
//! attached again, for every probe of the hook, and only there.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::sample::{counter_config, total, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Directories, Namespace, Stand, Topology};

const PROBES: [&str; 2] = ["/v1/probes/a", "/v1/probes/b"];

fn live() -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    config
}

fn live_tc(position: &str) -> Value {
    let source = xdp_counter("0")
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    let mut config = live();
    config["ingress"]["source"] = json!(source);
    config["ingress"]["hook"] = json!("tc");
    config["ingress"]["position"] = json!(position);
    config
}

fn clsact() -> DaemonOptions {
    DaemonOptions::default()
        .argument("--tc-attach")
        .argument("clsact")
}

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

fn counts(daemon: &Daemon) -> [u64; 2] {
    PROBES.map(|probe| {
        total(
            &daemon.json(&format!("{probe}/metrics")),
            "ingress",
            "packets",
        )
    })
}

/// Waits until each probe counts every sent packet once.
fn counting(daemon: &Daemon, generator: &mut Generator) -> Result<()> {
    wait_for("every packet counted once", PATIENCE, || {
        let before = counts(daemon);
        generator.send(10)?;
        let now = counts(daemon);
        ensure!(
            now == before.map(|count| count + 10),
            "{before:?}, 10 packets, {now:?}"
        );
        Ok(())
    })
}

fn filters(namespace: &Namespace, interface: &str) -> Result<String> {
    namespace.output("tc", &["filter", "show", "dev", interface, "ingress"])
}

/// Adds and removes an interface, which makes the daemon list all interfaces.
fn stir(namespace: &Namespace) -> Result<()> {
    namespace.run(
        "ip",
        &[
            "link", "add", "stir0", "type", "veth", "peer", "name", "stir1",
        ],
    )?;
    namespace.run("ip", &["link", "del", "stir0"])
}

#[test]
fn a_filter_that_was_deleted_is_put_back() -> Result<()> {
    let topology = Topology::new()?;
    let monitor = topology.monitor();
    let mut daemon = Daemon::start_with(monitor, &clsact())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    for probe in PROBES {
        daemon.put(probe, &live_tc("last")).expect(201);
    }
    let mut generator = generator(&topology)?;
    counting(&daemon, &mut generator)?;
    let deletions = [
        ["filter", "del", "dev", "mon0", "ingress"].as_slice(),
        ["filter", "del", "dev", "mon0", "ingress", "prio", "65000"].as_slice(),
        ["qdisc", "del", "dev", "mon0", "clsact"].as_slice(),
    ];
    for deletion in deletions {
        // The removal is noticed with the next change of interfaces, when a probe is replaced, and
        // by the next daemon.
        monitor.run("tc", deletion)?;
        stir(monitor)?;
        counting(&daemon, &mut generator).context("stirred")?;
        monitor.run("tc", deletion)?;
        daemon.put(PROBES[1], &live_tc("last")).expect(200);
        counting(&daemon, &mut generator).context("replaced")?;
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            monitor.run("tc", deletion)?;
            daemon = daemon.restart(signal, &clsact())?;
            counting(&daemon, &mut generator).context("restarted")?;
            let shown = filters(monitor, "mon0")?;
            ensure!(shown.matches("direct-action").count() == 1, "{shown}");
        }
    }
    bystanders.finish()
}

/// A foreign filter with the priority and handle of the daemon's removed filter is kept.
#[test]
fn a_filter_that_took_our_place_is_kept() -> Result<()> {
    let topology = Topology::new()?;
    let monitor = topology.monitor();
    let directories = Directories::new()?;
    std::fs::create_dir_all(directories.bpffs())?;
    let pin = directories.bpffs().join("foreign");
    let foreign = Counter::pinned(monitor, Place::TcIngress, &pin)?;
    let path = pin.to_str().context("a path")?;
    let mut daemon = Daemon::start_with(monitor, &clsact())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let mut generator = generator(&topology)?;
    for position in ["first", "last"] {
        let priority = if position == "first" { "1" } else { "65000" };
        for probe in PROBES {
            daemon.put(probe, &live_tc(position)).expect(201);
        }
        let take = || -> Result<String> {
            let place = [
                "dev", "mon0", "ingress", "prio", priority, "handle", "0x1", "bpf",
            ];
            let change = [
                ["filter", "change"].as_slice(),
                &place,
                &["da", "object-pinned", path],
            ]
            .concat();
            monitor.run("tc", &change)?;
            filters(monitor, "mon0")
        };
        let theirs = take()?;
        assert!(
            theirs.contains(&format!("id {} ", foreign.program_id()?)),
            "{theirs}"
        );
        stir(monitor)?;
        counting(&daemon, &mut generator)?;
        // The filters are in the configured order.
        let shown = filters(monitor, "mon0")?;
        let place = |what: &str| {
            shown
                .find(what)
                .with_context(|| format!("no {what} in {shown}"))
        };
        let (ours, other) = (place("tp_dispatcher")?, place("foreign")?);
        assert_eq!(ours < other, position == "first", "{shown}");
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            daemon = daemon.restart(signal, &clsact())?;
            counting(&daemon, &mut generator)?;
            assert_eq!(filters(monitor, "mon0")?, shown, "after signal {signal}");
        }
        let before = foreign.packets()?;
        for probe in PROBES {
            daemon.delete(probe).expect(204);
        }
        generator.send(10)?;
        assert_eq!(foreign.packets()?, before + 10);
        let left = filters(monitor, "mon0")?;
        ensure!(
            !left.contains("tp_dispatcher") && left.contains("foreign"),
            "{left}"
        );
        monitor.run("tc", &["filter", "del", "dev", "mon0", "ingress"])?;
    }
    bystanders.finish()
}

/// The daemon recognizes its filter after its interface was renamed, and in another namespace than
/// its own.
#[test]
fn a_filter_follows_its_interface() -> Result<()> {
    let topology = Topology::new()?;
    let (monitor, generators) = (topology.monitor(), topology.generator());
    // The daemon is in another namespace than the interfaces.
    let mut daemon = Daemon::start_with(topology.sink(), &clsact())?;
    let bystanders = Bystanders::deploy_at(
        &daemon,
        &topology,
        Stand {
            abroad: true,
            ..Stand::ELSEWHERE
        },
    )?;
    let mut config = live_tc("last");
    config["netns"] = json!(monitor.path());
    for probe in PROBES {
        daemon.put(probe, &config).expect(201);
    }
    let mut generator = generator(&topology)?;
    counting(&daemon, &mut generator)?;
    let shown = filters(monitor, "mon0")?;
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        daemon = daemon.restart(signal, &clsact())?;
        counting(&daemon, &mut generator)?;
        assert_eq!(filters(monitor, "mon0")?, shown, "after signal {signal}");
    }
    monitor.run("ip", &["link", "set", "dev", "mon0", "down"])?;
    monitor.run("ip", &["link", "set", "dev", "mon0", "name", "other0"])?;
    wait_for("left alone", PATIENCE, || {
        let left = filters(monitor, "other0")?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    monitor.run("ip", &["link", "set", "dev", "other0", "name", "mon0"])?;
    monitor.run("ip", &["link", "set", "dev", "mon0", "up"])?;
    counting(&daemon, &mut generator)?;
    generators.run("ip", &["link", "del", "gen0"])?;
    bystanders.finish()
}

/// Each way to attach: XDP, TCX and clsact.
fn ways() -> [(DaemonOptions, Value); 3] {
    [
        (DaemonOptions::default(), live()),
        (DaemonOptions::default(), live_tc("last")),
        (clsact(), live_tc("last")),
    ]
}

/// An interface that is moved keeps its links; another one gets its name and index at once.
#[test]
fn an_index_that_is_given_again_is_another_interface() -> Result<()> {
    let topology = Topology::new()?;
    let (monitor, sink) = (topology.monitor(), topology.sink());
    let sink_path = sink.path().to_str().context("a path")?.to_owned();
    for (options, config) in ways() {
        let daemon = Daemon::start_with(monitor, &options)?;
        let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
        for probe in PROBES {
            daemon.put(probe, &config).expect(201);
        }
        counting(&daemon, &mut generator(&topology)?)?;
        let index = monitor.interface_index("mon0")?.to_string();
        for _ in 0..3 {
            // One command makes both changes, so that the daemon can't look in between.
            let generators = topology
                .generator()
                .path()
                .to_str()
                .context("a path")?
                .to_owned();
            let batch = batch_file(&format!(
                "link set dev mon0 netns {sink_path}\n\
                 link add mon0 index {index} type veth peer name new0 netns {generators}\n"
            ))?;
            let path = batch.path().to_str().context("a path")?;
            monitor.run("ip", &["-batch", path])?;
            set_up(monitor, "mon0")?;
            set_up(topology.generator(), "new0")?;
            assert_eq!(monitor.interface_index("mon0")?.to_string(), index);
            let mut new =
                Generator::new(topology.generator(), "new0", GeneratorOptions::default())?;
            counting(&daemon, &mut new)?;
            wait_for("left alone", PATIENCE, || {
                let shown = sink.output("ip", &["-d", "link", "show", "dev", "mon0"])?;
                ensure!(!shown.contains("prog/xdp"), "{shown}");
                Ok(())
            })?;
            // The first interface comes back.
            monitor.run("ip", &["link", "del", "mon0"])?;
            let monitor_path = monitor.path().to_str().context("a path")?;
            sink.run("ip", &["link", "set", "dev", "mon0", "netns", monitor_path])?;
            monitor.run("ip", &["link", "set", "dev", "mon0", "up"])?;
            counting(&daemon, &mut generator(&topology)?)?;
        }
        bystanders.finish()?;
    }
    Ok(())
}

/// Sets an interface up like those of the topology.
fn set_up(namespace: &Namespace, interface: &str) -> Result<()> {
    namespace.run("ip", &["link", "set", "dev", interface, "arp", "off"])?;
    namespace.run("ethtool", &["-K", interface, "gro", "on"])?;
    namespace.run("ip", &["link", "set", "dev", interface, "up"])
}

fn batch_file(text: &str) -> Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new()?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    Ok(file)
}

/// An interface is deleted and made again with the same index: all probes at its hook come back.
#[test]
fn all_probes_of_an_interface_come_back() -> Result<()> {
    let topology = Topology::new()?;
    let (monitor, generators) = (topology.monitor(), topology.generator());
    for (options, config) in ways() {
        let daemon = Daemon::start_with(monitor, &options)?;
        let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
        for probe in PROBES {
            daemon.put(probe, &config).expect(201);
        }
        let index = monitor.interface_index("mon0")?.to_string();
        let path = generators.path().to_str().context("a path")?.to_owned();
        let batch = batch_file(&format!(
            "link del mon0\n\
             link add mon0 index {index} type veth peer name gen0 netns {path}\n"
        ))?;
        for _ in 0..3 {
            monitor.run("ip", &["-batch", batch.path().to_str().context("a path")?])?;
            set_up(monitor, "mon0")?;
            set_up(generators, "gen0")?;
            counting(&daemon, &mut generator(&topology)?)?;
        }
        // The batch ends before the daemon can look.
        monitor.run("ip", &["-batch", batch.path().to_str().context("a path")?])?;
        set_up(monitor, "mon0")?;
        set_up(generators, "gen0")?;
        daemon.put(PROBES[1], &config).expect(200);
        counting(&daemon, &mut generator(&topology)?)?;
        bystanders.finish()?;
    }
    Ok(())
}
