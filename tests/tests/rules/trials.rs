//! Rules over captured packets: windows by the times of the packets, and refusals.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::traffic::Frame;
use twinprobe_tests::{Daemon, DaemonOptions, Topology, replays};

use crate::scene::rule;

const START: u64 = 1_700_000_000_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// Returns a capture with a packet at each of these milliseconds.
fn capture(milliseconds: &[u64]) -> Vec<u8> {
    let frame = Frame::default();
    replays::pcap(
        milliseconds
            .iter()
            .map(|at| (START + at * MILLISECOND, frame.bytes())),
    )
}

fn request(daemon: &Daemon, query: &str, parts: &[(&str, &[u8])]) -> twinprobe_tests::Response {
    replays::request(daemon, &format!("/v1/replay/rule{query}"), parts)
}

/// A packet at the border of two windows belongs to one of them. Windows without packets are judged
/// as well.
#[test]
fn windows_end_by_the_times_of_the_packets() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut config = counter_config("mon0", "XDP_PASS");
    let mut rule = rule(&json!([{ "mark": "{{sum(ingress.packets)}} in {{window.seconds}} s" }]));
    rule["when"] = json!("sum(ingress.packets) >= 2");
    rule["until"] = json!("sum(ingress.packets) < 2");
    let (rule, text) = (rule.to_string(), config.to_string());
    // Windows of 100 ms: three packets, none, one, none, two; one comes late and counts where it
    // comes.
    let capture = capture(&[0, 50, 99, 200, 400, 499, 300]);
    let parts = [
        ("rule", rule.as_bytes()),
        ("config", text.as_bytes()),
        ("capture", &capture[..]),
    ];
    let report = request(&daemon, "?interval=100ms", &parts)
        .expect(200)
        .json();
    let of = |report: &Value| -> Vec<Value> {
        let decisions = report["decisions"].as_array().cloned().unwrap_or_default();
        decisions
            .iter()
            .map(|of| json!([of["window"], of["decision"], of["do"][0]["mark"]]))
            .collect()
    };
    let expected = json!([
        [1, "fire", "3 in 0.1 s"],
        [2, "end", null],
        [5, "fire", "3 in 0.1 s"]
    ]);
    ensure!(
        json!(of(&report)) == expected && report["windows"] == 5,
        "{report}"
    );
    ensure!(
        report["decisions"][0]["time"] == "2023-11-14T22:13:20.100000000Z",
        "{report}"
    );
    // The length from the configuration, and the default.
    let report = request(&daemon, "", &parts).expect(200).json();
    ensure!(
        json!(of(&report)) == json!([[1, "fire", "7 in 1 s"]]),
        "{report}"
    );
    config["window"] = json!({ "interval": "250ms" });
    let text = config.to_string();
    let parts = [
        ("rule", rule.as_bytes()),
        ("config", text.as_bytes()),
        ("capture", &capture[..]),
    ];
    let report = request(&daemon, "", &parts).expect(200).json();
    ensure!(report["windows"] == 2, "{report}");
    // The running probe with the name that the rule watches, and another one.
    for name in ["p", "q"] {
        daemon
            .put(
                &format!("/v1/probes/{name}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
        let parts = [("rule", rule.as_bytes()), ("capture", &capture[..])];
        let query = if name == "p" { "" } else { "?probe=q" };
        let report = request(&daemon, query, &parts).expect(200).json();
        ensure!(
            report["probe"] == name && report["windows"] == 1,
            "{report}"
        );
    }
    ensure!(
        daemon.json("/v1/probes/p")["windows"]["newest"].is_null(),
        "no window of the probe was closed"
    );
    Ok(())
}

#[test]
fn what_can_not_be_tried_is_refused_with_its_place() -> Result<()> {
    let topology = Topology::new()?;
    let audit = tempfile::tempdir()?;
    let log = audit.path().join("audit");
    let options = DaemonOptions::default()
        .argument("--audit-log")
        .argument(log.as_os_str());
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let config = counter_config("mon0", "XDP_PASS").to_string();
    let good = rule(&json!([{ "mark": "many" }]));
    let with = |field: &str, value: Value| {
        let mut rule = good.clone();
        rule[field] = value;
        rule.to_string()
    };
    let good = good.to_string();
    let (short, long, none) = (capture(&[0, 50]), capture(&[0, 3_600_000]), capture(&[]));
    let bad = with("when", json!("sum(ingress.bytes) > 1"));
    let unknown = with("watch", json!("none"));
    for (query, rule, has_config, capture, field, message) in [
        ("", &bad, true, &short, "when", "bytes"),
        (
            "",
            &unknown,
            false,
            &short,
            "watch",
            "no probe none runs here",
        ),
        (
            "?interval=often",
            &good,
            true,
            &short,
            "window.interval",
            "often",
        ),
        (
            "?interval=100ms",
            &good,
            true,
            &long,
            "interval",
            "more than 10000 windows",
        ),
        ("", &good, true, &none, "capture", "has no packet"),
        ("", &good, true, &b"no capture".to_vec(), "capture", ""),
    ] {
        let mut parts = vec![("rule", rule.as_bytes()), ("capture", &capture[..])];
        parts.extend(has_config.then_some(("config", config.as_bytes())));
        let answer = request(&daemon, query, &parts).expect(422).json();
        let error = &answer["errors"][0];
        let said = error["message"].as_str().unwrap_or_default();
        ensure!(
            error["field"] == field && said.contains(message),
            "{field}: {answer}"
        );
    }
    for (parts, said) in [
        (&[("capture", &short[..])][..], "the part rule is missing"),
        (&[("rule", good.as_bytes())], "the part capture is missing"),
        (&[("rule", b"{"), ("capture", &short[..])], ""),
        (
            &[("rules", good.as_bytes())],
            "config, capture, egress-capture, local, rule are",
        ),
    ] {
        let answer = request(&daemon, "", parts).expect(400).json();
        ensure!(
            answer["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains(said)),
            "{said}: {answer}"
        );
    }
    let lines = std::fs::read_to_string(&log)?;
    ensure!(lines.contains("POST /v1/replay/rule"), "{lines}");
    Ok(())
}
