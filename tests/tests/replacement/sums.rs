//! Sums of windows: they are in the window's file, survive replacements, restarts, reboots and
//! upgrades, and have a bound.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sums_scene::{PROBES, Reading, config, count, counted, generator, read};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::layouts::{self, Layout};
use twinprobe_tests::sample::window;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Store, Topology};

fn options() -> DaemonOptions {
    DaemonOptions::default()
}

/// Removes everything that a reboot removes, and starts the next daemon.
fn reboot(daemon: Daemon, topology: &Topology, options: &DaemonOptions) -> Result<Daemon> {
    let directories = daemon.kill()?;
    forget_pins(&directories)?;
    Daemon::start_in(topology.monitor(), options, directories)
}

fn forget_pins(directories: &Directories) -> Result<()> {
    Ok(fs::remove_dir_all(directories.bpffs())?)
}

/// The sum is that of the retained windows, if a daemon dies at any step.
#[test]
fn a_sum_is_never_ahead_of_its_windows() -> Result<()> {
    let topology = Topology::new()?;
    for step in ["flipped", "summed:3", "written", "stored"] {
        let mut generator = generator(&topology, 4)?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut both = config(Reading::Sum, &[]);
        let metrics = both["ingress"]["metrics"]
            .as_array_mut()
            .context("metrics")?;
        metrics.retain(|metric| metric["name"] != "flows");
        metrics.push(window("flows", "flows"));
        daemon.put(PROBES[0], &both).expect(201);
        generator.send(1000)?;
        let dying = options().environment("TWINPROBE_CRASH_AT", step);
        let daemon = daemon.restart(libc::SIGKILL, &dying)?;
        let answer = http::request(
            &daemon.address(),
            "POST",
            &format!("{}/windows", PROBES[0]),
            &[],
            b"",
        );
        ensure!(answer.is_err(), "{step} was not reached: {answer:?}");
        let stored: u64 = if step == "stored" { 1000 } else { 0 };
        let daemon = reboot(daemon, &topology, &options())?;
        let daemon = daemon.restart(libc::SIGKILL, &options())?;
        generator.send(10)?;
        let windows = format!("{}/windows", PROBES[0]);
        let document = daemon.post(&windows, &json!({})).expect(201).json();
        assert_eq!(count(&document, "flows"), 10, "{step}: the window");
        assert_eq!(count(&document, "one"), stored + 10, "{step}: the sum");
        assert_eq!(count(&document, "each_cpu"), stored + 10, "{step}: the sum");
    }
    Ok(())
}

/// A committed deployment has the counts of closed windows and of the open one, both in its own
/// layout.
#[test]
fn a_sum_in_a_new_layout_survives_a_kill() -> Result<()> {
    let topology = Topology::new()?;
    let layout = |layout: u32, reading| {
        let mut config = Layout {
            layout,
            ..Layout::new(reading)
        }
        .config();
        config["ingress"]["verdict"] = json!("observe");
        config
    };
    let readings = [
        layouts::Reading::Cumulative,
        layouts::Reading::Window,
        layouts::Reading::Live,
    ];
    for step in ["committed", "transferred", "retiring", "retired"] {
        let mut generator = generator(&topology, 4)?;
        let mut daemon = Daemon::start(topology.monitor())?;
        for (probe, reading) in PROBES.iter().zip(readings) {
            daemon.put(probe, &layout(0, reading)).expect(201);
        }
        generator.send(1000)?;
        PROBES.iter().for_each(|probe| drop(read(&daemon, probe)));
        generator.send(500)?;
        for (probe, reading) in PROBES.iter().zip(readings) {
            let dying = options().environment("TWINPROBE_CRASH_AT", step);
            daemon = daemon.restart(libc::SIGKILL, &dying)?;
            let body = layout(1, reading).to_string();
            let answer = http::request(&daemon.address(), "PUT", probe, &[], body.as_bytes());
            ensure!(answer.is_err(), "{step} was not reached: {answer:?}");
            daemon = daemon.restart(libc::SIGKILL, &options())?;
        }
        generator.send(10)?;
        for (probe, expected) in PROBES.iter().zip([1510, 510, 1510]) {
            assert_eq!(
                layouts::packets(&read(&daemon, probe)),
                expected,
                "{probe}, {step}"
            );
        }
    }
    Ok(())
}

