//! `init` without `snapshot`, and queues with neither: a reading of such maps gives a window, as
//! with a snapshot, but packets change the maps meanwhile.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::traffic::Load;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, scaled};

use crate::init_scene::{Account, COUNTED, PROBES, Scene, config, metrics_of};

/// Each GET closes a window, which stays as it is, and takes every packet once.
#[test]
fn a_reading_is_a_window() -> Result<()> {
    let mut scene = Scene::new(&Value::Null, &json!({}))?;
    for seq in 1..=3_u64 {
        scene.send(1000 * seq)?;
        for probe in PROBES {
            let document = scene.read(probe);
            assert_eq!(document["window"]["seq"], seq, "{probe}");
            let mut account = Account::default();
            account.add(&document);
            for (name, counted) in &account.counted {
                assert_eq!(*counted, 1000 * seq, "{probe}: {name} in window {seq}");
            }
            assert_eq!(
                scene
                    .daemon
                    .json(&format!("/v1/probes/{probe}/windows/{seq}")),
                document
            );
        }
    }
    assert_eq!(
        scene.read("counts")["window"]["quiesce_us"],
        0,
        "it has no twins to wait for"
    );
    for probe in PROBES {
        scene.account(probe).check(probe, scene.sent)?;
    }
    scene.bystanders.finish()
}

/// A client that hangs up leaves its window to the next GET, also to one of the next daemon: the
/// same bytes.
#[test]
fn a_client_that_hangs_up_takes_nothing_along() -> Result<()> {
    // So many keys make a document that is larger than the buffer of a socket.
    let keys = json!({ "KEYS": "6000" });
    let mut scene = Scene::new(&Value::Null, &keys)?;
    scene.send(12_000)?;
    let metrics = PROBES.map(metrics_of);
    // The daemon may not have noticed yet that the earlier client has hung up: then it closes
    // another, short window for this client.
    let hang_up = |scene: &Scene, path: &str, bytes| {
        wait_for("an answer that is cut off", PATIENCE, || {
            ensure!(
                http::take(&scene.daemon.address(), "GET", path, bytes)?,
                "{path} has {bytes} bytes"
            );
            Ok(())
        })
    };
    for path in &metrics {
        for bytes in [1, 300, 70_000] {
            hang_up(&scene, path, bytes)?;
        }
    }
    scene.send(10)?;
    scene = scene.restart(&DaemonOptions::default())?;
    for path in &metrics {
        hang_up(&scene, path, 70_000)?;
    }
    for (probe, path) in PROBES.iter().zip(&metrics) {
        let windows = Windows::of(&scene.daemon, probe);
        let given = wait_for("the first window", PATIENCE, || {
            let answer = scene.daemon.get(path).expect(200);
            let seq = answer.json()["window"]["seq"].clone();
            ensure!(seq == 1, "{probe}: window {seq}");
            Ok(answer.body)
        })?;
        ensure!(
            given == windows.bytes(1, "json"),
            "{probe}: window 1 is another one now"
        );
        windows.close();
        scene.account(probe).check(probe, scene.sent)?;
    }
    scene.bystanders.finish()
}

