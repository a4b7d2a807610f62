//! Retention: the windows that are kept, and the reports of those that were removed.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::layouts::{Layout, Reading, field};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::{Windows, config, packets};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Store, Topology};

const PROBE: &str = "/v1/probes/p";

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

fn bytes(windows: &Windows) -> u64 {
    windows
        .list("")
        .windows
        .iter()
        .map(|window| window.bytes)
        .sum()
}

/// Returns the number of lost windows that a document reports.
fn lost_before(document: &Value) -> u64 {
    document["window"]
        .get("lost_windows")
        .map_or(0, |lost| lost.as_u64().expect("a number"))
}

fn status(daemon: &Daemon, probe: &str) -> Value {
    daemon.json(&format!("/v1/probes/{probe}"))["windows"].clone()
}

#[test]
fn the_oldest_goes_when_there_are_too_many() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology)?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let retain = |retain: u64| config(&json!({ "retain": retain, "collectors": ["archive"] }), &[]);
    daemon.put(PROBE, &retain(3)).expect(201);
    let windows = Windows::of(&daemon, "p");
    let mut told = 0;
    for seq in 1..=8 {
        generator.send(seq)?;
        let document = windows.close();
        assert_eq!(packets(&document), seq);
        told += lost_before(&document);
        assert_eq!(
            windows.seqs(),
            (seq.saturating_sub(2).max(1)..=seq).collect::<Vec<_>>()
        );
        let lost = windows.list("").lost;
        assert_eq!(lost, seq.saturating_sub(3));
        // A removed window is reported by the window that took its place, or by the next window.
        assert!(
            told == lost || told + 1 == lost,
            "window {seq}: {told} of {lost}"
        );
        assert_eq!(status(&daemon, "p")["lost"], lost);
        // The report is the same in other formats and at each reading.
        assert_eq!(windows.get(seq), document);
        if lost_before(&document) > 0 {
            let xml = String::from_utf8(windows.bytes(seq, "xml"))?;
            assert!(xml.contains(" lost_windows=\"1\""), "{xml}");
        }
    }
    assert!(told >= 4, "the documents told of {told} lost windows");
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        daemon = daemon.restart(signal, &DaemonOptions::default())?;
        for (query, lost) in [
            ("after=0", 5),
            ("after=2", 3),
            ("after=4", 1),
            ("after=5", 0),
            ("after=8", 0),
        ] {
            assert_eq!(windows.list(query).lost, lost, "{query}");
        }
        assert_eq!(status(&daemon, "p")["lost"], 5);
        let gone = windows.try_get(2)?.expect(404).json();
        assert!(
            gone["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("lost")),
            "{gone}"
        );
    }
    // An acknowledged window does not count as lost.
    windows.acknowledge(8, None)?.expect(204);
    for _ in 0..3 {
        windows.close();
    }
    let list = windows.list("");
    assert_eq!((list.seqs(), list.lost), (vec![9, 10, 11], 5));
    // A replacement with a smaller `retain` removes windows.
    daemon.put(PROBE, &retain(1)).expect(200);
    windows.close();
    let list = windows.list("after=8");
    assert_eq!((list.seqs(), list.lost), (vec![12], 3));
    bystanders.finish()
}

/// The oldest windows are removed when all are too large; the newest one stays, however large it
/// is.
#[test]
fn the_oldest_goes_when_they_are_too_large() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let collectors = ["archive"];
    daemon
        .put(
            PROBE,
            &config(&json!({ "retain_bytes": 1, "collectors": collectors }), &[]),
        )
        .expect(201);
    let windows = Windows::of(&daemon, "p");
    for seq in 1..=3 {
        windows.close();
        let list = windows.list("");
        assert_eq!((list.seqs(), list.lost), (vec![seq], seq - 1));
    }
    // The budget has room for two and a half windows.
    let budget = bytes(&windows) * 5 / 2;
    daemon
        .put(PROBE, &config(&json!({ "retain_bytes": budget }), &[]))
        .expect(200);
    for seq in 4..=9 {
        windows.close();
        assert_eq!(
            windows.seqs(),
            [seq - 1, seq],
            "of {budget} bytes, {} are used",
            bytes(&windows)
        );
        assert!(bytes(&windows) <= budget);
    }
    bystanders.finish()
}

