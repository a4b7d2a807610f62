//! Rules that change probes, and change them back.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{close, close_until_death, counter, generator, rule, wait_for_rule};

/// The steps at which the daemon may end.
const STEPS: [(&str, u32); 5] = [
    ("rule_decided", 1),
    ("rule_prepared", 1),
    ("rule_acted", 1),
    ("rule_decided", 2),
    ("rule_ended", 1),
];

/// A probe that counts each packet `STEP` times.
fn stepping() -> Value {
    let mut config = counter();
    let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#ifndef STEP\n#define STEP 1\n#endif\n\
        struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64); __uint(max_entries, 1); } packets SEC(\".maps\");\n\
        SEC(\"xdp\") int count(struct xdp_md *ctx) { __u32 key = 0; __u64 *value = bpf_map_lookup_elem(&packets, &key);\n\
        if (value) __sync_fetch_and_add(value, STEP); return XDP_PASS; }\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";
    config["ingress"]["source"] = json!(source);
    config
}

fn changes(name: &str, step: &str) -> Value {
    json!([{ "change": { "name": name, "defines": { "STEP": step } } }])
}

/// The sum of all windows of a probe.
fn counted(daemon: &Daemon, probe: &str) -> Result<u64> {
    daemon
        .request("POST", &format!("/v1/probes/{probe}/windows"), &[], b"")
        .expect(201);
    let list = daemon.json(&format!("/v1/probes/{probe}/windows"));
    let windows = list["windows"].as_array().into_iter().flatten();
    let values = windows.map(|window| {
        let document = daemon.json(&format!("/v1/probes/{probe}/windows/{}", window["seq"]));
        document["ingress"]["packets"]["entries"][0]["value"]
            .as_u64()
            .unwrap_or_default()
    });
    Ok(values.sum())
}

/// The definitions of a probe as it runs.
fn step(daemon: &Daemon, probe: &str) -> Value {
    daemon.json(&format!("/v1/probes/{probe}"))["config"]["ingress"]["defines"]["STEP"].clone()
}

#[test]
fn a_probe_is_another_one_while_the_condition_holds() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut leased = stepping();
    leased["expires"] = json!("1h");
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon.put("/v1/probes/q", &leased).expect(201);
    let before = daemon.json("/v1/probes/q");
    daemon
        .put("/v1/rules/many", &rule(&changes("q", "10")))
        .expect(201);
    let mut generator = generator(&topology)?;
    generator.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(
        status["changed"] == json!(["q"]) && status["probes"] == json!([]),
        "{status}"
    );
    ensure!(step(&daemon, "q") == "10");
    let during = daemon.json("/v1/probes/q");
    for kept in ["pushed_by", "expires_at", "instance", "created"] {
        ensure!(
            during[kept] == before[kept],
            "{kept}: {} then {}",
            before[kept],
            during[kept]
        );
    }
    let history = daemon.json("/v1/probes/q/history");
    let last = history["history"]
        .as_array()
        .and_then(|all| all.iter().max_by_key(|entry| entry["revision"].as_u64()));
    ensure!(
        last.is_some_and(|entry| entry["who"] == "rule:many"),
        "{history}"
    );
    generator.send(7)?;
    close(&daemon);
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    ensure!(status["changed"].is_null(), "{status}");
    generator.send(3)?;
    // No packet is lost or counted twice while the probe changes.
    let sum = counted(&daemon, "q")?;
    ensure!(sum == 10 + 7 * 10 + 3, "{sum}");
    let after = daemon.json("/v1/probes/q");
    ensure!(
        after["config"] == before["config"] && after["pushed_by"] == before["pushed_by"],
        "{after}"
    );
    Ok(())
}