/// The clock reads and resets with an interval. GET removes nothing.
///
/// An array that packets change is copied and then reset, and packets between the two are lost.
/// Therefore the daemon has a clock that the test lets pass a full hour while no packet comes.
#[test]
fn the_clock_reads_and_resets() -> Result<()> {
    const HOUR: u64 = 3600;
    let window = json!({ "interval": "1h", "align": true, "retain": 1000 });
    let mut scene = Scene::new(&window, &json!({}))?;
    let temporary = tempfile::tempdir()?;
    let offset = temporary.path().join("offset");
    let set_clock = |seconds: u64| -> Result<()> {
        let new = temporary.path().join("new");
        let ahead = Duration::from_secs(seconds) - SystemTime::now().duration_since(UNIX_EPOCH)?;
        fs::write(&new, ahead.as_nanos().to_string())?;
        Ok(fs::rename(new, &offset)?)
    };
    let mut hour = (SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / HOUR + 2) * HOUR;
    set_clock(hour + 10)?;
    scene =
        scene.restart(&DaemonOptions::default().environment("TWINPROBE_CLOCK_OFFSET", &offset))?;
    let newest = |scene: &Scene| {
        PROBES.map(|probe| {
            scene.daemon.json(&format!("/v1/probes/{probe}"))["windows"]["newest"].clone()
        })
    };
    for _ in 0..5 {
        scene.send(700)?;
        let before = newest(&scene);
        hour += HOUR;
        set_clock(hour + 10)?;
        wait_for("the end of a window", PATIENCE, || {
            let now = newest(&scene);
            ensure!(
                now.iter().zip(&before).all(|(now, before)| now != before),
                "{now:?}"
            );
            Ok(())
        })?;
        for probe in PROBES {
            let document = scene.read(probe);
            if let Some(seq) = document["window"]["seq"].as_u64() {
                let mut stored = scene
                    .daemon
                    .json(&format!("/v1/probes/{probe}/windows/{seq}"));
                let mut shown = document.clone();
                for document in [&mut shown, &mut stored] {
                    // `live` is read at the time of the request.
                    document["ingress"]
                        .as_object_mut()
                        .context("metrics")?
                        .remove("live");
                }
                assert_eq!(shown, stored, "{probe}");
            }
        }
        let live =
            scene.read("mixed")["ingress"]["live"]["entries"][0]["value"]["packets"].as_u64();
        assert_eq!(
            live,
            Some(scene.sent),
            "a map that is not reset is shown as it is now"
        );
    }
    for probe in PROBES {
        scene.account(probe).check(probe, scene.sent)?;
        let status = scene.daemon.json(&format!("/v1/probes/{probe}"));
        assert_eq!(status["windows"]["lost"], 0, "{status}");
    }
    scene.bystanders.finish()
}

/// An interval needs a metric that is reset. The daemon knows only after the compilation which maps
/// are queues.
#[test]
fn an_interval_needs_something_to_reset() -> Result<()> {
    let scene = Scene::new(&Value::Null, &json!({}))?;
    let mut live = config("queues", &json!({ "interval": "1s" }), &json!({}));
    scene.daemon.put("/v1/probes/timed", &live).expect(201);
    live["ingress"]["metrics"] = json!([{ "name": "live", "map": "live" }]);
    for (method, path, body) in [
        ("PUT", "/v1/probes/timed", &live),
        ("POST", "/v1/validate", &live),
    ] {
        let answer = scene
            .daemon
            .request(method, path, &[], body.to_string().as_bytes())
            .expect(422)
            .json();
        let finding = &answer["errors"][0];
        assert_eq!(finding["field"], "window.interval", "{answer}");
        ensure!(
            finding["message"]
                .as_str()
                .is_some_and(|text| text.contains("resets nothing")),
            "{answer}"
        );
    }
    scene.daemon.put("/v1/probes/untimed", &{
        live.as_object_mut()
            .context("a configuration")?
            .remove("window");
        live
    });
    let refused = scene
        .daemon
        .request("POST", "/v1/probes/untimed/windows", &[], b"")
        .expect(409);
    ensure!(
        refused.text().contains("resets nothing"),
        "{}",
        refused.text()
    );
    ensure!(scene.read("untimed").get("window").is_none());
    scene.bystanders.finish()
}

