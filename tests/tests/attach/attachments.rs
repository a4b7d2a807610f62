//! Three probes, at XDP, TC ingress and TC egress, observing and enforcing, stay attached: when
//! others detach them, when another daemon starts beside, and while interfaces can't be listed.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use twinprobe_tests::attachments::{
    FewFiles, PROBES, Three, detach, dispatcher, exchange, filters, tc_attach, tc_counter,
};
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::http;
use twinprobe_tests::sample::{total, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, attachments, wait_for, wait_for_attachment};
use twinprobe_tests::{
    Daemon, DaemonOptions, Directories, KernelObjects, Namespace, Topology, binary, veth_pair,
};

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

fn status(daemon: &Daemon, probe: &str) -> Value {
    daemon.json(&format!("/v1/probes/{probe}"))
}

/// Returns the samples of a family at `GET /metrics` that name the probe.
fn samples(daemon: &Daemon, family: &str, probe: &str) -> Vec<String> {
    let page = daemon.get("/metrics").expect(200).text().to_owned();
    let (begin, of) = (format!("{family}{{"), format!("probe=\"{probe}\""));
    page.lines()
        .filter(|line| line.starts_with(&begin) && line.contains(&of))
        .map(str::to_owned)
        .collect()
}

/// A daemon started without the fixture, which would wait for it; killed on drop.
struct Other(Child);

impl Other {
    fn start(namespace: &Namespace, directories: &Directories, bpffs: &Path) -> Result<Self> {
        let mut command = Command::new(binary()?);
        let socket = format!("unix:{}", directories.socket().display());
        command
            .args(["serve", "--listen", &socket, "--state-dir"])
            .arg(directories.state());
        command
            .arg("--bpffs")
            .arg(bpffs)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(Self(namespace.enter(|| command.spawn())??))
    }

