//! Damaged windows: the daemon reports them, and loses only their content.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::random::Random;
use twinprobe_tests::windows::{Windows, config, wait_for_status};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Directories, Store, Topology, scaled};

const PROBE: &str = "/v1/probes/p";
const RETAIN: u64 = 100_000;
/// The largest number of damaged windows that are kept, so that people can examine them.
const KEPT: usize = 8;

/// The place of the windows' bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bodies {
    InTheStore,
    InFiles,
}

impl Bodies {
    const ALL: [Self; 2] = [Self::InTheStore, Self::InFiles];

    /// Returns the number of keys that make a body of that size.
    const fn keys(self) -> &'static str {
        if matches!(self, Self::InTheStore) {
            "1"
        } else {
            "8192"
        }
    }
}

struct Scene {
    daemon: Daemon,
    bystanders: Bystanders,
    windows: Windows,
    topology: Topology,
}

impl Scene {
    /// Deploys a probe with this many windows.
    fn new(bodies: Bodies, collectors: &[&str], windows: u64) -> Result<Self> {
        let topology = Topology::new()?;
        let directories = Directories::with_state_in_memory(1 << 30)?;
        let daemon = Daemon::start_in(
            topology.monitor(),
            &DaemonOptions::default(),
            directories.into(),
        )?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        let limits = json!({ "retain": RETAIN, "collectors": collectors });
        let mut config = config(&limits, &[("KEYS", bodies.keys())]);
        let metrics = config["ingress"]["metrics"]
            .as_array_mut()
            .context("metrics")?;
        metrics.retain(|metric| metric["name"] == "in_array");
        daemon.put(PROBE, &config).expect(201);
        let scene = Self {
            windows: Windows::of(&daemon, "p"),
            daemon,
            bystanders,
            topology,
        };
        for _ in 0..windows {
            scene.windows.close();
        }
        let is_file = scene.store()?.body_file("p", windows)?.is_some();
        ensure!(
            is_file == (bodies == Bodies::InFiles),
            "{bodies:?}: {is_file}"
        );
        Ok(scene)
    }

    /// Changes the store while no daemon runs.
    fn restart_with(self, change: impl FnOnce(&Store) -> Result<()>) -> Result<Self> {
        let Self {
            daemon,
            bystanders,
            windows,
            topology,
        } = self;
        let directories = daemon.kill()?;
        change(&Store::open(&directories)?)?;
        let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        Ok(Self {
            daemon,
            bystanders,
            windows,
            topology,
        })
    }

    fn store(&self) -> Result<Store> {
        Store::open(&self.daemon.directories())
    }

    fn status(&self) -> Value {
        self.daemon.json(PROBE)["windows"].clone()
    }

    fn documents(&self, seqs: impl IntoIterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
        seqs.into_iter()
            .map(|seq| (seq, self.windows.bytes(seq, "json")))
            .collect()
    }

    #[track_caller]
    fn check_intact(&self, known: &[(u64, Vec<u8>)]) {
        for (seq, known) in known {
            assert!(
                self.windows.bytes(*seq, "json") == *known,
                "window {seq} is another one"
            );
        }
    }

    /// Reads a damaged window twice.
    fn read_damaged(&self, seq: u64) -> Result<()> {
        let answer = self.windows.try_get(seq)?;
        ensure!(
            [404, 500].contains(&answer.status),
            "window {seq}: {}: {}",
            answer.status,
            answer.text()
        );
        let detail = self.windows.try_get(seq)?.expect(404).json()["detail"].to_string();
        ensure!(detail.contains("damaged"), "window {seq}: {detail}");
        Ok(())
    }
}

