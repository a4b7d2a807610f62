//! Windows over HTTP: they are closed, listed, waited for, read again and acknowledged.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::{List, Windows, config, packets};
use twinprobe_tests::{DaemonOptions, scaled, timed};

use crate::scene::{PROBE, Scene};

const FORMATS: [(&str, &str); 3] = [
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("openmetrics", "application/openmetrics-text"),
];

impl Scene {
    fn restart(mut self, signal: i32) -> Result<Self> {
        self.daemon = self.daemon.restart(signal, &DaemonOptions::default())?;
        Ok(self)
    }

    /// Returns the status of a request below `/windows`, and the detail of an error.
    fn ask(&self, method: &str, rest: &str) -> Result<(u16, String)> {
        let answer = self
            .windows
            .request(method, &format!("{PROBE}/windows{rest}"))?;
        let problem = answer.status >= 400;
        let kind = answer.header("content-type").unwrap_or_default();
        ensure!(
            !problem || kind == "application/problem+json",
            "{kind}: {}",
            answer.text()
        );
        let detail = if problem {
            answer.json()["detail"].as_str().unwrap_or_default().into()
        } else {
            String::new()
        };
        Ok((answer.status, detail))
    }
}

/// A window has the same bytes in each format, from the request that closed it on, after restarts
/// and crashes as well.
#[test]
fn a_window_is_the_same_bytes_each_time() -> Result<()> {
    let mut scene = Scene::new(&json!({}))?;
    let mut taken = Vec::new();
    for (seq, (format, media_type)) in (1..).zip(FORMATS) {
        scene.generator.send(100 * seq)?;
        let answer = scene
            .windows
            .request("POST", &format!("{PROBE}/windows?format={format}"))?
            .expect(201);
        assert_eq!(
            answer.header("location"),
            Some(&*format!("{PROBE}/windows/{seq}"))
        );
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with(media_type), "{format}: {kind}");
        taken.push((seq, format, answer.body));
    }
    let document: Value = serde_json::from_slice(&taken[0].2)?;
    assert_eq!(
        (packets(&document), total(&document, "ingress", "live")),
        (100, 100)
    );
    // The other formats of each window.
    for (seq, (format, _)) in (1..=3).flat_map(|seq| FORMATS.map(|format| (seq, format))) {
        let document = scene.windows.bytes(seq, format);
        if let Some((.., known)) = taken.iter().find(|(s, f, _)| (*s, *f) == (seq, format)) {
            assert_eq!(
                String::from_utf8(document)?,
                String::from_utf8_lossy(known),
                "{format} of {seq}"
            );
        } else {
            taken.push((seq, format, document));
        }
    }
    // Later packets change nothing in the window, its live metric included.
    scene.close(7)?;
    for signal in [0, libc::SIGTERM, libc::SIGKILL, libc::SIGKILL] {
        if signal != 0 {
            scene = scene.restart(signal)?;
        }
        for (seq, format, known) in &taken {
            let document = String::from_utf8(scene.windows.bytes(*seq, format))?;
            assert_eq!(
                document,
                String::from_utf8_lossy(known),
                "{format} of {seq} after {signal}"
            );
        }
        assert_eq!(scene.windows.seqs(), [1, 2, 3, 4]);
    }
    assert_eq!(scene.close(5)?["window"]["seq"], 5);
    scene.bystanders.finish()
}

#[test]
fn lists_say_what_comes_after() -> Result<()> {
    let mut scene = Scene::new(&json!({}))?;
    assert_eq!(scene.windows.seqs(), [0; 0]);
    let documents = [scene.close(1)?, scene.close(2)?, scene.close(3)?];
    let list = scene.windows.list("");
    assert_eq!((list.seqs(), list.lost), (vec![1, 2, 3], 0));
    for (listed, document) in list.windows.iter().zip(&documents) {
        assert_eq!(json!(listed.start), document["window"]["start"]);
        assert_eq!(json!(listed.end), document["window"]["end"]);
        assert!(listed.bytes > 0);
    }
    for pair in list.windows.windows(2) {
        assert_eq!(pair[0].end, pair[1].start, "no time is missing");
    }
    let bytes: u64 = list.windows.iter().map(|window| window.bytes).sum();
    let status = scene.daemon.json(PROBE)["windows"].clone();
    let mut expected =
        json!({ "retained": 3, "bytes": bytes, "oldest": 1, "newest": 3, "lost": 0, "damaged": 0 });
    assert_eq!(status, expected);
    expected["revision"] = json!({ "closed": 3, "failed_inserts": 0 });
    let status = scene.daemon.json(&format!("{PROBE}?revision=true"));
    assert!(
        status["windows"] == expected && status["config"].is_object(),
        "{status:#}"
    );
    assert!(scene.daemon.json(&format!("{PROBE}?config=false"))["config"].is_null());
    for (query, seqs) in [
        ("after=0", &[1, 2, 3][..]),
        ("after=2", &[3]),
        ("after=3", &[]),
        ("after=99", &[]),
    ] {
        assert_eq!(scene.windows.list(query).seqs(), seqs, "{query}");
    }
    for rest in [
        "?after=x",
        "?after=-1",
        "?wait=x",
        "?wait=-1",
        "?wait=301",
        "?wait=nan",
        "?collector=c",
    ] {
        assert_eq!(scene.ask("GET", rest)?.0, 400, "{rest}");
    }
    assert_eq!(scene.ask("GET", "/1?format=csv")?.0, 400);
    assert_eq!(scene.ask("POST", "?format=csv")?.0, 400);
    for rest in ["/0", "/4", "/99999999999"] {
        assert_eq!(scene.ask("GET", rest)?.0, 404, "{rest}");
    }
    for rest in ["/x", "/-1"] {
        assert!([400, 404].contains(&scene.ask("GET", rest)?.0), "{rest}");
    }
    // A request that was refused has closed nothing.
    assert_eq!(scene.windows.seqs(), [1, 2, 3]);
    scene.daemon.get("/v1/probes/other/windows").expect(404);
    scene.daemon.get("/v1/probes/other/windows/1").expect(404);
    scene
        .daemon
        .delete("/v1/probes/other/windows/1")
        .expect(404);
    assert_eq!(
        scene
            .daemon
            .request("POST", "/v1/probes/other/windows", &[], b"")
            .status,
        404
    );
    scene.bystanders.finish()
}