/// The oldest window of all probes is removed first, and each probe's newest window stays.
#[test]
fn all_probes_share_a_budget() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let observing = |priority: i64| {
        let mut config = config(&json!({ "collectors": ["archive"] }), &[]);
        config["ingress"]["verdict"] = json!("observe");
        config["priority"] = json!(priority);
        config
    };
    let probes = ["a", "b", "c"];
    for (probe, priority) in probes.iter().zip(0..) {
        daemon
            .put(&format!("/v1/probes/{probe}"), &observing(priority))
            .expect(201);
    }
    let all = probes.map(|probe| Windows::of(&daemon, probe));
    all[0].close();
    let budget = bytes(&all[0]) * 11 / 2;
    let options = DaemonOptions::default()
        .argument("--retain-bytes")
        .argument(budget.to_string());
    let daemon = daemon.restart(libc::SIGTERM, &options)?;
    all[1].close();
    all[2].close();
    all[2].close();
    assert_eq!(
        all.each_ref().map(|windows| windows.seqs().len()),
        [1, 1, 2]
    );
    for _ in 0..10 {
        all[0].close();
        let used: u64 = all.iter().map(bytes).sum();
        assert!(used <= budget, "{used} bytes of {budget}");
    }
    // The first window of the probe c was older than the present windows of a. The only window of b
    // stays.
    assert_eq!(
        all.each_ref().map(Windows::seqs),
        [vec![9, 10, 11], vec![1], vec![2]]
    );
    assert_eq!(
        all.each_ref().map(|windows| windows.list("").lost),
        [8, 0, 1]
    );
    assert_eq!(
        probes.map(|probe| status(&daemon, probe)["lost"].clone()),
        [8, 0, 1].map(|lost| json!(lost))
    );
    // The deletion of a probe makes room.
    daemon.delete("/v1/probes/b").expect(204);
    all[0].close();
    assert_eq!(all[0].seqs(), [9, 10, 11, 12]);
    Ok(())
}

#[test]
fn windows_outlive_a_replacement_and_not_a_deletion() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology)?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let windows = Windows::of(&daemon, "p");
    let count = |document: &Value| field(document, "in_array", "/packets");
    let mut taken = Vec::new();
    for (layout, code) in (0..4).zip([201, 200, 200, 200]) {
        daemon
            .put(
                PROBE,
                &Layout {
                    layout,
                    ..Layout::new(Reading::Window)
                }
                .config(),
            )
            .expect(code);
        generator.send(100)?;
        assert_eq!(count(&windows.close()), 100);
        let seq = u64::from(layout) + 1;
        let fields = windows.get(seq)["ingress"]["in_array"]["entries"][0]["value"].clone();
        let names: Vec<String> = fields
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.keys().cloned())
            .collect();
        taken.push((
            seq,
            names,
            windows.bytes(seq, "json"),
            windows.bytes(seq, "xml"),
        ));
    }
    for (layout, (_, names, ..)) in taken.iter().enumerate() {
        assert!(
            taken
                .iter()
                .enumerate()
                .all(|(other, (_, n, ..))| other == layout || n != names),
            "{names:?}"
        );
    }
    // A replacement whose maps can't take the open window's counts closes the window first.
    let warnings = daemon
        .put(PROBE, &config(&json!({}), &[]))
        .expect(200)
        .json()["warnings"]
        .to_string();
    assert!(
        warnings.contains("the old content is in window 5, which was closed for it"),
        "{warnings}"
    );
    for signal in [0, libc::SIGKILL, libc::SIGTERM] {
        if signal != 0 {
            daemon = daemon.restart(signal, &DaemonOptions::default())?;
        }
        for (seq, _, json, xml) in &taken {
            assert!(
                windows.bytes(*seq, "json") == *json && windows.bytes(*seq, "xml") == *xml,
                "window {seq}"
            );
        }
    }
    generator.send(10)?;
    let document = windows.close();
    assert_eq!(
        (&document["window"]["seq"], packets(&document)),
        (&json!(6), 10)
    );
    windows.acknowledge(2, None)?.expect(204);
    assert_eq!(windows.seqs(), [3, 4, 5, 6]);
    let rows = || Store::open(&daemon.directories())?.rows("p");
    let kept = rows()?;
    assert!(kept >= 4, "{kept} rows of four windows");
    daemon.delete(PROBE).expect(204);
    windows.try_get(3)?.expect(404);
    assert!(windows.try_list("").is_err());
    assert_eq!(rows()?, 0, "something is left");
    // Another probe of the same name begins with new windows.
    daemon.put(PROBE, &config(&json!({}), &[])).expect(201);
    assert_eq!(windows.seqs(), [0; 0]);
    windows.try_get(3)?.expect(404);
    assert_eq!(windows.close()["window"]["seq"], 1);
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    assert_eq!(windows.seqs(), [1]);
    daemon.delete(PROBE).expect(204);
    bystanders.finish()
}
