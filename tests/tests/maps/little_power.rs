//! A daemon with only the rights of `deploy/twinprobe.service`, which lack CAP_SYS_ADMIN.

use std::fs;

use crate::scene::{ADDRESSES, MAPS, metric};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::unit::as_under_the_unit;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Daemon, Topology};

const PROBES: [&str; 3] = ["p", "q", "r"];
const PACKETS: u64 = 1_000;

fn config(snapshot: bool) -> Value {
    let mut per_cpu = metric("per_cpu", "per_cpu_by_parity", snapshot, true);
    per_cpu["agg"] = json!("sum");
    let metrics = json!([metric("by_parity", "by_parity", snapshot, true), per_cpu]);
    json!({ "interface": "mon0", "ingress": { "source": MAPS, "metrics": metrics } })
}

/// Returns the sum over all inner maps of a metric.
fn packets(document: &Value, metric: &str) -> u64 {
    let outer = document["ingress"][metric]["entries"]
        .as_array()
        .expect("entries");
    let inner = outer
        .iter()
        .flat_map(|entry| entry["value"]["entries"].as_array().expect("inner entries"));
    inner
        .map(|entry| entry["value"].as_u64().expect("a count"))
        .sum()
}

#[test]
fn windows_of_maps_in_maps_need_no_admin() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let options = as_under_the_unit(temporary.path(), &[])?;
    let mut daemon = Daemon::start_with(topology.monitor(), &options)?;
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .context("capabilities")?;
    let effective = u64::from_str_radix(effective.trim(), 16)?;
    assert_eq!(
        effective >> 21 & 1,
        0,
        "CAP_SYS_ADMIN is there: {effective:x}"
    );

    for (index, probe) in PROBES.iter().enumerate() {
        daemon
            .put(&format!("/v1/probes/{probe}"), &config(index != 1))
            .expect(201);
    }
    let spread = Spread {
        addresses: ADDRESSES as u32,
        ports: 1,
        ..Spread::default()
    };
    let generator = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(topology.generator(), "gen0", generator)?;
    let mut round = |daemon: &Daemon, what: &str| -> Result<()> {
        generator.send(PACKETS)?;
        for probe in PROBES {
            let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
            for metric in ["by_parity", "per_cpu"] {
                assert_eq!(
                    packets(&document, metric),
                    PACKETS,
                    "{metric} of {probe}, {what}"
                );
            }
        }
        Ok(())
    };
    round(&daemon, "created")?;
    round(&daemon, "again")?;
    for probe in PROBES {
        daemon
            .put(&format!("/v1/probes/{probe}"), &config(true))
            .expect(200);
    }
    round(&daemon, "replaced")?;
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        daemon = daemon.restart(signal, &options)?;
        round(&daemon, "adopted")?;
    }
    let found = daemon.json("/v1/capabilities");
    let nested = found["maps"].as_array().expect("a list").iter();
    let nested: Vec<&Value> = nested
        .filter(|map| {
            map["type"]
                .as_str()
                .is_some_and(|name| name.ends_with("_of_maps"))
        })
        .collect();
    assert_eq!(nested.len(), 2);
    assert!(
        nested.iter().all(|map| map.get("unavailable").is_none()),
        "{nested:?}"
    );
    for probe in PROBES {
        daemon.delete(&format!("/v1/probes/{probe}")).expect(204);
    }
    Ok(())
}

/// Everything else that a daemon does works without CAP_SYS_ADMIN.
#[test]
fn probes_come_and_go_without_admin() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let options = as_under_the_unit(temporary.path(), &[])?;
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    for probe in PROBES {
        daemon
            .put(
                &format!("/v1/probes/{probe}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
    }
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    generator.send(PACKETS)?;
    let daemon = daemon.restart(libc::SIGKILL, &options)?;
    generator.send(PACKETS)?;
    for probe in PROBES {
        let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
        assert_eq!(
            twinprobe_tests::sample::total(&document, "ingress", "packets"),
            2 * PACKETS,
            "{probe}"
        );
        daemon.delete(&format!("/v1/probes/{probe}")).expect(204);
    }
    Ok(())
}

/// A trial needs the same rights as loading a program. Measuring running probes needs more
/// capabilities, and the error says so.
#[test]
fn costs_are_tried_without_admin_and_not_measured() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let options = as_under_the_unit(temporary.path(), &[])?.argument("--measure-cost");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let created = daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201)
        .json();
    assert!(
        created["cost"]["directions"]["ingress"]["ns_per_packet"].is_u64(),
        "{created}"
    );
    assert!(daemon.wait_for_log("the cost of probes can't be measured", PATIENCE));
    let cost = &daemon.json("/v1/probes/p")["cost"];
    assert_eq!(cost, &created["cost"], "a live cost without a measurement");
    Ok(())
}
