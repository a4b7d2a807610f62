//! Programs and filters of other owners stay in place and see every packet, also while those of the
//! daemon change.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::counter::{Counter, Place, tcx_order};
use twinprobe_tests::sample::{counter_config, total, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{
    Bystanders, Daemon, DaemonOptions, Directories, KernelObjects, Namespace, Topology,
};

const PROBE: &str = "/v1/probes/p";

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

fn tc_attach(method: &str) -> DaemonOptions {
    DaemonOptions::default()
        .argument("--tc-attach")
        .argument(method)
}

/// Returns the configuration of a live counter at mon0's TC ingress that lets packets pass or
/// (`verdict` 2) drops them.
fn tc_config(position: &str, verdict: &str) -> Value {
    let source = xdp_counter(verdict)
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    json!({
        "interface": "mon0",
        "ingress": {
            "hook": "tc", "source": source, "position": position,
            "verdict": if verdict == "2" { "enforce" } else { "observe" },
            "metrics": [{ "name": "packets", "map": "packets" }]
        }
    })
}

fn count(daemon: &Daemon) -> u64 {
    total(&daemon.json("/v1/probes/p/metrics"), "ingress", "packets")
}

/// Returns the filters at mon0's ingress.
fn filters(topology: &Topology) -> Result<String> {
    topology
        .monitor()
        .output("tc", &["filter", "show", "dev", "mon0", "ingress"])
}

/// Creates, replaces and deletes a probe and ends daemons. After each step all of `foreign` count,
/// and also the probe if it exists.
fn live_among(
    foreign: &[&Counter],
    topology: &Topology,
    options: &DaemonOptions,
    config: &Value,
) -> Result<()> {
    let mut generator = generator(topology)?;
    let before: Vec<u64> = foreign
        .iter()
        .map(|counter| counter.packets())
        .collect::<Result<_>>()?;
    let filters = filters(topology)?;
    let (mut sent, mut ours) = (0, 0);
    let mut check = |step: &str, daemon: Option<&Daemon>| -> Result<()> {
        generator.send(100)?;
        sent += 100;
        for (i, counter) in foreign.iter().enumerate() {
            ensure!(
                counter.packets()? == before[i] + sent,
                "{step}: number {i} has {}",
                counter.packets()?
            );
        }
        if let Some(daemon) = daemon {
            ours += 100;
            ensure!(count(daemon) == ours, "{step}: {} of {ours}", count(daemon));
        } else {
            let now = self::filters(topology)?;
            ensure!(now == filters, "{step}, before:\n{filters}\nnow:\n{now}");
        }
        Ok(())
    };
    let mut daemon = Daemon::start_with(topology.monitor(), options)?;
    let mut bystanders = Bystanders::deploy_elsewhere(&daemon, topology)?;
    check("nothing deployed", None)?;
    daemon.put(PROBE, config).expect(201);
    check("created", Some(&daemon))?;
    let mut other = config.clone();
    other["priority"] = json!(7);
    daemon.put(PROBE, &other).expect(200);
    check("replaced", Some(&daemon))?;
    daemon = daemon.restart(libc::SIGTERM, options)?;
    check("restarted", Some(&daemon))?;
    daemon = daemon.restart(libc::SIGKILL, options)?;
    check("killed", Some(&daemon))?;
    daemon.put(PROBE, config).expect(200);
    check("replaced after a crash", Some(&daemon))?;
    daemon.delete(PROBE).expect(204);
    check("deleted", None)?;
    daemon = daemon.restart(libc::SIGKILL, options)?;
    check("killed without probes", None)?;
    daemon.put(PROBE, config).expect(201);
    let directories = daemon.kill()?;
    let detaching = options.clone().argument("--detach-on-exit");
    let detaching = Daemon::start_in(topology.monitor(), &detaching, directories)?;
    detaching.get("/readyz").expect(200);
    bystanders.check()?;
    let (exit, _) = detaching.terminate()?;
    ensure!(exit.success(), "{exit}");
    check("detached", None)
}

/// Checks that a PUT is refused, and that the answer has the name and id of the foreign program.
fn refused_by_xdp(daemon: &Daemon, name: &str, id: u32) -> Result<()> {
    let refused = daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(409)
        .json();
    let detail = refused["detail"].as_str().context("a detail")?;
    for word in [name, &id.to_string(), "mon0"] {
        ensure!(detail.contains(word), "{word} is not in {detail:?}");
    }
    ensure!(refused["errors"][0]["stage"] == "attach", "{refused}");
    daemon.get(PROBE).expect(404);
    Ok(())
}

/// Returns the lines of `doctor` about the hooks `xdp` or `tc`; `None` if it has nothing to say
/// about them.
fn doctor(daemon: &Daemon, hook: &str) -> Result<Option<Value>> {
    let checks = daemon
        .namespace()
        .enter(|| daemon.client(&["doctor", "-o", "json"]))??;
    let checks: Vec<Value> = serde_json::from_slice(&checks.stdout)?;
    Ok(checks.into_iter().find(|check| check["name"] == hook))
}

#[test]
fn a_foreign_xdp_program_is_named_and_kept() -> Result<()> {
    let topology = Topology::new()?;
    let monitor = topology.monitor();
    // The foreign program is attached by a link.
    let daemon = Daemon::start(monitor)?;
    let foreign = Counter::attach(monitor, "mon0", Place::XdpPass)?;
    refused_by_xdp(&daemon, "count_xdp", foreign.program_id()?)?;
    live_among(
        &[&foreign],
        &topology,
        &DaemonOptions::default(),
        &tc_config("last", "0"),
    )?;
    drop(foreign);
    // The answer names libxdp's own dispatcher as such.
    let foreign = Counter::attach(monitor, "mon0", Place::LibxdpDispatcher)?;
    refused_by_xdp(&daemon, "libxdp", foreign.program_id()?)?;
    let found = doctor(&daemon, "xdp")?.context("no check of the hooks")?;
    let owner = format!(
        "mon0: a dispatcher of libxdp, xdp_dispatcher (id {}, native)",
        foreign.program_id()?
    );
    ensure!(
        found["verdict"] == "warning" && found["found"].to_string().contains(&owner),
        "{found}"
    );
    drop(foreign);
    // The foreign program is attached by netlink, native and generic.
    let directories = Directories::new()?;
    std::fs::create_dir_all(directories.bpffs())?;
    let pin = directories.bpffs().join("foreign");
    let foreign = Counter::pinned(monitor, Place::XdpPass, &pin)?;
    let path = pin.to_str().context("a path")?;
    for mode in ["xdpdrv", "xdpgeneric"] {
        monitor.run("ip", &["link", "set", "dev", "mon0", mode, "pinned", path])?;
        refused_by_xdp(&daemon, "count_xdp", foreign.program_id()?)?;
        live_among(
            &[&foreign],
            &topology,
            &DaemonOptions::default(),
            &tc_config("last", "0"),
        )?;
        let shown = monitor.output("ip", &["-d", "link", "show", "dev", "mon0"])?;
        assert!(
            shown.contains(&format!("id {}", foreign.program_id()?)),
            "{mode}: {shown}"
        );
        monitor.run("ip", &["link", "set", "dev", "mon0", mode, "off"])?;
    }
    daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    Ok(())
}

/// Where l3afd pins the program that calls others, or its link, the answer and `doctor` name l3afd,
/// the pin, and what frees the hook.
#[test]
fn a_program_of_another_manager_is_known_by_its_pins() -> Result<()> {
    let topology = Topology::new()?;
    let monitor = topology.monitor();
    let daemon = Daemon::start(monitor)?;
    for kind in ["progs", "links"] {
        let folder = PathBuf::from(format!("/sys/fs/bpf/{kind}/mon0/tp-{}", std::process::id()));
        let pin = folder.join("1_0_0/xdp_root_xdp");
        std::fs::create_dir_all(folder.join("1_0_0"))?;
        let path = pin.to_str().context("a path")?;
        let foreign = if kind == "links" {
            Counter::attach_pinned(monitor, "mon0", &pin)?
        } else {
            let foreign = Counter::pinned(monitor, Place::XdpPass, &pin)?;
            monitor.run(
                "ip",
                &["link", "set", "dev", "mon0", "xdpdrv", "pinned", path],
            )?;
            foreign
        };
        for words in [
            "the XDP program of l3afd, count_xdp",
            path,
            "POST /l3af/configs/v1/delete",
        ] {
            refused_by_xdp(&daemon, words, foreign.program_id()?)?;
        }
        let found = doctor(&daemon, "xdp")?.context("no check of the hooks")?;
        ensure!(
            found["found"]
                .to_string()
                .contains("mon0: the XDP program of l3afd"),
            "{found}"
        );
        live_among(
            &[&foreign],
            &topology,
            &DaemonOptions::default(),
            &tc_config("last", "0"),
        )?;
        drop(foreign);
        if kind == "progs" {
            monitor.run("ip", &["link", "set", "dev", "mon0", "xdpdrv", "off"])?;
        }
        for folder in folder.join("1_0_0").ancestors().take(2) {
            std::fs::remove_dir(folder)?;
        }
    }
    Ok(())
}

/// A program that was attached while no daemon ran keeps its place. The probe says why it does not
/// run, and runs after another PUT.
#[test]
fn a_foreign_xdp_program_that_was_faster_is_kept() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let directories = daemon.kill()?;
    std::fs::remove_dir_all(directories.bpffs())?;
    let foreign = Counter::attach(topology.monitor(), "mon0", Place::XdpPass)?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    bystanders.begin_anew()?;
    let mut generator = generator(&topology)?;
    generator.send(100)?;
    assert_eq!(foreign.packets()?, 100);
    let status = daemon.json(PROBE);
    let attached = |status: &Value| {
        let interface = &status["interfaces"][0];
        status["state"] == "running" && interface["state"] == "attached"
    };
    assert!(!attached(&status), "{status}");
    assert!(
        status.to_string().contains("count_xdp"),
        "no reason in {status}"
    );
    drop(foreign);
    daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(200);
    generator.send(10)?;
    assert!(attached(&daemon.json(PROBE)));
    assert_eq!(count(&daemon), 10);
    bystanders.finish()
}