/// Sums of shown and hidden metrics survive a reboot, after windows and after a replacement without
/// a window since.
#[test]
fn sums_survive_a_reboot() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology, 4)?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let mut hidden = config(Reading::Sum, &[]);
    hidden["ingress"]["metrics"][2]["export"] = json!(false);
    // The deployment of a stored probe after a reboot is not a replacement, so `reset` must not
    // apply.
    hidden["on_replace"] = json!("reset");
    let read_all = |daemon: &Daemon| PROBES.map(|probe| read(daemon, probe));
    PROBES
        .iter()
        .for_each(|probe| drop(daemon.put(probe, &hidden).expect(201)));
    generator.send(1000)?;
    read_all(&daemon);
    daemon = reboot(daemon, &topology, &options())?;
    generator.send(10)?;
    read_all(&daemon);
    PROBES
        .iter()
        .for_each(|probe| drop(daemon.put(probe, &config(Reading::Sum, &[])).expect(200)));
    generator.send(1)?;
    read_all(&daemon)
        .iter()
        .for_each(|document| assert_eq!(counted(document), 1011));
    // A replacement by larger maps puts the counts into the baseline.
    generator.send(100)?;
    let larger = config(Reading::Sum, &[("ENTRIES", "2048")]);
    PROBES
        .iter()
        .for_each(|probe| drop(daemon.put(probe, &larger).expect(200)));
    daemon = reboot(daemon, &topology, &options())?;
    daemon = reboot(daemon, &topology, &options())?;
    generator.send(5)?;
    for document in read_all(&daemon) {
        assert_eq!(
            count(&document, "flows"),
            1116,
            "what was in the maps that were replaced is on disk"
        );
        assert_eq!(
            count(&document, "one"),
            1016,
            "what was in the map goes with the reboot"
        );
    }
    Ok(())
}

/// The sum of a map that is keyed by traffic has room for eight times the map's entries, or for
/// `sum_entries`.
#[test]
fn sums_have_a_bound() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let own = |entries: u64| {
        let mut config = config(Reading::Sum, &[("ENTRIES", "16")]);
        config["ingress"]["metrics"][0]["sum_entries"] = json!(entries);
        config
    };
    for (config, field) in [
        (own(15), "ingress.metrics[0].sum_entries"),
        (
            {
                let mut config = own(16);
                config["ingress"]["metrics"][2]["sum_entries"] = json!(9);
                config
            },
            "ingress.metrics[2].sum_entries",
        ),
        (
            {
                let mut config = own(16);
                config["ingress"]["metrics"][0]["init"] = json!(true);
                config
            },
            "ingress.metrics[0].sum_entries",
        ),
    ] {
        for answer in [
            daemon.post("/v1/validate", &config),
            daemon.put(PROBES[0], &config),
        ] {
            let problem = answer.expect(422).json();
            assert_eq!(problem["errors"][0]["field"], field, "{problem}");
        }
    }
    daemon.put(PROBES[0], &own(32)).expect(201);
    // Each of 20 windows has 16 addresses of its own; the first 16 come in each window except the
    // last two.
    let windows = 20_u32;
    let send = |first: u32, count: u32| {
        let base = u32::from(Spread::default().base_address) + first;
        let spread = Spread {
            addresses: count,
            ports: 1,
            base_address: base.into(),
            ..Spread::default()
        };
        let options = GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        };
        Generator::new(topology.generator(), "gen0", options)?.send(u64::from(count))
    };
    for window in 0..windows {
        send(8 * window, 8)?;
        if window < windows - 2 {
            send(0, 1)?;
        }
        read(&daemon, PROBES[0]);
    }
    let check = |daemon: &Daemon, document: &Value| -> Result<()> {
        let entries = |map: &str| document["ingress"][map]["entries"].as_array().map(Vec::len);
        assert_eq!(
            (entries("flows"), entries("prefixes")),
            (Some(32), Some(128))
        );
        assert_eq!(document["ingress"]["flows"]["dropped_entries"], 160 - 32);
        assert_eq!(
            document["ingress"]["prefixes"]["dropped_entries"],
            160 - 128
        );
        assert_eq!(document["ingress"]["one"].get("dropped_entries"), None);
        let most = |map: &str| {
            let entries = document["ingress"][map]["entries"].as_array();
            entries
                .into_iter()
                .flatten()
                .filter_map(|entry| entry["value"].as_u64())
                .max()
        };
        // The age of an entry counts from the last window that had it, not from the first.
        assert_eq!((most("flows"), most("prefixes")), (Some(19), Some(19)));
        let sums = daemon.json(PROBES[0])["sums"].clone();
        let flows = json!({ "direction": "ingress", "metric": "flows", "entries": 32, "max_entries": 32, "dropped": 128 });
        assert_eq!(
            (sums.as_array().map(Vec::len), &sums[0]),
            (Some(2), &flows),
            "{sums}"
        );
        let page = daemon.get("/metrics").expect(200).text().to_owned();
        for line in [
            "twinprobe_sum_entries{probe=\"a\",direction=\"ingress\",metric=\"prefixes\"} 128",
            "twinprobe_sum_max_entries{probe=\"a\",direction=\"ingress\",metric=\"flows\"} 32",
            "twinprobe_sum_dropped_total{probe=\"a\",direction=\"ingress\",metric=\"flows\"} 128",
        ] {
            ensure!(
                page.lines().any(|found| found == line),
                "{line} is missing in\n{page}"
            );
        }
        Ok(())
    };
    check(&daemon, &read(&daemon, PROBES[0]))?;
    daemon = daemon.restart(libc::SIGKILL, &options())?;
    check(&daemon, &read(&daemon, PROBES[0]))?;
    // Sums of other metrics keep the packets whose entries were dropped.
    assert_eq!(
        count(&read(&daemon, PROBES[0]), "one"),
        u64::from(8 * windows + windows - 2)
    );
    Ok(())
}

