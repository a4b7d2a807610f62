//! Tests of `GET /v1/capabilities` and `twinprobe capabilities`.

use std::sync::Arc;
use std::time::Duration;

use crate::cpuset::Cpuset;
use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{
    Bystanders, Daemon, DaemonOptions, Directories, KernelObjects, Topology, alone,
};

const LIMIT: Duration = PATIENCE;

#[alone("it looks for what is left in the kernel, where other daemons try the same")]
fn what_was_found_by_probing() -> Result<()> {
    let topology = Topology::new()?;
    let before = KernelObjects::now()?;
    let daemon = Daemon::start_with(
        topology.monitor(),
        &DaemonOptions::default()
            .argument("--quiesce")
            .argument("membarrier"),
    )?;
    let found = daemon.json("/v1/capabilities");
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    assert_eq!(found["kernel"]["quiesce"], "membarrier");
    let available = |name| json!({ "name": name, "available": true });
    let methods: Vec<Value> = ["sweep", "membarrier", "map-in-map"].map(available).into();
    assert_eq!(found["kernel"]["quiesce_methods"], json!(methods));
    assert!(
        found["kernel"]["possible_cpus"].as_u64() >= Some(1),
        "{found}, possible are {cpus}"
    );
    for feature in ["btf", "xdp_frags", "tcx"] {
        assert!(found["kernel"][feature].is_boolean(), "{feature}: {found}");
    }
    assert!(
        found["compiler"]["version"]
            .as_str()
            .is_some_and(|version| version.contains("clang")),
        "{found}"
    );
    let strategies: Vec<(&str, &str)> = found["maps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|map| {
            (
                map["type"].as_str().expect("a name"),
                map["strategy"].as_str().unwrap_or("none"),
            )
        })
        .collect();
    // Every kernel since 5.14 has these strategies; those of the trie and of nested maps depend on
    // the kernel.
    for expected in [
        ("hash", "lookup_and_delete_batch"),
        ("lru_percpu_hash", "lookup_and_delete_batch"),
        ("array", "lookup_batch_then_zero_batch"),
        ("percpu_array", "lookup_batch_then_zero_batch"),
        ("queue", "pop"),
        ("global", "mmap"),
    ] {
        assert!(
            strategies.contains(&expected),
            "{expected:?}: {strategies:?}"
        );
    }
    assert_eq!(strategies.len(), 12);
    assert_eq!(
        found["events"],
        json!([{ "type": "ringbuf" }, { "type": "perf_event_array" }])
    );
    drop(daemon);
    before.wait_for_no_more(&["tp_try"])?;
    Ok(())
}

/// A cpuset with one of several CPUs keeps the sweep from the others.
#[test]
fn a_sweep_that_is_not_possible() -> Result<()> {
    let Some(cpuset) = Cpuset::new()? else {
        println!("neither several CPUs nor a cpuset hierarchy of cgroup v1: nothing was tested");
        return Ok(());
    };
    let topology = Topology::new()?;
    let inside = |arguments: [&str; 2]| {
        let options = DaemonOptions {
            binary: Some(cpuset.wrapper()?),
            ..DaemonOptions::default()
        };
        let options = arguments.into_iter().fold(options, DaemonOptions::argument);
        Daemon::spawn_in(topology.monitor(), &options, Arc::new(Directories::new()?))
    };
    let refused = inside(["--quiesce", "sweep"])?;
    let text = "--quiesce sweep is not possible here: CPU 1 can't be visited";
    assert!(refused.wait_for_log(text, LIMIT), "{}", refused.log());
    assert!(
        refused.log().contains("available: membarrier, map-in-map"),
        "{}",
        refused.log()
    );

    let daemon = inside(["--quiesce", "auto"])?;
    assert!(
        daemon.wait_for_log("listening on", LIMIT),
        "{}",
        daemon.log()
    );
    let found = daemon.json("/v1/capabilities");
    assert_eq!(found["kernel"]["quiesce"], "membarrier");
    let sweep = &found["kernel"]["quiesce_methods"][0];
    assert_eq!(sweep["available"], false, "{sweep}");
    assert!(
        sweep["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("CPU 1")),
        "{sweep}"
    );
    drop(daemon);

    // The cpuset changes while the daemon runs.
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/probe", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let in_use = || daemon.json("/v1/capabilities")["kernel"]["quiesce"].clone();
    assert_eq!(in_use(), "sweep");
    daemon.json("/v1/probes/probe/metrics");
    cpuset.take(daemon.pid())?;
    daemon.json("/v1/probes/probe/metrics");
    assert_eq!(in_use(), "membarrier");
    cpuset.give_back(daemon.pid())?;
    daemon.json("/v1/probes/probe/metrics");
    assert_eq!(in_use(), "sweep");
    assert_eq!(
        daemon.json("/v1/capabilities")["kernel"]["quiesce_methods"][0]["available"],
        true
    );
    bystanders.finish()
}

#[test]
fn the_client_shows_them() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let table = daemon.client(&["capabilities"])?;
    let text = String::from_utf8(table.stdout)?;
    assert!(table.status.success(), "{text}");
    for line in [
        "lpm_trie ",
        "hash_of_maps ",
        "kernel quiesce ",
        "quiesce by sweep ",
        "compiler version ",
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}: {text}");
    }
    let json = daemon.client(&["capabilities", "-o", "json"])?;
    let json: Value = serde_json::from_slice(&json.stdout)?;
    assert_eq!(json, daemon.json("/v1/capabilities"));
    Ok(())
}