    /// Waits until the daemon has ended. Returns the error message of the daemon.
    fn refused(mut self, limit: Duration) -> Result<String> {
        wait_for("its end", limit, || self.0.try_wait()?.context("it runs"))?;
        let mut said = String::new();
        self.0
            .stderr
            .take()
            .context("a standard error")?
            .read_to_string(&mut said)?;
        ensure!(!self.0.wait()?.success(), "{said}");
        Ok(said)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bind mount of a directory, unmounted on drop.
struct Bound<'a>(&'a Path);

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn one_daemon_has_the_pins() -> Result<()> {
    let mut three = Three::new()?;
    let monitor = three.topology.monitor().clone();
    let daemon = Daemon::start(&monitor)?;
    three.deploy(&daemon, None);
    three.counted(&daemon)?;
    let directories = daemon.directories();
    let elsewhere = Directories::new()?;
    let bound = elsewhere.temporary().join("bound");
    std::fs::create_dir(&bound)?;
    let mounted = Command::new("mount")
        .arg("--bind")
        .arg(directories.bpffs())
        .arg(&bound)
        .status()?;
    ensure!(mounted.success(), "mount: {mounted}");
    let bound = Bound(&bound);
    let objects = KernelObjects::pinned(directories.bpffs())?;
    for bpffs in [directories.bpffs(), bound.0] {
        let said = Other::start(&monitor, &elsewhere, bpffs)?.refused(PATIENCE)?;
        for word in [directories.state(), bpffs.to_owned(), "--bpffs".into()] {
            ensure!(
                said.contains(word.to_str().context("text")?),
                "{} is not in {said}",
                word.display()
            );
        }
        three.counted(&daemon)?;
        assert_eq!(
            KernelObjects::pinned(directories.bpffs())?.differences(&objects),
            []
        );
    }
    // The lock of a daemon that was killed keeps no daemon from starting.
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    three.counted(&daemon)?;
    drop(daemon);
    let other = Other::start(&monitor, &elsewhere, directories.bpffs())?;
    wait_for("another daemon", PATIENCE, || {
        let answer = http::request(
            &http::Address::Unix(elsewhere.socket()),
            "GET",
            "/readyz",
            &[],
            b"",
        )?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    })?;
    drop(other);
    Ok(())
}

/// Detaches links and filters, in the daemon's namespace and in another.
#[test]
fn what_somebody_detaches_is_attached_again() -> Result<()> {
    for (method, elsewhere) in [
        ("auto", false),
        ("auto", true),
        ("clsact", false),
        ("clsact", true),
    ] {
        let mut three = Three::new()?;
        let monitor = three.topology.monitor().clone();
        let home = if elsewhere {
            three.topology.sink()
        } else {
            &monitor
        };
        let daemon = Daemon::start_with(home, &tc_attach(method))?;
        three.deploy(&daemon, elsewhere.then(|| monitor.path()));
        three.counted(&daemon)?;
        let directories = daemon.directories();
        for time in 1..=3 {
            let step = || format!("{method}, elsewhere {elsewhere}, time {time}");
            for (interface, hook) in [
                ("mon0", "xdp"),
                ("mon0", "tc-ingress"),
                ("mon1", "tc-egress"),
            ] {
                detach(directories.bpffs(), &monitor, interface, hook).with_context(step)?;
            }
            three
                .wait_until_counted(&daemon, PATIENCE)
                .with_context(step)?;
            for (probe, direction, interface) in PROBES {
                let status = status(&daemon, probe);
                let [at] = attachments(&status, interface)[..] else {
                    bail!("{status}")
                };
                let reason = at["reason"].as_str().unwrap_or_default();
                let times = if time == 1 {
                    "once".to_owned()
                } else {
                    format!("{time} times")
                };
                let says = reason.contains("removed by somebody") && reason.contains(&times);
                ensure!(at["state"] == "attached" && says, "{}: {at}", step());
                let labels = format!("interface=\"{interface}\",direction=\"{direction}\"");
                for (family, value) in [
                    ("twinprobe_attachments", 1),
                    ("twinprobe_attachments_repaired_total", time),
                ] {
                    let found = samples(&daemon, family, probe);
                    let [sample] = &found[..] else {
                        bail!("{family}: {found:?}")
                    };
                    ensure!(
                        sample.contains(&labels) && sample.ends_with(&format!(" {value}")),
                        "{sample}"
                    );
                }
            }
        }
        assert_eq!(
            daemon
                .log()
                .matches("somebody removed an attachment")
                .count(),
            9,
            "{}",
            daemon.log()
        );
        // The next daemon knows the attachments that were made again, and removes them with their
        // probe.
        let daemon = daemon.restart(libc::SIGKILL, &tc_attach(method))?;
        three.counted(&daemon)?;
        for (probe, ..) in PROBES {
            daemon.delete(&format!("/v1/probes/{probe}")).expect(204);
        }
        assert_eq!(
            (
                filters(&monitor, "mon0", "ingress")?,
                filters(&monitor, "mon1", "egress")?
            ),
            (0, 0)
        );
    }
    Ok(())
}

/// An interface has room for one XDP program: a foreign one stays until its owner removes it.
#[test]
fn a_program_that_came_instead_is_kept() -> Result<()> {
    let mut three = Three::new()?;
    let monitor = three.topology.monitor().clone();
    // The first attempt to put our program back into its link fails.
    let failing = DaemonOptions::default().environment("TWINPROBE_FAIL_AT", "revising");
    let daemon = Daemon::start_with(&monitor, &failing)?;
    three.deploy(&daemon, None);
    three.counted(&daemon)?;
    let directories = daemon.directories();
    let pin = directories.bpffs().join("foreign");
    let foreign = Counter::pinned(&monitor, Place::XdpPass, &pin)?;
    daemon.pause();
    detach(directories.bpffs(), &monitor, "mon0", "xdp")?;
    let path = pin.to_str().context("a path")?;
    monitor.run(
        "ip",
        &["link", "set", "dev", "mon0", "xdpdrv", "pinned", path],
    )?;
    daemon.resume();
    let status = wait_for_attachment(&daemon, "xdp", "mon0", "pending", PATIENCE)?;
    let reason = attachments(&status, "mon0")[0]["reason"]
        .as_str()
        .context("a reason")?
        .to_owned();
    for word in [
        "removed by somebody",
        "count_xdp",
        &foreign.program_id()?.to_string(),
    ] {
        ensure!(reason.contains(word), "{word} is not in {reason}");
    }
    let sample = samples(&daemon, "twinprobe_attachments", "xdp");
    ensure!(sample.len() == 1 && sample[0].ends_with(" 0"), "{sample:?}");
    let (before, theirs) = (Three::counts(&daemon), foreign.packets()?);
    three.generator.send(10)?;
    assert_eq!(foreign.packets()?, theirs + 10);
    let now = Three::counts(&daemon);
    assert_eq!(
        now,
        [before[0], before[1] + 10, before[2] + 10],
        "the others count on"
    );
    monitor.run("ip", &["link", "set", "dev", "mon0", "xdpdrv", "off"])?;
    three.wait_until_counted(&daemon, PATIENCE)?;
    wait_for_attachment(&daemon, "xdp", "mon0", "attached", PATIENCE)?;
    // A link of the daemon stays its own, even if its program is replaced by another one.
    let ours = dispatcher(directories.bpffs(), &monitor, "mon0", "xdp")?;
    exchange(&ours, &pin)?;
    three.wait_until_counted(&daemon, PATIENCE)?;
    let theirs = foreign.packets()?;
    three.counted(&daemon)?;
    assert_eq!(foreign.packets()?, theirs);
    // Each message is logged once, however often the daemon has tried.
    for message in [
        "an attachment was removed and can't be made again",
        "somebody removed an attachment; it was made again",
        "the program of an attachment was replaced and can't be put back",
        "somebody replaced the program of an attachment; it was put back",
    ] {
        assert_eq!(
            daemon.log().matches(message).count(),
            1,
            "{message}: {}",
            daemon.log()
        );
    }
    Ok(())
}

/// A daemon that can open no file can't list interfaces, and must not treat that as an empty list.
#[test]
fn interfaces_that_cant_be_listed_are_kept() -> Result<()> {
    for (method, elsewhere) in [
        ("auto", false),
        ("auto", true),
        ("clsact", false),
        ("clsact", true),
    ] {
        let step = || format!("{method}, elsewhere {elsewhere}");
        let mut three = Three::new()?;
        let monitor = three.topology.monitor().clone();
        let home = if elsewhere {
            three.topology.sink()
        } else {
            &monitor
        };
        let daemon = Daemon::start_with(home, &tc_attach(method))?;
        three.deploy(&daemon, elsewhere.then(|| monitor.path()));
        three.counted(&daemon)?;
        let (before, left) = (
            Three::counts(&daemon),
            three.topology.sink0_stats()?.rx_packets,
        );
        let objects = KernelObjects::pinned(daemon.directories().bpffs())?;
        let limited = FewFiles::none(&daemon)?;
        stir(&monitor)?;
        let reported = daemon.wait_for_log("the interfaces can't be listed", PATIENCE);
        three.generator.send(1000)?;
        drop(limited);
        let now = wait_for("an answer", PATIENCE, || Ok(Three::counts(&daemon)))?;
        ensure!(
            now == before.map(|count| count + 1000),
            "{}: {before:?}, {now:?}",
            step()
        );
        ensure!(
            three.topology.sink0_stats()?.rx_packets == left,
            "{}: packets were not dropped",
            step()
        );
        ensure!(reported, "{}: {}", step(), daemon.log());
        assert_eq!(
            KernelObjects::pinned(daemon.directories().bpffs())?.differences(&objects),
            []
        );
        // Everything works again once files can be opened.
        for (probe, _, interface) in PROBES {
            wait_for(&format!("{probe} as ever"), PATIENCE, || {
                let status = status(&daemon, probe);
                let at = attachments(&status, interface);
                ensure!(
                    at.len() == 1 && at[0]["reason"].is_null(),
                    "{}",
                    status["interfaces"]
                );
                Ok(())
            })?;
        }
        three.counted(&daemon)?;
        three
            .topology
            .generator()
            .run("ip", &["link", "del", "gen0"])?;
        wait_for_attachment(&daemon, "xdp", "mon0", "pending", PATIENCE)?;
    }
    Ok(())
}

/// The replacement is attached to an interface that appears while it is compiled.
#[test]
fn an_interface_that_comes_while_a_replacement_compiles_is_attached() -> Result<()> {
    let topology = Topology::new()?;
    let (monitor, peers) = (topology.monitor(), topology.generator());
    let daemon = Daemon::start(monitor)?;
    // The source takes clang some seconds and causes no diagnostics.
    let mut slow = "#define R0 _Static_assert(sizeof(long) == 8, \"\");\n".to_owned();
    for n in 1..=9 {
        slow += &format!("#define R{n} {}\n", format!("R{} ", n - 1).repeat(4));
    }
    slow += "R9\n";
    let metrics = json!([{ "name": "packets", "map": "packets" }]);
    let configs = [
        (
            "xdp",
            "ingress",
            json!({ "hook": "xdp", "source": xdp_counter("XDP_PASS"), "metrics": metrics }),
        ),
        (
            "tc",
            "ingress",
            json!({ "hook": "tc", "verdict": "enforce", "source": tc_counter("0"), "metrics": metrics }),
        ),
        (
            "out",
            "egress",
            json!({ "verdict": "enforce", "source": tc_counter("2"), "metrics": metrics }),
        ),
    ];
    let with = |direction: &str, part: &Value| json!({ "interfaces": ["tap*"], direction: part });
    veth_pair(peers, "peer0", monitor, "tap0")?;
    for (probe, direction, part) in &configs {
        daemon
            .put(&format!("/v1/probes/{probe}"), &with(direction, part))
            .expect(201);
    }
    for (n, (probe, direction, part)) in configs.iter().enumerate() {
        let tap = format!("tap{}", n + 1);
        let mut part = part.clone();
        let source = part["source"].as_str().context("a source")?;
        part["source"] = json!(format!("{slow}{source}"));
        let path = format!("/v1/probes/{probe}");
        std::thread::scope(|scope| -> Result<()> {
            let (path, config, daemon) = (&path, with(direction, &part), &daemon);
            let put = scope.spawn(move || daemon.put(path, &config));
            wait_for("a compiler", PATIENCE, || {
                ensure!(!children(daemon.pid())?.is_empty(), "no child");
                Ok(())
            })?;
            veth_pair(peers, &format!("peer{}", n + 1), monitor, &tap)?;
            wait_for_attachment(daemon, probe, &tap, "attached", PATIENCE)?;
            ensure!(!put.is_finished(), "the compiler was too fast");
            put.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .expect(200);
            Ok(())
        })?;
        let status = wait_for_attachment(&daemon, probe, &tap, "attached", PATIENCE)?;
        ensure!(status["revision"] == 2, "{status}");
    }
    // All three probes are attached to the interfaces that have appeared.
    for (probe, ..) in &configs {
        for n in 0..=3 {
            wait_for_attachment(&daemon, probe, &format!("tap{n}"), "attached", PATIENCE)?;
        }
    }
    for n in 0..=3 {
        Generator::new(peers, &format!("peer{n}"), GeneratorOptions::default())?.send(10)?;
    }
    for (probe, direction, _) in &configs[..2] {
        let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
        assert_eq!(total(&document, direction, "packets"), 40, "{probe}");
    }
    Ok(())
}

fn children(pid: u32) -> Result<String> {
    let mut all = String::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended.
        all += &std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
    }
    Ok(all)
}
