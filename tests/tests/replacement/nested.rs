//! Replacements of a probe with maps of maps: a refused one changes nothing, an accepted one keeps
//! the inner maps.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const SOURCE: &str = include_str!("../../bpf/inner.bpf.c");

/// The names of the probes, with `snapshot` and `init` of their metrics on the outer map.
const PROBES: [(&str, bool, bool); 3] = [
    ("live", false, false),
    ("window", true, true),
    ("reset", false, true),
];

fn config(outer: &str, (_, snapshot, init): (&str, bool, bool), defines: &[&str]) -> Value {
    let metrics = json!([{ "name": "outer", "map": "outer", "snapshot": snapshot, "init": init }]);
    let mut ingress =
        json!({ "source": SOURCE, "defines": { "OUTER": outer }, "metrics": metrics });
    for define in defines {
        ingress["defines"][*define] = json!("1");
    }
    json!({ "interface": "mon0", "ingress": ingress })
}

fn path(probe: &str) -> String {
    format!("/v1/probes/{probe}")
}

/// Returns the count of the inner maps.
fn packets(daemon: &Daemon, probe: &str) -> u64 {
    let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
    let outer = document["ingress"]["outer"]["entries"]
        .as_array()
        .expect("entries");
    let inner = outer
        .iter()
        .flat_map(|entry| entry["value"]["entries"].as_array().expect("inner entries"));
    inner
        .map(|entry| entry["value"]["packets"].as_u64().expect("a count"))
        .sum()
}

#[test]
fn a_refused_replacement_leaves_the_maps_in_a_map_alone() -> Result<()> {
    let topology = Topology::new()?;
    for outer in ["BPF_MAP_TYPE_ARRAY_OF_MAPS", "BPF_MAP_TYPE_HASH_OF_MAPS"] {
        let daemon = Daemon::start(topology.monitor())?;
        let mut generator =
            Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        for probe in PROBES {
            daemon
                .put(&path(probe.0), &config(outer, probe, &[]))
                .expect(201);
        }
        generator.send(100)?;
        for probe in PROBES {
            let refused = config(outer, probe, &["RENAMED", "REFUSED"]);
            daemon.put(&path(probe.0), &refused).expect(422);
        }
        generator.send(10)?;
        // The next daemon finds the counts in the maps.
        let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        for (probe, ..) in PROBES {
            assert_eq!(packets(&daemon, probe), 110, "{probe} in {outer}");
        }
    }
    Ok(())
}

/// The outer map can't be kept if the inner maps change.
#[test]
fn an_accepted_replacement_goes_on_with_the_maps_in_a_map() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let outer = "BPF_MAP_TYPE_ARRAY_OF_MAPS";
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    for probe in PROBES {
        daemon
            .put(&path(probe.0), &config(outer, probe, &[]))
            .expect(201);
    }
    generator.send(100)?;
    for probe in PROBES {
        daemon
            .put(&path(probe.0), &config(outer, probe, &[]))
            .expect(200);
    }
    generator.send(10)?;
    for (probe, ..) in PROBES {
        assert_eq!(packets(&daemon, probe), 110, "{probe}");
    }
    generator.send(1)?;
    // An inner map with other fields starts empty, and the open window is closed with the old
    // counts.
    for probe in PROBES {
        let status = daemon
            .put(&path(probe.0), &config(outer, probe, &["RENAMED"]))
            .expect(200)
            .json();
        let warnings = status["warnings"].to_string();
        assert!(
            warnings.contains("metric outer begins anew"),
            "{}: {warnings}",
            probe.0
        );
    }
    generator.send(2)?;
    for (probe, _, init) in PROBES {
        if init {
            assert_eq!(
                packets(&daemon, probe),
                1,
                "{probe}: the window that was closed first"
            );
        }
        assert_eq!(packets(&daemon, probe), 2, "{probe}");
    }
    Ok(())
}