/// Foreign TCX programs before and after the daemon's keep counting.
#[test]
fn foreign_tcx_programs_go_on() -> Result<()> {
    let topology = Topology::new()?;
    for position in ["first", "last"] {
        let before = Counter::attach(topology.monitor(), "mon0", Place::TcxFirst)?;
        let after = Counter::attach(topology.monitor(), "mon0", Place::TcxLast)?;
        let config = tc_config(position, "0");
        live_among(
            &[&before, &after],
            &topology,
            &DaemonOptions::default(),
            &config,
        )?;
    }
    Ok(())
}

/// The kernel ends a program that reads beyond the packet with 0, which would end the chain of TC
/// programs.
#[test]
fn a_read_beyond_the_packet_is_no_verdict() -> Result<()> {
    let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        unsigned long long load_byte(void *skb, unsigned long long at) asm(\"llvm.bpf.load.byte\");\n\
        SEC(\"tc\") int see(struct __sk_buff *skb) { load_byte(skb, 60000); return -1; }\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let counters = [Place::TcxLast, Place::TcIngress];
    let counters = counters.map(|place| Counter::attach(topology.monitor(), "mon0", place));
    let ingress = json!({ "hook": "tc", "position": "first", "source": source });
    daemon
        .put(PROBE, &json!({ "interface": "mon0", "ingress": ingress }))
        .expect(201);
    generator(&topology)?.send(10)?;
    for counter in counters {
        assert_eq!(counter?.packets()?, 10);
    }
    Ok(())
}

/// `position` is the place among the foreign programs at the time of the attachment; two probes can
/// be at both ends.
#[test]
fn positions_are_kept() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let foreign = Counter::attach(topology.monitor(), "mon0", Place::TcxLast)?;
    let theirs = foreign.program_id()?;
    // The place of the foreign program among all programs, and their number.
    let place = || -> Result<(usize, usize)> {
        let order = tcx_order(topology.monitor(), "mon0")?;
        let place = order
            .iter()
            .position(|id| *id == theirs)
            .context("theirs is gone")?;
        Ok((place, order.len()))
    };
    daemon.put(PROBE, &tc_config("last", "0")).expect(201);
    assert_eq!(place()?, (0, 2));
    let ahead = doctor(&daemon, "tc")?.context("no program runs before the probe")?;
    let named = format!("mon0 ingress: count_tc (id {theirs})");
    assert!(
        ahead["found"]
            .as_str()
            .is_some_and(|found| found.contains(&named)),
        "{ahead}"
    );
    daemon.put(PROBE, &tc_config("first", "0")).expect(200);
    assert_eq!(place()?, (1, 2));
    let ahead = doctor(&daemon, "tc")?.unwrap_or_default();
    assert!(!ahead.to_string().contains("mon0 ingress"), "{ahead}");
    daemon
        .put("/v1/probes/other", &tc_config("last", "0"))
        .expect(201);
    assert_eq!(place()?, (1, 3));
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        daemon = daemon.restart(signal, &DaemonOptions::default())?;
        assert_eq!(place()?, (1, 3), "after signal {signal}");
    }
    // A verdict affects only later programs: the foreign program is after the first probe and
    // before the last.
    let mut generator = generator(&topology)?;
    daemon
        .put("/v1/probes/other", &tc_config("last", "2"))
        .expect(200);
    generator.send(10)?;
    assert_eq!(foreign.packets()?, 10);
    daemon.put(PROBE, &tc_config("first", "2")).expect(200);
    generator.send(10)?;
    assert_eq!(foreign.packets()?, 10, "dropped before it came");
    daemon.delete(PROBE).expect(204);
    assert_eq!(place()?, (0, 2));
    daemon.delete("/v1/probes/other").expect(204);
    assert_eq!(place()?, (0, 1));
    bystanders.finish()
}

