//! Damaged files: the daemon reports them, and loses no more than their content.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use twinprobe_tests::random::Random;
use twinprobe_tests::windows::{Windows, config, wait_for_status};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Directories, Topology, scaled};

const PROBE: &str = "/v1/probes/p";
const RETAIN: u64 = 100_000;

struct Scene {
    daemon: Daemon,
    bystanders: Bystanders,
    windows: Windows,
    files: PathBuf,
    _topology: Topology,
}

impl Scene {
    /// Deploys a probe with this many small windows.
    fn new(collectors: &[&str], windows: u64) -> Result<Self> {
        let topology = Topology::new()?;
        let directories = Directories::with_state_in_memory(1 << 30)?;
        let files = directories.state().join("windows/p");
        let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories.into())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        let mut config = config(&json!({ "retain": RETAIN, "collectors": collectors }), &[("KEYS", "1")]);
        let metrics = config["ingress"]["metrics"].as_array_mut().context("metrics")?;
        metrics.retain(|metric| metric["name"] == "in_array");
        daemon.put(PROBE, &config).expect(201);
        let scene =
            Self { windows: Windows::of(&daemon, "p"), daemon, bystanders, files, _topology: topology };
        for _ in 0..windows {
            scene.windows.close();
        }
        Ok(scene)
    }

    /// Changes files while no daemon runs.
    fn restart_with(self, change: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let Self { daemon, bystanders, windows, files, _topology: topology } = self;
        let directories = daemon.kill()?;
        change(&files)?;
        let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        Ok(Self { daemon, bystanders, windows, files, _topology: topology })
    }

    fn status(&self) -> serde_json::Value {
        self.daemon.json(PROBE)["windows"].clone()
    }
}

/// Returns the file of a window. Its name also says whether the client that closed the window has received it.
fn file(files: &Path, seq: u64) -> Result<PathBuf> {
    let names = ["window", "taken"].map(|form| files.join(format!("{seq}.{form}")));
    names.into_iter().find(|path| path.exists()).with_context(|| format!("window {seq} has no file"))
}

fn flip(path: &Path, at: usize, mask: u8) -> Result<()> {
    let mut bytes = fs::read(path).with_context(|| path.display().to_string())?;
    bytes[at] ^= mask;
    // The file is overwritten, so that it stays the same file.
    Ok(fs::write(path, bytes)?)
}

/// Damages one byte of every second window, at another position in each: damage at every position is noticed, and the
/// other windows are not affected.
#[test]
fn every_byte_of_a_window_counts() -> Result<()> {
    let mut random = Random::new();
    let scene = Scene::new(&[], 1)?;
    let length = fs::metadata(file(&scene.files, 1)?)?.len();
    // A usual run checks some positions, a full run all.
    let step = (length / scaled(150, length)).max(1);
    let positions: Vec<u64> = (0..length).step_by(step as usize).collect();
    let last = 2 * positions.len() as u64 + 1;
    for _ in 2..=last {
        scene.windows.close();
    }
    let intact: Vec<(u64, Vec<u8>)> =
        (1..=last).step_by(2).map(|seq| (seq, scene.windows.bytes(seq, "json"))).collect();
    println!("{} of {length} bytes, in windows 2 to {last}", positions.len());
    let masks: Vec<u8> = positions.iter().map(|_| 1 << random.below(8)).collect();
    let scene = scene.restart_with(|files| {
        for ((seq, at), mask) in (2..).step_by(2).zip(&positions).zip(&masks) {
            let path = file(files, seq)?;
            // Windows with longer numbers have more bytes than the first one.
            let length = fs::metadata(&path)?.len();
            flip(&path, (*at).min(length - 1) as usize, *mask)?;
        }
        Ok(())
    })?;
    let damaged = positions.len() as u64;
    let status = scene.status();
    let found = (&status["damaged"], &status["lost"], &status["retained"]);
    assert_eq!(found, (&json!(damaged), &json!(damaged), &json!(intact.len())), "{status}");
    let list = scene.windows.list("");
    assert_eq!((list.seqs(), list.lost), ((1..=last).step_by(2).collect(), damaged));
    for (seq, known) in &intact {
        assert!(scene.windows.bytes(*seq, "json") == *known, "window {seq} is another one");
    }
    for seq in (2..last).step_by(2) {
        let detail = scene.windows.try_get(seq)?.expect(404).json()["detail"].to_string();
        ensure!(detail.contains("damaged"), "{detail}");
    }
    ensure!(scene.daemon.log().contains("damaged"), "the log says nothing");
    let aside = fs::read_dir(&scene.files)?.flatten().map(|entry| entry.file_name().into_string());
    ensure!(aside.flatten().any(|name| name.ends_with(".damaged")), "no file is left to be looked at");
    // The next window reports the lost windows, once, and its number goes on.
    let document = scene.windows.close();
    assert_eq!(document["window"]["seq"], last + 1);
    assert_eq!(document["window"]["lost_windows"], damaged);
    assert_eq!(scene.windows.close()["window"].get("lost_windows"), None);
    let scene = scene.restart_with(|_| Ok(()))?;
    assert_eq!(
        (scene.status()["damaged"].clone(), scene.status()["lost"].clone()),
        (json!(damaged), json!(damaged))
    );
    assert_eq!(scene.windows.close()["window"].get("lost_windows"), None);
    scene.bystanders.finish()
}