/// The client gives up long before the end of such a wait: an answer has another cause.
const LONG: &str = "wait=300";

/// A long poll under way, with the time of its answer.
type Poll = thread::JoinHandle<(Result<List>, Instant)>;

impl Scene {
    fn wait_for_connections(&self, wanted: usize) -> Result<()> {
        wait_for("a connection", PATIENCE, || {
            let now = self.daemon.connections();
            ensure!(now == wanted, "{now} connections");
            Ok(())
        })
    }

    /// Begins a long poll for a window after this one.
    fn poll(&self, after: u64) -> Result<Poll> {
        let windows = self.windows.clone();
        self.wait_for_connections(0)?;
        let poll = thread::spawn(move || {
            (
                windows.try_list(&format!("after={after}&{LONG}")),
                Instant::now(),
            )
        });
        self.wait_for_connections(1)?;
        Ok(poll)
    }
}

/// Closes windows while a client waits for each. Returns the times from each close to the client's
/// answer.
fn answer_polls(scene: &Scene, count: u64) -> Result<Vec<Duration>> {
    let delays = (1..=count).map(|seq| {
        let poll = scene.poll(seq - 1)?;
        scene.windows.close();
        let closed = Instant::now();
        let (list, answered) = poll.join().expect("no panic");
        assert_eq!(list?.seqs(), [seq]);
        Ok(answered.saturating_duration_since(closed))
    });
    delays.collect()
}

#[test]
fn a_long_poll_ends_with_the_next_window() -> Result<()> {
    let scene = Scene::new(&json!({}))?;
    let newest = scaled(20, 200);
    answer_polls(&scene, newest)?;
    // A request that finds a window does not wait. A request that finds none is answered at the end
    // of its wait.
    assert_eq!(
        scene
            .windows
            .list(&format!("after={}&{LONG}", newest - 1))
            .seqs(),
        [newest]
    );
    for wait in [0.3, 0.0] {
        let started = Instant::now();
        assert_eq!(
            scene
                .windows
                .list(&format!("after={newest}&wait={wait}"))
                .seqs(),
            [0; 0]
        );
        assert!(
            started.elapsed() >= Duration::from_secs_f64(wait),
            "{:?} of {wait} s",
            started.elapsed()
        );
    }
    let deleted = scene.poll(newest)?;
    scene.daemon.delete(PROBE).expect(204);
    let error = deleted
        .join()
        .expect("no panic")
        .0
        .err()
        .context("an error")?;
    assert!(error.to_string().starts_with("404: "), "{error}");
    // A daemon that is stopped does not wait for long polls.
    scene
        .daemon
        .put(PROBE, &config(&json!({}), &[]))
        .expect(201);
    let stopped = scene.poll(0)?;
    let Scene {
        daemon, bystanders, ..
    } = scene;
    bystanders.finish()?;
    ensure!(daemon.terminate()?.0.success());
    let _ = stopped.join().expect("no panic");
    Ok(())
}

#[timed(
    "it measures the time from the end of a window to the answer of a client that waits for it"
)]
fn a_long_poll_is_answered_at_once() -> Result<()> {
    let scene = Scene::new(&json!({}))?;
    let mut delays = answer_polls(&scene, scaled(20, 200))?;
    delays.sort();
    let (median, most) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!("answered {median:?} after the close, {most:?} at most");
    assert!(
        median < Duration::from_millis(50) && most < Duration::from_secs(1),
        "{delays:?}"
    );
    scene.bystanders.finish()
}