fn add_filter(namespace: &Namespace, pin: &str, priority: &str) -> Result<()> {
    let filter = [
        "filter",
        "add",
        "dev",
        "mon0",
        "ingress",
        "prio",
        priority,
        "bpf",
        "da",
        "object-pinned",
        pin,
    ];
    namespace.run("tc", &filter)
}

/// Foreign clsact filters on either side, with a qdisc that another program has made, keep
/// counting.
#[test]
fn foreign_clsact_filters_go_on() -> Result<()> {
    for method in ["auto", "clsact"] {
        let topology = Topology::new()?;
        let monitor = topology.monitor();
        let directories = Directories::new()?;
        std::fs::create_dir_all(directories.bpffs())?;
        let pins = ["early", "late"].map(|name| directories.bpffs().join(name));
        let early = Counter::pinned(monitor, Place::TcIngress, &pins[0])?;
        let late = Counter::pinned(monitor, Place::TcIngress, &pins[1])?;
        monitor.run("tc", &["qdisc", "add", "dev", "mon0", "clsact"])?;
        for position in ["first", "last"] {
            live_among(
                &[],
                &topology,
                &tc_attach(method),
                &tc_config(position, "0"),
            )?;
        }
        let qdiscs = monitor.output("tc", &["qdisc", "show", "dev", "mon0"])?;
        assert!(
            qdiscs.contains("clsact"),
            "{method}: the qdisc that was there is gone: {qdiscs}"
        );

        for (pin, priority) in pins.iter().zip(["2", "65000"]) {
            add_filter(monitor, pin.to_str().context("a path")?, priority)?;
        }
        for position in ["first", "last"] {
            live_among(
                &[&early, &late],
                &topology,
                &tc_attach(method),
                &tc_config(position, "0"),
            )?;
        }
        // The foreign filters come after the daemon's, at the priorities that the daemon has left
        // for them.
        let daemon = Daemon::start_with(monitor, &tc_attach(method))?;
        for (position, sees) in [("last", 100), ("first", 0)] {
            daemon.put(PROBE, &tc_config(position, "2"));
            let (counted, passed) = (early.packets()?, late.packets()?);
            generator(&topology)?.send(100)?;
            // TCX programs run before all filters, in any order among each other.
            let sees = if method == "auto" { 0 } else { sees };
            assert_eq!(early.packets()? - counted, sees, "{method}, {position}");
            if position == "first" {
                assert_eq!(late.packets()?, passed, "{method}: dropped before it came");
            }
        }
    }
    Ok(())
}

