//! Samples: each probe sees the share of the packets that it asks for, independent of others at the
//! hook.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::attachments::tc_counter;
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::sample::{counter_config, total, window};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const PACKETS: u64 = 400_000;

/// Returns a counter at XDP that sees one packet in `sample`.
fn sampled(verdict: &str, priority: i64, sample: Option<u64>) -> Value {
    let mut config = counter_config("mon0", verdict);
    config["priority"] = json!(priority);
    if let Some(sample) = sample {
        config["ingress"]["sample"] = json!(sample);
    }
    config
}

/// Checks that `count` is the size of a sample of one in `one_in` packets, within six standard
/// deviations.
#[track_caller]
fn check(count: u64, packets: u64, one_in: f64) {
    let (mean, part) = (packets as f64 / one_in, 1.0 / one_in);
    let deviation = (packets as f64 * part * (1.0 - part)).sqrt();
    assert!(
        (count as f64 - mean).abs() <= 6.0 * deviation,
        "{count} of {packets}, one in {one_in}"
    );
}

fn counted(document: &Value) -> u64 {
    total(document, "ingress", "packets")
}

#[test]
fn each_probe_sees_its_part() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let probes = [
        ("all", None),
        ("one", Some(1)),
        ("ten", Some(10)),
        ("many", Some(100_000)),
        ("huge", Some(u64::from(u32::MAX))),
    ];
    for (priority, (probe, sample)) in probes.iter().enumerate() {
        daemon
            .put(
                &format!("/v1/probes/{probe}"),
                &sampled("XDP_DROP", priority as i64, *sample),
            )
            .expect(201);
    }
    // The last probe drops the packets of its sample.
    let mut dropping = sampled("XDP_DROP", 100, Some(4));
    dropping["ingress"]["verdict"] = json!("enforce");
    daemon.put("/v1/probes/dropping", &dropping).expect(201);
    let passed = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    for round in 1..=2 {
        generator.send(PACKETS)?;
        let documents = probes.map(|(probe, sample)| {
            let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
            let expected = sample.map(Value::from);
            assert_eq!(
                document["ingress"]["packets"].get("sample"),
                expected.as_ref(),
                "{document}"
            );
            document
        });
        let [all, one, ten, many, huge] = documents.map(|document| counted(&document));
        assert_eq!((all, one), (PACKETS, PACKETS));
        check(ten, PACKETS, 10.0);
        assert!(many < 40 && huge < 2, "{many} {huge}");
        let dropped = counted(&daemon.json("/v1/probes/dropping/metrics"));
        check(dropped, PACKETS, 4.0);
        let passed = passed.packets()?;
        // The next daemon adopts the dispatcher with its samples.
        if round == 1 {
            assert_eq!(passed, PACKETS - dropped, "what is not chosen passes");
            daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        }
    }
    let page = daemon.get("/metrics");
    assert!(
        page.text()
            .contains("twinprobe_probe_sample{probe=\"ten\",direction=\"ingress\"} 10"),
        "{}",
        page.text()
    );
    let windows = Windows::of(&daemon, "ten");
    let xml = String::from_utf8(windows.bytes(2, "xml"))?;
    assert!(xml.contains(" sample=\"10\""), "{xml}");
    // A replacement has a sample of its own; no window mixes samples.
    generator.send(PACKETS)?;
    daemon
        .put("/v1/probes/ten", &sampled("XDP_DROP", 2, Some(2)))
        .expect(200);
    generator.send(PACKETS)?;
    for (seq, one_in) in [(2, 10), (3, 10), (4, 2)] {
        let document = if seq == 4 {
            windows.close()
        } else {
            windows.get(seq)
        };
        assert_eq!(document["window"]["seq"], seq);
        assert_eq!(document["ingress"]["packets"]["sample"], one_in);
        check(counted(&document), PACKETS, f64::from(one_in));
    }
    Ok(())
}

/// Each direction of a probe has its own samples.
#[test]
fn directions_are_sampled_apart() -> Result<()> {
    let topology = Topology::new()?;
    let _forward = topology.forward_to_egress()?;
    let daemon = Daemon::start(topology.monitor())?;
    let direction = |hook: &str, sample: u64| json!({ "hook": hook, "source": tc_counter("-1"), "sample": sample, "metrics": [window("packets", "packets")] });
    let config = json!({ "interfaces": ["mon0", "mon1"], "ingress": direction("tc", 8), "egress": direction("tc", 3) });
    daemon.put("/v1/probes/p", &config).expect(201);
    let sent = Counter::attach(topology.monitor(), "mon1", Place::TcEgress)?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    generator.send(PACKETS / 4)?;
    let document = daemon.json("/v1/probes/p/metrics");
    let samples =
        ["ingress", "egress"].map(|direction| document[direction]["packets"]["sample"].clone());
    assert_eq!(samples, [json!(8), json!(3)]);
    check(total(&document, "ingress", "packets"), PACKETS / 4, 8.0);
    check(total(&document, "egress", "packets"), sent.packets()?, 3.0);
    Ok(())
}

/// A metric that adds up or is read live continues over a change of the sample, with a warning.
#[test]
fn sums_of_two_samples_are_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    for (probe, snapshot, on_replace) in [
        ("sum", true, "carry"),
        ("live", false, "carry"),
        ("anew", true, "reset"),
    ] {
        let path = format!("/v1/probes/{probe}");
        let mut config = sampled("XDP_PASS", 0, None);
        config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets", "snapshot": snapshot, "on_replace": on_replace }]);
        daemon.put(&path, &config).expect(201);
        generator.send(100)?;
        // A sample of one packet in one has all packets.
        config["ingress"]["sample"] = json!(1);
        assert_eq!(
            daemon.put(&path, &config).expect(200).json()["warnings"],
            json!([])
        );
        config["ingress"]["sample"] = json!(u32::MAX);
        let warnings = daemon.put(&path, &config).expect(200).json()["warnings"].clone();
        generator.send(100)?;
        let kept = counted(&daemon.json(&format!("{path}/metrics")));
        if on_replace == "reset" {
            assert_eq!((&warnings, kept), (&json!([]), 0));
            continue;
        }
        assert_eq!(
            (&warnings[0]["field"], kept),
            (&json!("ingress.sample"), 100),
            "{warnings}"
        );
        let message = warnings[0]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("one packet in 1, ") && message.contains("one in 4294967295 now"),
            "{message}"
        );
    }
    Ok(())
}