/// A scrape takes no counts from other readers: for metrics that are reset it shows the last
/// window.
#[test]
fn a_scrape_shows_the_last_window() -> Result<()> {
    let mut scene = Scene::new(&Value::Null, &json!({}))?;
    for round in 1..=3 {
        scene.send(640)?;
        for probe in PROBES {
            scene
                .daemon
                .request("POST", &format!("/v1/probes/{probe}/windows"), &[], b"")
                .expect(201);
        }
        let page = scene.daemon.get("/metrics").expect(200).text().to_owned();
        assert_eq!(
            closed_windows(scene.daemon.get("/metrics").expect(200).text()),
            closed_windows(&page)
        );
        for probe in ["counts", "mixed"] {
            for metric in COUNTED {
                let prefix = format!("{metric}_packets{{");
                let lines = page.lines().filter(|line| {
                    line.starts_with(&prefix) && line.contains(&format!("probe=\"{probe}\""))
                });
                let values = lines.map(|line| {
                    line.rsplit(' ')
                        .next()
                        .and_then(|value| value.parse::<u64>().ok())
                });
                let sum: Option<u64> = values.sum();
                assert_eq!(sum, Some(640), "{probe} {metric}, round {round}:\n{page}");
            }
        }
    }
    for probe in PROBES {
        scene.account(probe).check(probe, scene.sent)?;
        assert_eq!(
            scene.daemon.json(&format!("/v1/probes/{probe}/windows"))["windows"]
                .as_array()
                .map(Vec::len),
            Some(3)
        );
    }
    scene.bystanders.finish()
}

/// The lines of a page that count closed windows.
fn closed_windows(page: &str) -> Vec<String> {
    page.lines()
        .filter(|line| line.starts_with("twinprobe_windows_closed_total"))
        .map(str::to_owned)
        .collect()
}

/// The oldest windows are removed when there are more than may be retained. No collector is named,
/// so they do not count as lost.
#[test]
fn windows_are_retained_within_limits() -> Result<()> {
    let mut scene = Scene::new(&json!({ "retain": 2 }), &json!({}))?;
    for probe in PROBES {
        let windows = Windows::of(&scene.daemon, probe);
        for _ in 0..4 {
            scene.send(10)?;
            windows.close();
        }
        assert_eq!(windows.seqs(), [3, 4], "{probe}");
        windows.close();
        let status = scene.daemon.json(&format!("/v1/probes/{probe}"));
        assert_eq!(
            (&status["windows"]["retained"], &status["windows"]["lost"]),
            // No collector was named for the removed windows.
            (&json!(2), &json!(0)),
            "{probe}"
        );
    }
    scene.bystanders.finish()
}

/// A replacement continues with the same maps, with values of another form, and closes the window
/// before metrics that can't continue.
#[test]
fn a_replacement_goes_on() -> Result<()> {
    let mut scene = Scene::new(&Value::Null, &json!({}))?;
    let wide = json!({ "WIDE": "1" });
    let lru = json!({ "WIDE": "1", "HASH": "BPF_MAP_TYPE_LRU_HASH" });
    for (defines, window) in [
        (json!({}), Value::Null),
        (wide, json!({ "retain": 50 })),
        (lru, Value::Null),
    ] {
        scene.send(500)?;
        for probe in PROBES {
            let status = scene
                .daemon
                .put(
                    &format!("/v1/probes/{probe}"),
                    &config(probe, &window, &defines),
                )
                .expect(200)
                .json();
            if defines.get("HASH").is_some() && probe != "queues" {
                let warnings = status["warnings"].to_string();
                ensure!(
                    warnings.contains("metric in_hash begins anew"),
                    "{probe}: {warnings}"
                );
                ensure!(warnings.contains("is in window"), "{probe}: {warnings}");
            }
        }
        scene.send(300)?;
    }
    for probe in PROBES {
        Windows::of(&scene.daemon, probe).close();
        let account = scene.account(probe);
        for (name, counted) in &account.counted {
            assert_eq!(*counted, scene.sent, "{probe}: {name}");
        }
    }
    scene.bystanders.finish()
}