/// Damages one byte of every second window, at another position in each: damage at every position
/// is noticed, and the other windows are not affected.
#[test]
fn every_byte_of_a_window_counts() -> Result<()> {
    let mut random = Random::new();
    for bodies in Bodies::ALL {
        let scene = Scene::new(bodies, &[], 1)?;
        let length = scene.windows.list("").windows[0].bytes;
        // A usual run checks some positions, a full run checks all positions, or many in the case
        // of a file.
        let checked = if bodies == Bodies::InFiles {
            scaled(20, 1000)
        } else {
            scaled(150, length)
        };
        let positions: Vec<u64> = (0..length)
            .step_by((length / checked).max(1) as usize)
            .collect();
        let last = 2 * positions.len() as u64 + 1;
        for _ in 2..=last {
            scene.windows.close();
        }
        let intact = scene.documents((1..=last).step_by(2));
        println!(
            "{} of {length} bytes, in windows 2 to {last}",
            positions.len()
        );
        let masks: Vec<u8> = positions.iter().map(|_| 1 << random.below(8)).collect();
        let scene = scene.restart_with(|store| {
            for ((seq, at), mask) in (2..).step_by(2).zip(&positions).zip(&masks) {
                store.flip_body("p", seq, *at as usize, *mask)?;
            }
            Ok(())
        })?;
        for seq in (2..last).step_by(2) {
            scene.read_damaged(seq)?;
        }
        let damaged = positions.len() as u64;
        let status = scene.status();
        let found = (&status["damaged"], &status["lost"], &status["retained"]);
        assert_eq!(
            found,
            (&json!(damaged), &json!(damaged), &json!(intact.len())),
            "{status}"
        );
        let list = scene.windows.list("");
        assert_eq!(
            (list.seqs(), list.lost),
            ((1..=last).step_by(2).collect(), damaged)
        );
        scene.check_intact(&intact);
        ensure!(
            scene.daemon.log().contains("damaged"),
            "the log says nothing"
        );
        // The last damaged windows stay for examination.
        let aside: Vec<u64> = (2..last).step_by(2).collect();
        assert_eq!(
            scene.store()?.damaged("p")?,
            aside[aside.len().saturating_sub(KEPT)..]
        );
        // The next window reports the lost windows, once, and its number continues.
        let document = scene.windows.close();
        assert_eq!(document["window"]["seq"], last + 1);
        assert_eq!(document["window"]["lost_windows"], damaged);
        assert_eq!(scene.windows.close()["window"].get("lost_windows"), None);
        let scene = scene.restart_with(|_| Ok(()))?;
        let status = scene.status();
        assert_eq!(
            (&status["damaged"], &status["lost"]),
            (&json!(damaged), &json!(damaged))
        );
        assert_eq!(scene.windows.close()["window"].get("lost_windows"), None);
        scene.bystanders.finish()?;
    }
    Ok(())
}

/// Bodies that were cut off, emptied, exchanged, extended, replaced or removed are set aside.
#[test]
fn bodies_that_are_no_windows_are_set_aside() -> Result<()> {
    for bodies in Bodies::ALL {
        let scene = Scene::new(bodies, &[], 12)?;
        let known = scene.documents([1, 11, 12]);
        let directory = scene.daemon.directories().state().join("bodies");
        let strays = ["4711", "notes"].map(|name| directory.join(name));
        let mut removed: Option<PathBuf> = None;
        let scene = scene.restart_with(|store| {
            let whole = store.body("p", 1)?;
            for (seq, bytes) in [
                (2, &[][..]),
                (3, &whole[..1]),
                (4, &whole[..whole.len() / 2]),
                (5, &whole[..whole.len() - 1]),
                (6, &[&whole[..], &[0]].concat()),
                (7, &[&whole[..], &whole].concat()),
                // The content is valid, but belongs to another window.
                (8, &whole[..]),
                (9, &vec![0xff; whole.len()]),
            ] {
                store.set_body("p", seq, bytes)?;
            }
            removed = store.body_file("p", 10)?;
            match &removed {
                Some(file) => fs::remove_file(file)?,
                None => store.execute(&format!(
                    "UPDATE windows SET body = NULL WHERE id = {}",
                    store.id("p", 10)?
                ))?,
            }
            fs::create_dir_all(&directory)?;
            Ok(strays
                .iter()
                .try_for_each(|stray| fs::write(stray, "stray"))?)
        })?;
        ensure!(
            removed.is_some() == (bodies == Bodies::InFiles),
            "{removed:?}"
        );
        // The start notices windows that are missing altogether.
        let status = scene.status();
        assert_eq!(
            (&status["damaged"], &status["lost"]),
            (&json!(1), &json!(1)),
            "{status}"
        );
        for seq in 2..=9 {
            scene.read_damaged(seq)?;
        }
        let status = scene.status();
        assert_eq!(
            (&status["damaged"], &status["lost"], &status["retained"]),
            (&json!(9), &json!(9), &json!(3)),
            "{status}"
        );
        assert_eq!(scene.windows.seqs(), [1, 11, 12]);
        scene.check_intact(&known);
        assert_eq!(scene.windows.close()["window"]["seq"], 13);
        // A body that no window has is removed, and a file that is not a body stays.
        assert_eq!(strays.map(|stray| stray.exists()), [false, true]);
        scene.bystanders.finish()?;
    }
    Ok(())
}