/// The watched probe may also change. A change by the rule ends with the rule, but leaves changes
/// by others unchanged.
#[test]
fn a_change_goes_with_its_rule_unless_somebody_was_there() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut generator = generator(&topology)?;
    daemon.put("/v1/probes/p", &stepping()).expect(201);
    daemon
        .put("/v1/rules/many", &rule(&changes("p", "3")))
        .expect(201);
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(step(&daemon, "p") == "3");
    // Another rule in its place changes it back first.
    daemon
        .put("/v1/rules/many", &rule(&changes("p", "5")))
        .expect(200);
    wait_for("the probe as it was", PATIENCE, || {
        let step = step(&daemon, "p");
        ensure!(step.is_null(), "{step}");
        Ok(())
    })?;
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| status["changed"] == json!(["p"]))?;
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][1]["done"].is_string()
    })?;
    ensure!(step(&daemon, "p") == "5");
    daemon.delete("/v1/rules/many").expect(204);
    ensure!(step(&daemon, "p").is_null());

    daemon
        .put("/v1/rules/many", &rule(&changes("p", "7")))
        .expect(201);
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    let mut other = stepping();
    other["ingress"]["defines"] = json!({ "STEP": "2" });
    daemon.put("/v1/probes/p", &other).expect(200);
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    ensure!(step(&daemon, "p") == "2");
    // A deleted probe stops the rule.
    daemon.put("/v1/probes/q", &counter()).expect(201);
    let mut gone = rule(&changes("p", "4"));
    gone["watch"] = json!("q");
    daemon.put("/v1/rules/gone", &gone).expect(422);
    daemon.delete("/v1/rules/many").expect(204);
    daemon.put("/v1/rules/gone", &gone).expect(201);
    daemon.delete("/v1/probes/p").expect(204);
    generator.send(10)?;
    daemon
        .request("POST", "/v1/probes/q/windows", &[], b"")
        .expect(201);
    let status = wait_for_rule(&daemon, "gone", |status| status["state"] == "stopped")?;
    ensure!(
        status["reason"]
            .as_str()
            .is_some_and(|reason| reason.ends_with("no probe named p")),
        "{status}"
    );
    Ok(())
}

#[test]
fn changes_that_can_not_be_are_refused() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon.put("/v1/probes/q", &stepping()).expect(201);
    daemon
        .put("/v1/rules/first", &rule(&changes("q", "2")))
        .expect(201);
    let mut back = rule(&changes("p", "2"));
    back["watch"] = json!("q");
    let both =
        json!([{ "change": { "name": "q", "defines": { "STEP": "2" } } }, { "delete": "q" }]);
    for (document, field, message) in [
        (
            rule(&changes("none", "2")),
            "do[0].change.name",
            "there is no probe named none",
        ),
        (rule(&changes("p", "2")), "do[0].change", "STEP"),
        (
            rule(&json!([{ "change": { "name": "q" } }])),
            "do[0].change",
            "changes nothing",
        ),
        (
            rule(&changes("q", "3")),
            "do[0].change.name",
            "rule first deploys or changes this probe",
        ),
        (
            rule(&both),
            "do[0].change.name",
            "another action of the rule",
        ),
        (
            back,
            "watch",
            "the windows of q lead to those of p, then of q",
        ),
    ] {
        let answer = daemon.put("/v1/rules/second", &document).expect(422).json();
        let finding = &answer["errors"][0];
        ensure!(finding["field"] == field, "{document}: {answer}");
        ensure!(
            finding["message"]
                .as_str()
                .is_some_and(|it| it.contains(message)),
            "{document}: {answer}"
        );
    }
    Ok(())
}

/// The daemon dies at each step. The next daemon continues, and at the end the probe is the same as
/// in the beginning.
#[test]
fn a_probe_is_changed_back_whatever_step_is_the_last() -> Result<()> {
    let topology = Topology::new()?;
    for (last, times) in STEPS {
        crash(&topology, last, times).map_err(|error| error.context(format!("{last}:{times}")))?;
    }
    Ok(())
}

fn crash(topology: &Topology, last: &str, times: u32) -> Result<()> {
    let dying =
        DaemonOptions::default().environment("TWINPROBE_CRASH_AT", format!("{last}:{times}"));
    let daemon = Daemon::start_with(topology.monitor(), &dying)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon.put("/v1/probes/q", &stepping()).expect(201);
    daemon
        .put("/v1/rules/many", &rule(&changes("q", "10")))
        .expect(201);
    let mut generator = generator(topology)?;
    generator.send(10)?;
    close_until_death(&daemon, times == 2 || last == "rule_ended")?;
    let daemon = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        daemon.kill()?,
    )?;
    let is_over = |status: &Value| status["firings"][0]["ended"].is_string();
    if daemon.json("/v1/probes/p")["windows"]["newest"] == 1 {
        wait_for_rule(&daemon, "many", |status| {
            status["firings"][0]["done"].is_string()
        })?;
        ensure!(step(&daemon, "q") == "10");
        close(&daemon);
    }
    let status = wait_for_rule(&daemon, "many", is_over)?;
    ensure!(
        status["changed"].is_null() && status["missed"] == 0,
        "{status}"
    );
    ensure!(step(&daemon, "q").is_null());
    for path in ["/v1/rules/many", "/v1/probes/q", "/v1/probes/p"] {
        daemon.delete(path).expect(204);
    }
    drop(daemon.terminate()?);
    Ok(())
}
