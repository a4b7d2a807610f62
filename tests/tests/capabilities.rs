//! `GET /v1/capabilities` and `twinprobe capabilities`.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, DaemonOptions, KernelObjects, Topology};

#[test]
fn what_was_found_by_probing() -> Result<()> {
    let topology = Topology::new()?;
    let before = KernelObjects::now()?;
    let daemon = Daemon::start_with(
        topology.monitor(),
        &DaemonOptions::default().argument("--quiesce").argument("membarrier"),
    )?;
    let found = daemon.json("/v1/capabilities");
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    assert_eq!(found["kernel"]["quiesce"], "membarrier");
    assert!(found["kernel"]["possible_cpus"].as_u64() >= Some(1), "{found}, possible are {cpus}");
    for feature in ["btf", "xdp_frags", "tcx"] {
        assert!(found["kernel"][feature].is_boolean(), "{feature}: {found}");
    }
    assert!(
        found["compiler"]["version"].as_str().is_some_and(|version| version.contains("clang")),
        "{found}"
    );
    let strategies: Vec<(&str, &str)> = found["maps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|map| (map["type"].as_str().expect("a name"), map["strategy"].as_str().unwrap_or("none")))
        .collect();
    // Those of any kernel since 5.14, but for the trie (4.16 and later kernels differ) and nested maps.
    for expected in [
        ("hash", "lookup_and_delete_batch"),
        ("lru_percpu_hash", "lookup_and_delete_batch"),
        ("array", "lookup_batch_then_zero_batch"),
        ("percpu_array", "lookup_batch_then_zero_batch"),
        ("queue", "pop"),
        ("global", "mmap"),
    ] {
        assert!(strategies.contains(&expected), "{expected:?}: {strategies:?}");
    }
    assert_eq!(strategies.len(), 12);
    assert_eq!(found["events"], json!([{ "type": "ringbuf" }, { "type": "perf_event_array" }]));
    drop(daemon);
    before.wait_for_no_more(&["tp_try"])?;
    Ok(())
}

#[test]
fn the_client_shows_them() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let table = daemon.client(&["capabilities"])?;
    let text = String::from_utf8(table.stdout)?;
    assert!(table.status.success(), "{text}");
    for line in ["lpm_trie ", "hash_of_maps ", "kernel quiesce ", "compiler version "] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}: {text}");
    }
    let json = daemon.client(&["capabilities", "-o", "json"])?;
    let json: Value = serde_json::from_slice(&json.stdout)?;
    assert_eq!(json, daemon.json("/v1/capabilities"));
    Ok(())
}