/// The start notices a damaged row of the store, in whichever column.
#[test]
fn every_column_of_a_window_counts() -> Result<()> {
    const CHANGES: [&str; 9] = [
        "instance = instance || 'x'",
        "form = 1 - form",
        "closed_by = closed_by + 1",
        "start = \"end\"",
        "\"end\" = start",
        "bytes = bytes + 1",
        "lost = lost + 1",
        "digest = zeroblob(8)",
        // The window is among the lost ones, although its number is unknown.
        "seq = 4711",
    ];
    let last = 2 + CHANGES.len() as u64;
    let scene = Scene::new(Bodies::InTheStore, &[], last)?;
    let known = scene.documents([1, last]);
    let mut scene = scene.restart_with(|store| {
        for (seq, change) in (2..).zip(CHANGES) {
            store.execute(&format!(
                "UPDATE windows SET {change} WHERE id = {}",
                store.id("p", seq)?
            ))?;
        }
        Ok(())
    })?;
    for restarts in [false, true] {
        if restarts {
            scene = scene.restart_with(|_| Ok(()))?;
        }
        let status = scene.status();
        let damaged = CHANGES.len();
        assert_eq!(
            (&status["damaged"], &status["lost"]),
            (&json!(damaged), &json!(damaged - 1)),
            "{status}"
        );
        assert_eq!(scene.windows.seqs(), [1, last], "{restarts}");
        scene.check_intact(&known);
        for seq in 2..last {
            scene.windows.try_get(seq)?.expect(404);
        }
    }
    assert_eq!(scene.windows.close()["window"]["seq"], last + 1);
    scene.bystanders.finish()
}

/// A body that is damaged while the daemon runs is noticed when the window is read, alone or amid
/// others.
#[test]
fn damage_is_noticed_when_a_window_is_read() -> Result<()> {
    for bodies in Bodies::ALL {
        let scene = Scene::new(bodies, &[], 7)?;
        let known = scene.documents([1, 3, 4, 6, 7]);
        let length = scene.windows.list("").windows[1].bytes as usize;
        scene.store()?.flip_body("p", 2, length / 2, 4)?;
        scene.read_damaged(2)?;
        let status = wait_for_status(&scene.daemon, "p", |status| status["damaged"] == 1)?;
        assert_eq!(
            (&status["lost"], &status["retained"]),
            (&json!(1), &json!(6))
        );
        scene.store()?.flip_body("p", 5, length / 2, 4)?;
        for (damaged, lost) in [(true, json!([[2, 2]])), (false, json!([[2, 2], [5, 5]]))] {
            let answer = scene
                .windows
                .request("GET", &format!("{PROBE}/windows?documents=true"))?
                .expect(200);
            let mut lines = answer.text().lines();
            let list: Value = serde_json::from_str(lines.next().context("a list")?)?;
            let ranges = list["lost"].as_array().into_iter().flatten();
            let ranges: Vec<_> = ranges
                .map(|range| [&range["first"], &range["last"]])
                .collect();
            assert_eq!(json!(ranges), lost);
            let mut expected: Vec<&[u8]> =
                known.iter().map(|(_, document)| &document[..]).collect();
            if damaged {
                expected.insert(3, b"null");
            }
            assert!(
                lines.map(str::as_bytes).eq(expected),
                "{damaged}: {}",
                answer.text()
            );
        }
        assert_eq!(scene.windows.seqs(), [1, 3, 4, 6, 7]);
        scene.check_intact(&known);
        assert_eq!(scene.windows.close()["window"]["lost_windows"], 2);
        scene.bystanders.finish()?;
    }
    Ok(())
}

/// A daemon with a damaged state loses no windows: collectors may get some windows again, and miss
/// none.
#[test]
fn every_byte_of_the_state_counts() -> Result<()> {
    let mut random = Random::new();
    let mut scene = Scene::new(Bodies::InTheStore, &["a", "b"], 6)?;
    scene.windows.acknowledge(2, None)?.expect(204);
    scene.windows.acknowledge(4, Some("a"))?.expect(204);
    let known = scene.documents(3..=6);
    let state = scene.store()?.windows_state("p")?;
    let positions = state.len() as u64;
    let step = (positions / scaled(10, positions)).max(1);
    let mut damages: Vec<Option<u64>> = (0..positions)
        .step_by(step as usize)
        .map(|at| Some((at + random.below(step)).min(positions - 1)))
        .collect();
    // The last case deletes the whole state.
    damages.push(None);
    for damage in damages {
        let mask = 1 << random.below(8);
        let mut damaged = state.clone();
        match damage {
            Some(at) => damaged[at as usize] ^= mask,
            None => damaged.clear(),
        }
        scene = scene.restart_with(|store| store.set_windows_state("p", &damaged))?;
        assert_eq!(scene.windows.seqs(), [3, 4, 5, 6], "byte {damage:?}");
        scene.check_intact(&known);
        let status = scene.status();
        assert_eq!(
            (&status["damaged"], &status["oldest"], &status["newest"]),
            (&json!(0), &json!(3), &json!(6))
        );
        scene.windows.try_get(2)?.expect(404);
        ensure!(
            scene.daemon.log().contains("ERROR"),
            "the log says nothing of byte {damage:?}"
        );
    }
    assert_eq!(scene.windows.close()["window"]["seq"], 7);
    scene.windows.acknowledge(7, None)?.expect(204);
    assert_eq!(scene.windows.seqs(), [0; 0]);
    scene.bystanders.finish()
}