/// The kernel calls TCX programs before the filters of clsact, also before the first one.
#[test]
fn programs_before_clsact_are_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start_with(topology.monitor(), &tc_attach("clsact"))?;
    let foreign = Counter::attach(topology.monitor(), "mon0", Place::TcxLast)?;
    let named = format!("mon0 ingress: count_tc (id {})", foreign.program_id()?);
    daemon.put(PROBE, &tc_config("first", "0")).expect(201);
    let ahead = doctor(&daemon, "tc")?.context("no program runs before the probe")?;
    assert!(
        ahead["found"]
            .as_str()
            .is_some_and(|found| found.contains(&named)),
        "{ahead}"
    );
    drop(foreign);
    assert!(doctor(&daemon, "tc")?.is_none_or(|ahead| !ahead.to_string().contains("mon0 ingress")));
    Ok(())
}

/// Two daemons share a hook: the end, a crash and the probes of one do not affect the other.
#[test]
fn two_daemons_share_an_interface() -> Result<()> {
    for method in ["auto", "clsact"] {
        let topology = Topology::new()?;
        let mut first = Daemon::start_with(topology.monitor(), &tc_attach(method))?;
        let second = Daemon::start_with(topology.monitor(), &tc_attach(method))?;
        let bystanders = Bystanders::deploy_elsewhere(&second, &topology)?;
        let config = tc_config("last", "0");
        first.put(PROBE, &config).expect(201);
        second.put(PROBE, &config).expect(201);
        let objects = KernelObjects::pinned(second.directories().bpffs())?;
        let mut generator = generator(&topology)?;
        generator.send(100)?;
        assert_eq!((count(&first), count(&second)), (100, 100), "{method}");
        for signal in [libc::SIGKILL, libc::SIGTERM] {
            first = first.restart(signal, &tc_attach(method))?;
            first.put(PROBE, &config).expect(200);
            generator.send(100)?;
        }
        assert_eq!((count(&first), count(&second)), (300, 300), "{method}");
        first.delete(PROBE).expect(204);
        drop(first);
        generator.send(100)?;
        assert_eq!(count(&second), 400, "{method}");
        let differences =
            KernelObjects::pinned(second.directories().bpffs())?.differences(&objects);
        assert_eq!(differences, [], "{method}");
        // An interface has one place for XDP: the second daemon's refusal names the owner.
        let other = Daemon::start(topology.monitor())?;
        other
            .put("/v1/probes/xdp", &counter_config("mon0", "XDP_PASS"))
            .expect(201);
        let refused = second
            .put("/v1/probes/xdp", &counter_config("mon0", "XDP_PASS"))
            .expect(409)
            .json();
        let detail = refused["detail"].as_str().context("a detail")?;
        assert!(detail.contains("twinprobe"), "{detail}");
        bystanders.finish()?;
    }
    Ok(())
}