/// Files that were cut off, emptied, exchanged, extended or replaced are set aside.
#[test]
fn files_that_are_no_windows_are_set_aside() -> Result<()> {
    let scene = Scene::new(&[], 12)?;
    let intact: Vec<u64> = vec![1, 11, 12];
    let known: Vec<Vec<u8>> = intact.iter().map(|seq| scene.windows.bytes(*seq, "json")).collect();
    let scene = scene.restart_with(|files| {
        let whole = fs::read(file(files, 1)?)?;
        for (seq, bytes) in [
            (2, &[][..]),
            (3, &whole[..1]),
            (4, &whole[..whole.len() / 2]),
            (5, &whole[..whole.len() - 1]),
            (6, &[&whole[..], &[0]].concat()),
            (7, &[&whole[..], &whole].concat()),
            // The content is valid, but that of another window.
            (8, &whole[..]),
            (9, &vec![0xff; whole.len()]),
        ] {
            fs::write(file(files, seq)?, bytes)?;
        }
        fs::remove_file(file(files, 10)?)?;
        for stray in ["13.windows", "x.window", "0.window", ".new-abcdef", "notes"] {
            fs::write(files.join(stray), "stray")?;
        }
        Ok(())
    })?;
    let status = scene.status();
    assert_eq!((&status["damaged"], &status["retained"]), (&json!(8), &json!(3)), "{status}");
    assert_eq!(scene.windows.seqs(), intact);
    for (seq, known) in intact.iter().zip(&known) {
        assert!(scene.windows.bytes(*seq, "json") == *known, "window {seq} is another one");
    }
    assert_eq!(scene.windows.close()["window"]["seq"], 13);
    scene.bystanders.finish()
}

/// A file that is damaged while the daemon runs is noticed when the window is read.
#[test]
fn damage_is_noticed_when_a_window_is_read() -> Result<()> {
    let scene = Scene::new(&[], 4)?;
    let known = scene.windows.bytes(3, "json");
    let length = fs::metadata(file(&scene.files, 2)?)?.len() as usize;
    flip(&file(&scene.files, 2)?, length / 2, 4)?;
    let answer = scene.windows.try_get(2)?;
    ensure!([404, 500].contains(&answer.status), "{}: {}", answer.status, answer.text());
    let status = wait_for_status(&scene.daemon, "p", |status| status["damaged"] == 1)?;
    assert_eq!((&status["lost"], &status["retained"]), (&json!(1), &json!(3)));
    assert_eq!(scene.windows.seqs(), [1, 3, 4]);
    scene.windows.try_get(2)?.expect(404);
    assert!(scene.windows.bytes(3, "json") == known);
    assert_eq!(scene.windows.close()["window"]["lost_windows"], 1);
    scene.bystanders.finish()
}

/// A damaged state file costs no windows: collectors may get some windows again, and miss none.
#[test]
fn every_byte_of_the_state_counts() -> Result<()> {
    let mut random = Random::new();
    let mut scene = Scene::new(&["a", "b"], 6)?;
    scene.windows.acknowledge(2, None)?.expect(204);
    scene.windows.acknowledge(4, Some("a"))?.expect(204);
    let known: Vec<_> = (3..=6).map(|seq| (seq, scene.windows.bytes(seq, "json"))).collect();
    let state = fs::read(scene.files.join("state.json"))?;
    let positions = state.len() as u64;
    let step = (positions / scaled(10, positions)).max(1);
    let mut damages: Vec<Option<u64>> = (0..positions)
        .step_by(step as usize)
        .map(|at| Some((at + random.below(step)).min(positions - 1)))
        .collect();
    // The last case has no state file at all.
    damages.push(None);
    for damage in damages {
        let mask = 1 << random.below(8);
        scene = scene.restart_with(|files| {
            let path = files.join("state.json");
            fs::write(&path, &state)?;
            match damage {
                Some(at) => flip(&path, at as usize, mask),
                None => Ok(fs::remove_file(&path)?),
            }
        })?;
        assert_eq!(scene.windows.seqs(), [3, 4, 5, 6], "byte {damage:?}");
        for (seq, known) in &known {
            assert!(scene.windows.bytes(*seq, "json") == *known, "window {seq} is another one");
        }
        let status = scene.status();
        assert_eq!(
            (&status["damaged"], &status["oldest"], &status["newest"]),
            (&json!(0), &json!(3), &json!(6))
        );
        scene.windows.try_get(2)?.expect(404);
        ensure!(
            damage.is_none() || scene.daemon.log().contains("ERROR"),
            "the log says nothing of byte {damage:?}"
        );
    }
    assert_eq!(scene.windows.close()["window"]["seq"], 7);
    scene.windows.acknowledge(7, None)?.expect(204);
    assert_eq!(scene.windows.seqs(), [0; 0]);
    scene.bystanders.finish()
}
