//! Sums and windows whose maps are replaced by live maps, by other maps and by smaller ones.

use crate::sums_scene::{PROBES, Reading, SOURCE, config, count, counted, generator, read};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use twinprobe_tests::traffic::Load;
use twinprobe_tests::{Daemon, Topology, scaled};

/// A sum that becomes live is copied into the map, where programs continue counting.
#[test]
fn a_sum_that_becomes_live_goes_on() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology, 4)?;
    let daemon = Daemon::start(topology.monitor())?;
    for defines in [&[][..], &[("ENTRIES", "2048")]] {
        let mut sent = 0;
        let mut send = |count| {
            sent += count;
            generator.send(count).map(|()| sent)
        };
        for (probe, status) in PROBES.iter().zip([201; 3]) {
            daemon.put(probe, &config(Reading::Sum, &[])).expect(status);
        }
        send(1000)?;
        for probe in PROBES {
            assert_eq!(counted(&read(&daemon, probe)), 1000);
        }
        let now = send(10)?;
        for probe in PROBES {
            daemon
                .put(probe, &config(Reading::Live, defines))
                .expect(200);
            assert_eq!(counted(&read(&daemon, probe)), now, "{probe}, {defines:?}");
        }
        let now = send(5)?;
        for probe in PROBES {
            assert_eq!(counted(&read(&daemon, probe)), now, "{probe}, {defines:?}");
            // A live metric that becomes a sum has all its counts in the open window.
            daemon
                .put(probe, &config(Reading::Sum, defines))
                .expect(200);
        }
        let now = send(1)?;
        for probe in PROBES {
            assert_eq!(counted(&read(&daemon, probe)), now, "{probe}, {defines:?}");
            daemon.delete(probe).expect(204);
        }
    }
    Ok(())
}

#[test]
fn a_sum_that_becomes_live_misses_no_packet() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for probe in PROBES {
        daemon.put(probe, &config(Reading::Sum, &[])).expect(201);
    }
    let mut sink = config(Reading::Live, &[]);
    sink["ingress"]["verdict"] = json!("enforce");
    sink["ingress"]["source"] = json!(SOURCE.replace("XDP_PASS", "XDP_DROP"));
    sink["priority"] = json!(100);
    daemon.put("/v1/probes/sink", &sink).expect(201);
    let load = generator(&topology, 16)?.spawn(Load::default());
    for round in 0..scaled(6, 60) {
        let reading = if round % 2 == 0 {
            Reading::Live
        } else {
            Reading::Sum
        };
        for probe in PROBES {
            read(&daemon, probe);
            daemon.put(probe, &config(reading, &[])).expect(200);
        }
    }
    let sent = load.stop()?;
    for probe in PROBES {
        assert_eq!(counted(&read(&daemon, probe)), sent, "{probe}");
    }
    Ok(())
}

/// A number that becomes a struct can't be carried: the window ends first, and the answer says so.
#[test]
fn what_can_not_go_on_is_in_a_window_and_reported() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology, 4)?;
    let daemon = Daemon::start(topology.monitor())?;
    for (reading, probe) in [Reading::Window, Reading::Sum, Reading::Live]
        .into_iter()
        .zip(PROBES)
    {
        daemon.put(probe, &config(reading, &[])).expect(201);
        generator.send(1000)?;
        let before = jiff_now();
        let status = daemon
            .put(probe, &config(reading, &[("STRUCT", "1")]))
            .expect(200)
            .json();
        let warnings = status["warnings"].as_array().context("warnings")?;
        let about: Vec<&str> = warnings
            .iter()
            .filter_map(|warning| warning["field"].as_str())
            .collect();
        let fields = [0, 1, 2, 3].map(|index| format!("ingress.metrics[{index}].map"));
        assert_eq!(about, fields, "{reading:?}: the variable goes on: {status}");
        generator.send(10)?;
        if reading != Reading::Live {
            // No client has this window yet.
            let first = read(&daemon, probe);
            assert_eq!(counted(&first), 1000, "{reading:?}");
            assert_eq!(
                status["windows"]["newest"], first["window"]["seq"],
                "{status}"
            );
        }
        let document = read(&daemon, probe);
        for map in ["flows", "prefixes", "one", "each_cpu"] {
            assert_eq!(count(&document, map), 10, "{reading:?}, {map}");
        }
        assert_eq!(
            count(&document, "seen"),
            if reading == Reading::Window { 10 } else { 1010 },
            "{reading:?}"
        );
        let start = document["window"]["start"].as_str().unwrap_or("~");
        assert!(
            start > &*before,
            "{reading:?}: the window begins at {start}, before {before}"
        );
        daemon.delete(probe).expect(204);
    }
    Ok(())
}

/// Returns the present time as RFC 3339 in UTC, with the digits of documents.
fn jiff_now() -> String {
    let output = std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H:%M:%S.%NZ"])
        .output();
    String::from_utf8(output.expect("date").stdout)
        .expect("UTF-8")
        .trim()
        .to_owned()
}

/// Smaller maps take the entries that fit, and the answer names the metrics whose entries did not.
#[test]
fn what_does_not_fit_is_reported() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology, 8)?;
    let daemon = Daemon::start(topology.monitor())?;
    for (before, probe) in [Reading::Live, Reading::Sum].into_iter().zip(PROBES) {
        daemon.put(probe, &config(before, &[])).expect(201);
        generator.send(800)?;
        read(&daemon, probe);
        let small = config(Reading::Live, &[("ENTRIES", "4")]);
        let status = daemon.put(probe, &small).expect(200).json();
        for map in ["flows", "prefixes"] {
            let says = |warning: &Value| {
                let message = warning["message"].as_str().unwrap_or_default();
                message.contains(&format!("map {map}:")) && message.contains("4 entries")
            };
            let warnings = status["warnings"].as_array().context("warnings")?;
            assert!(warnings.iter().any(says), "{before:?}, {map}: {status}");
        }
        let document = read(&daemon, probe);
        for map in ["flows", "prefixes"] {
            assert_eq!(
                document["ingress"][map]["entries"].as_array().map(Vec::len),
                Some(4),
                "{map}"
            );
            assert_eq!(count(&document, map), 400, "{before:?}, {map}");
        }
        assert_eq!(count(&document, "one"), 800, "{before:?}");
        daemon.delete(probe).expect(204);
    }
    Ok(())
}