/// Sums that can't be read for a while are neither overwritten nor lost.
#[test]
fn sums_that_can_not_be_read_are_waited_for() -> Result<()> {
    let topology = Topology::new()?;
    // This many addresses make bodies of windows large enough to be files.
    let mut generator = generator(&topology, 8192)?;
    let daemon = Daemon::start(topology.monitor())?;
    for probe in PROBES {
        daemon
            .put(probe, &config(Reading::Sum, &[("ENTRIES", "8192")]))
            .expect(201);
    }
    generator.send(8192)?;
    PROBES.iter().for_each(|probe| drop(read(&daemon, probe)));
    let directories = daemon.kill()?;
    let store = Store::open(&directories)?;
    let file = |probe: &str| -> Result<PathBuf> {
        store
            .body_file(probe.trim_start_matches("/v1/probes/"), 1)?
            .context("the body is a file")
    };
    let newest = PROBES
        .iter()
        .map(|probe| file(probe))
        .collect::<Result<Vec<_>>>()?;
    drop(store);
    let aside = |body: &Path| {
        directories
            .temporary()
            .join(body.file_name().unwrap_or_default())
    };
    for body in &newest {
        fs::rename(body, aside(body))?;
        // A file that can't be opened now: the link leads to itself.
        symlink(body, body)?;
    }
    let daemon = Daemon::start_in(topology.monitor(), &options(), Arc::clone(&directories))?;
    generator.send(10)?;
    for probe in PROBES {
        let problem = daemon
            .request("POST", &format!("{probe}/windows"), &[], b"")
            .expect(500)
            .text()
            .to_owned();
        ensure!(problem.contains("nothing is overwritten"), "{problem}");
        daemon.get(&format!("{probe}/metrics")).expect(500);
        daemon
            .put(probe, &config(Reading::Sum, &[("ENTRIES", "16384")]))
            .expect(500);
        let status = daemon.json(probe);
        let error = status["windows"]["error"]
            .as_str()
            .context("the status says why")?;
        ensure!(error.contains("can't be read"), "{error}");
        assert_eq!(status["windows"]["unreadable"], 1, "{status}");
    }
    generator.send(5)?;
    for (probe, body) in PROBES.iter().zip(&newest) {
        fs::remove_file(body)?;
        fs::rename(aside(body), body)?;
        assert_eq!(counted(&read(&daemon, probe)), 8192 + 15, "{probe}");
        let status = daemon.json(probe);
        ensure!(
            status["windows"].get("error").is_none()
                && status["windows"].get("unreadable").is_none(),
            "{status}"
        );
    }
    Ok(())
}

/// A state directory of the version whose windows have the first format: they hold the sums that
/// they show.
#[test]
fn sums_of_an_earlier_version_are_taken_over() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology, 1)?;
    let directories = Arc::new(Directories::new()?);
    copy(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/state-1")),
        &directories.state(),
    )?;
    let mut daemon = Daemon::start_in(topology.monitor(), &options(), Arc::clone(&directories))?;
    let probe = "/v1/probes/p";
    let packets = |document: &Value, metric: &str| count(document, metric);
    for sent in 1..=2 {
        generator.send(1)?;
        let document = read(&daemon, probe);
        assert_eq!(
            document["window"]["seq"],
            2 + sent,
            "windows are numbered on"
        );
        assert_eq!(
            (
                packets(&document, "in_array"),
                packets(&document, "in_percpu_array")
            ),
            (7 + sent, 7 + sent)
        );
        daemon = reboot(daemon, &topology, &options())?;
    }
    // A metric that was never shown is in none of the windows, and began anew.
    let mut config = daemon.json(probe)["config"].clone();
    config["ingress"]["metrics"][3]["export"] = json!(true);
    daemon.put(probe, &config).expect(200);
    generator.send(1)?;
    let document = read(&daemon, probe);
    let all: u64 = document["ingress"]["in_percpu_hash"]["entries"]
        .as_array()
        .into_iter()
        .flatten()
        .map(sum_of)
        .sum();
    assert_eq!(all, 3);
    Ok(())
}

/// Returns the sum over all CPUs.
fn sum_of(entry: &Value) -> u64 {
    let slots = entry["value"].as_array().into_iter().flatten();
    slots.filter_map(|slot| slot["packets"].as_u64()).sum()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            let _ = fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