#[test]
fn what_is_acknowledged_is_gone() -> Result<()> {
    let mut scene = Scene::new(&json!({}))?;
    for count in 1..=5 {
        scene.close(count)?;
    }
    assert_eq!(scene.ask("DELETE", "/2")?.0, 204);
    for round in 0..3 {
        let list = scene.windows.list("");
        assert_eq!(
            (list.seqs(), list.lost),
            (vec![3, 4, 5], 0),
            "round {round}"
        );
        for seq in 1..=2 {
            let (status, detail) = scene.ask("GET", &format!("/{seq}"))?;
            assert!(
                status == 404 && detail.contains("acknowledged"),
                "{status}: {detail}"
            );
        }
        // An acknowledgement of the same or an earlier window changes nothing; an acknowledgement
        // of a later window is refused.
        for (seq, status) in [(2, 204), (1, 204), (6, 404), (1_000_000, 404)] {
            assert_eq!(scene.ask("DELETE", &format!("/{seq}"))?.0, status, "{seq}");
        }
        assert_eq!(scene.ask("DELETE", "/3?collector=nobody")?.0, 400);
        if round < 2 {
            scene = scene.restart([libc::SIGTERM, libc::SIGKILL][round])?;
        }
    }
    assert_eq!(scene.ask("DELETE", "/5")?.0, 204);
    let list = scene.windows.list("");
    assert_eq!((list.seqs(), list.lost), (vec![], 0));
    let mut scene = scene.restart(libc::SIGKILL)?;
    assert_eq!(scene.windows.seqs(), [0; 0]);
    assert_eq!(scene.close(6)?["window"]["seq"], 6);
    assert_eq!(scene.windows.seqs(), [6]);
    scene.bystanders.finish()
}

#[test]
fn a_window_goes_once_all_collectors_have_acknowledged_it() -> Result<()> {
    let mut scene = Scene::new(&json!({ "collectors": ["a", "b"] }))?;
    for count in 1..=4 {
        scene.close(count)?;
    }
    let seqs = |scene: &Scene| {
        ["", "collector=a", "collector=b", "collector=a&after=0"]
            .map(|query| scene.windows.list(query).seqs())
    };
    scene.windows.acknowledge(2, Some("a"))?.expect(204);
    assert_eq!(
        seqs(&scene),
        [
            vec![1, 2, 3, 4],
            vec![3, 4],
            vec![1, 2, 3, 4],
            vec![1, 2, 3, 4]
        ]
    );
    scene.windows.acknowledge(1, Some("b"))?.expect(204);
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        assert_eq!(
            seqs(&scene),
            [vec![2, 3, 4], vec![3, 4], vec![2, 3, 4], vec![2, 3, 4]]
        );
        // A smaller number does not take an acknowledgement back.
        scene.windows.acknowledge(1, Some("a"))?.expect(204);
        for query in ["?collector=c", "?collector="] {
            assert_eq!(scene.ask("GET", query)?.0, 400, "{query}");
            assert_eq!(
                scene.ask("DELETE", &format!("/2{query}"))?.0,
                400,
                "{query}"
            );
        }
        scene = scene.restart(signal)?;
    }
    assert_eq!(scene.ask("DELETE", "/5?collector=b")?.0, 404);
    scene.windows.acknowledge(4, Some("b"))?.expect(204);
    assert_eq!(seqs(&scene), [vec![3, 4], vec![3, 4], vec![], vec![3, 4]]);
    // An acknowledgement without a name is for all collectors.
    scene.windows.acknowledge(3, None)?.expect(204);
    assert_eq!(seqs(&scene), [vec![4], vec![4], vec![], vec![4]]);
    scene.windows.acknowledge(4, None)?.expect(204);
    assert!(seqs(&scene).iter().all(Vec::is_empty), "{:?}", seqs(&scene));
    assert_eq!(scene.windows.list("").lost, 0);
    scene.bystanders.finish()
}

#[test]
fn without_snapshots_there_are_no_windows() -> Result<()> {
    let scene = Scene::new(&json!({}))?;
    let mut live = counter_config("mon0", "XDP_PASS");
    live["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    scene.daemon.put("/v1/probes/live", &live).expect(201);
    let answer = scene
        .daemon
        .request("POST", "/v1/probes/live/windows", &[], b"")
        .expect(409);
    assert!(
        answer.json()["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("snapshot")),
        "{}",
        answer.text()
    );
    assert_eq!(Windows::of(&scene.daemon, "live").seqs(), [0; 0]);
    assert_eq!(
        scene.daemon.json("/v1/probes/live/metrics").get("window"),
        None
    );
    scene.bystanders.finish()
}

/// The schedule closes windows and readers do not: readers get the newest window, and live metrics
/// as they are.
#[test]
fn with_an_interval_a_reading_closes_nothing() -> Result<()> {
    let mut scene = Scene::new(&json!({ "interval": "1h" }))?;
    scene.close(100)?;
    for read in 1..=3 {
        scene.generator.send(10)?;
        let document = scene.daemon.json(&format!("{PROBE}/metrics"));
        assert_eq!(
            (&document["window"]["seq"], packets(&document)),
            (&json!(1), 100)
        );
        assert_eq!(total(&document, "ingress", "live"), 100 + 10 * read);
    }
    assert_eq!(scene.windows.seqs(), [1]);
    assert_eq!(packets(&scene.windows.close()), 30);
    assert_eq!(scene.windows.seqs(), [1, 2]);
    scene.bystanders.finish()
}