/// The daemon dies at each step of closing a window; the next one has every packet once, in windows
/// of all probes.
#[test]
fn an_end_at_every_step() -> Result<()> {
    // Three probes: two have three hashes with changing packets, and two arrays; two have queues.
    let steps: [(&str, &[u32]); 10] = [
        ("flipped", &[1, 2, 3]),
        ("moved", &[1, 2, 3, 4, 5, 6]),
        ("copied", &[1, 2, 3, 4, 5]),
        ("emptied", &[1, 2, 3, 4, 5]),
        ("popped", &[1, 2, 800, 801, 1600, 1601, 2400]),
        ("gathered", &[1, 2, 3]),
        ("written", &[1, 2, 3]),
        ("stored", &[1, 2, 3]),
        ("discarded", &[1, 3, 5, 6, 7, 8, 12, 14]),
        ("cleared", &[1, 2, 3]),
    ];
    let ends = steps
        .iter()
        .flat_map(|(step, times)| times.iter().map(move |time| format!("{step}:{time}")));
    let ends: Vec<String> = ends.collect();
    // A usual run tests some occurrences of each step.
    let some = ends.len().div_ceil(scaled(16, 48) as usize);
    let mut scene = Scene::new(&json!({ "retain": 100_000 }), &json!({ "KEYS": "500" }))?;
    let mut accounts = PROBES.map(|_| Account::default());
    for end in ends.iter().step_by(some) {
        let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", end);
        scene = scene.restart(&dying)?;
        scene.send(800)?;
        let died = PROBES
            .iter()
            .any(|probe| scene.daemon.try_get(&metrics_of(probe)).is_err());
        ensure!(died, "{end} was not reached");
        scene = scene.restart(&DaemonOptions::default())?;
        for (probe, account) in PROBES.iter().zip(&mut accounts) {
            Windows::of(&scene.daemon, probe).close();
            scene.add_new(probe, account);
            account
                .check(probe, scene.sent)
                .with_context(|| end.clone())?;
        }
    }
    scene.bystanders.finish()
}

/// A kill between the copy and the reset of a map costs the counts in between, in that map only.
#[test]
fn an_end_between_copy_and_reset_costs_what_came_between() -> Result<()> {
    let mut scene = Scene::new(&json!({ "retain": 1000 }), &json!({}))?;
    scene.send(1000)?;
    let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", "copied:1");
    scene = scene.restart(&dying)?;
    ensure!(
        scene.daemon.try_get(&metrics_of("counts")).is_err(),
        "copied was not reached"
    );
    scene.send(100)?;
    scene = scene.restart(&DaemonOptions::default())?;
    Windows::of(&scene.daemon, "counts").close();
    let account = scene.account("counts");
    account.check_but("counts", scene.sent, &["in_array"])?;
    assert_eq!(account.counted["in_array"], 1000);
    scene.bystanders.finish()
}

/// Daemons that are killed under load: queues lose nothing, and neither do variables, except if the
/// kill comes between the two steps.
#[test]
fn kills_under_load() -> Result<()> {
    let mut scene = Scene::new(
        &json!({ "interval": "20ms", "retain": 100_000 }),
        &json!({}),
    )?;
    let load = generator(&scene)?.spawn(Load {
        rate: Some(scaled(3_000, 20_000)),
        ..Load::default()
    });
    for kill in 0..scaled(6, 100) {
        std::thread::sleep(Duration::from_millis(100 + 37 * (kill % 7)));
        scene = scene.restart(&DaemonOptions::default())?;
    }
    scene.sent = load.stop()?;
    let racy = [&COUNTED[..], &["packets"]].concat();
    for probe in PROBES {
        Windows::of(&scene.daemon, probe).close();
        scene.account(probe).check_but(probe, scene.sent, &racy)?;
    }
    scene.bystanders.finish()
}

fn generator(scene: &Scene) -> Result<twinprobe_tests::traffic::Generator> {
    use twinprobe_tests::traffic::{Generator, GeneratorOptions};
    Generator::new(
        scene.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )
}

/// Requests to the daemon whose answer may be cut off.
trait TryGet {
    fn try_get(&self, path: &str) -> Result<http::Response>;
}

impl TryGet for Daemon {
    fn try_get(&self, path: &str) -> Result<http::Response> {
        http::request(&self.address(), "GET", path, &[], b"")
    }
}
