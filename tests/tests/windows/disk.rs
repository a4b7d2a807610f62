//! A full or read-only disk: nothing is lost, requests fail with the reason, and everything else
//! continues.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::{Collector, Windows, config, packets, wait_for_status};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Directories, Response, Tmpfs, Topology};

const PROBE: &str = "/v1/probes/p";
const METRICS: &str = "/v1/probes/p/metrics";
/// The size of the disk in bytes: room for some windows beside the stored probes.
const DISK: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Full,
    ReadOnly,
}

impl Trouble {
    const ALL: [Self; 2] = [Self::Full, Self::ReadOnly];

    fn begin(self, disk: &Tmpfs) -> Result<()> {
        if self == Self::Full {
            disk.fill()
        } else {
            disk.read_only()
        }
    }

    fn end(self, disk: &Tmpfs) -> Result<()> {
        if self == Self::Full {
            disk.free()
        } else {
            disk.read_write()
        }
    }

    /// The ends of daemons before which the trouble begins; 0 means none. No disk becomes read-only
    /// below a daemon that has its store open.
    const fn begins(self) -> &'static [i32] {
        if matches!(self, Self::Full) {
            &[0]
        } else {
            &[libc::SIGTERM, libc::SIGKILL]
        }
    }

    const fn status(self) -> u16 {
        if matches!(self, Self::Full) { 507 } else { 500 }
    }

    const fn reason(self) -> &'static str {
        if matches!(self, Self::Full) {
            "No space left on device"
        } else {
            "Read-only file system"
        }
    }

    #[track_caller]
    fn check(self, answer: Response) {
        let problem = answer.expect(self.status());
        assert_eq!(
            problem.header("content-type"),
            Some("application/problem+json")
        );
        let detail = problem.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(detail.contains(self.reason()), "{self:?}: {detail}");
    }
}

struct Scene {
    topology: Topology,
    daemon: Daemon,
    bystanders: Bystanders,
    windows: Windows,
    directories: Arc<Directories>,
}

impl Scene {
    /// Makes a scene whose second probe has live metrics only and also sees all packets.
    fn new(window: &serde_json::Value) -> Result<Self> {
        Self::with_keys(window, "4")
    }

    /// Makes a scene with larger windows: their size grows with the number of keys.
    fn with_keys(window: &serde_json::Value, keys: &str) -> Result<Self> {
        let topology = Topology::new()?;
        let directories = Arc::new(Directories::with_state_in_memory(DISK)?);
        let daemon = Daemon::start_in(
            topology.monitor(),
            &DaemonOptions::default(),
            Arc::clone(&directories),
        )?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        let mut live = counter_config("mon0", "XDP_PASS");
        live["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
        live["priority"] = json!(-10);
        daemon.put("/v1/probes/live", &live).expect(201);
        daemon
            .put(PROBE, &config(window, &[("KEYS", keys)]))
            .expect(201);
        Ok(Self {
            windows: Windows::of(&daemon, "p"),
            topology,
            daemon,
            bystanders,
            directories,
        })
    }

    fn generator(&self) -> Result<Generator> {
        Generator::new(
            self.topology.generator(),
            "gen0",
            GeneratorOptions::default(),
        )
    }

    fn disk(&self) -> &Tmpfs {
        self.directories.state_in_memory()
    }

    fn restart(self, signal: i32) -> Result<Self> {
        self.restart_after(signal, |_| Ok(()))
    }

    /// Ends the daemon, does something to its disk, and starts the next one.
    fn restart_after(self, signal: i32, action: impl FnOnce(&Tmpfs) -> Result<()>) -> Result<Self> {
        let Self {
            topology,
            daemon,
            bystanders,
            windows,
            directories,
        } = self;
        if signal == libc::SIGKILL {
            daemon.kill()?;
        } else {
            let (status, _) = daemon.terminate()?;
            ensure!(status.success(), "the daemon failed: {status}");
        }
        action(directories.state_in_memory())?;
        let daemon = Daemon::start_in(
            topology.monitor(),
            &DaemonOptions::default(),
            Arc::clone(&directories),
        )?;
        Ok(Self {
            topology,
            daemon,
            bystanders,
            windows,
            directories,
        })
    }

    /// Checks all requests that do not store windows.
    fn check_all_else(&self, arrived: u64) {
        self.daemon.get("/healthz").expect(200);
        self.daemon.get("/readyz").expect(200);
        assert_eq!(
            total(
                &self.daemon.json("/v1/probes/live/metrics"),
                "ingress",
                "packets"
            ),
            arrived
        );
        assert_eq!(
            self.daemon.json("/v1/probes")["probes"]
                .as_array()
                .map(Vec::len),
            Some(4)
        );
        self.daemon.get("/v1/capabilities").expect(200);
    }
}

#[test]
fn windows_that_cannot_be_stored_stay_where_they_are() -> Result<()> {
    let all = Trouble::ALL
        .iter()
        .flat_map(|trouble| trouble.begins().iter().map(|begin| (*trouble, *begin)));
    for (trouble, begin) in all {
        let mut scene = Scene::new(&json!({}))?;
        let mut generator = scene.generator()?;
        generator.send(100)?;
        assert_eq!(packets(&scene.windows.close()), 100);
        let known = scene.windows.bytes(1, "json");
        if begin == 0 {
            trouble.begin(scene.disk())?;
        } else {
            scene = scene.restart_after(begin, |disk| trouble.begin(disk))?;
        }
        let mut arrived = 100;
        // The next daemon must start while nothing can be written.
        for signal in [0, libc::SIGTERM, libc::SIGKILL] {
            if signal != 0 {
                scene = scene.restart(signal)?;
            }
            generator.send(50)?;
            arrived += 50;
            for _ in 0..3 {
                trouble.check(scene.windows.try_close()?);
                trouble.check(scene.daemon.get(METRICS));
            }
            let status = scene.daemon.json(PROBE)["windows"].clone();
            assert!(
                status["error"]
                    .as_str()
                    .is_some_and(|error| error.contains(trouble.reason())),
                "{status}"
            );
            assert_eq!(
                (&status["lost"], &status["damaged"], &status["retained"]),
                (&json!(0), &json!(0), &json!(1))
            );
            assert_eq!(
                (scene.windows.seqs(), scene.windows.list("").lost),
                (vec![1], 0)
            );
            assert!(
                scene.windows.bytes(1, "json") == known,
                "{trouble:?}: window 1 is another one"
            );
            scene.check_all_else(arrived);
        }
        trouble.end(scene.disk())?;
        generator.send(7)?;
        let document = scene.windows.close();
        assert_eq!(total(&document, "ingress", "total"), 100 + 150 + 7);
        // The windows that could not be stored at first and this one are stored without a gap.
        let seqs = scene.windows.seqs();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
        let sum: u64 = seqs
            .iter()
            .map(|seq| packets(&scene.windows.get(*seq)))
            .sum();
        assert_eq!(sum, 100 + 150 + 7, "{trouble:?}");
        let status = scene.daemon.json(PROBE)["windows"].clone();
        assert_eq!(
            (status.get("error"), &status["lost"]),
            (None, &json!(0)),
            "{status}"
        );
        scene.bystanders.finish()?;
    }
    Ok(())
}

/// A window without room is not begun, and the next window has everything that was counted
/// meanwhile. Windows leave some room for others.
#[test]
fn a_window_without_room_is_not_begun() -> Result<()> {
    let scene = Scene::new(&json!({}))?;
    let mut generator = scene.generator()?;
    generator.send(10)?;
    assert_eq!(packets(&scene.windows.close()), 10);
    scene.disk().fill_but(DISK / 40)?;
    for _ in 0..3 {
        generator.send(10)?;
        Trouble::Full.check(scene.windows.try_close()?);
    }
    // The remaining room is for others, such as acknowledgements.
    scene.daemon.delete("/v1/probes/p/windows/1").expect(204);
    scene.disk().free()?;
    assert_eq!(packets(&scene.windows.close()), 30);
    assert_eq!(scene.windows.seqs(), [2]);
    scene.bystanders.finish()
}

/// A schedule continues: the window that could not be stored is stored as soon as it can be.
#[test]
fn a_schedule_goes_on_when_windows_can_be_stored_again() -> Result<()> {
    for trouble in Trouble::ALL {
        let mut scene = Scene::new(&json!({ "interval": "50ms", "retain": 100_000 }))?;
        let load = scene.generator()?.spawn(Load::default());
        let mut collector = Collector::new(scene.windows.clone(), None);
        let mut sum = 0;
        for begin in trouble.begins().iter().cycle().take(3) {
            collector.round(5.0, |document| sum += packets(document))?;
            if *begin == 0 {
                trouble.begin(scene.disk())?;
            } else {
                scene = scene.restart_after(*begin, |disk| trouble.begin(disk))?;
            }
            let failed = wait_for_status(&scene.daemon, "p", |status| {
                status["error"]
                    .as_str()
                    .is_some_and(|error| error.contains(trouble.reason()))
            })?;
            assert_eq!(failed["lost"], 0);
            trouble.check(scene.windows.try_close()?);
            // A reading gets the last stored window, with live metrics as they are.
            scene.daemon.get(METRICS).expect(200);
            trouble.end(scene.disk())?;
            wait_for_status(&scene.daemon, "p", |status| status.get("error").is_none())?;
        }
        let sent = load.stop()?;
        scene.windows.close();
        while collector.round(0.0, |document| sum += packets(document))? > 0 {}
        assert_eq!(sum, sent, "{trouble:?}");
        scene.check_all_else(sent);
        scene.bystanders.finish()?;
    }
    Ok(())
}

/// An acknowledgement that can't be written changes nothing, and neither does a removal.
#[test]
fn what_can_not_be_written_is_not_done() -> Result<()> {
    let mut scene = Scene::new(&json!({ "collectors": ["a", "b"] }))?;
    (0..3).for_each(|_| drop(scene.windows.close()));
    scene.windows.acknowledge(1, Some("a"))?.expect(204);
    let seen = |scene: &Scene| {
        let of = |query: &str| scene.windows.list(query).seqs();
        (
            of(""),
            of("collector=a"),
            of("collector=b"),
            scene.daemon.json(PROBE)["revision"].clone(),
        )
    };
    let before = seen(&scene);
    let trouble = Trouble::ReadOnly;
    for signal in trouble.begins() {
        scene = scene.restart_after(*signal, |disk| trouble.begin(disk))?;
        for collector in [Some("a"), Some("b"), None] {
            let answer = scene
                .windows
                .acknowledge(2, collector)?
                .expect(trouble.status());
            ensure!(
                answer.text().contains("could not be stored and is lost"),
                "{}",
                answer.text()
            );
            assert_eq!(seen(&scene), before, "{collector:?}");
        }
        scene.daemon.delete(PROBE).expect(500);
        scene
            .daemon
            .put(PROBE, &config(&json!({}), &[("KEYS", "8")]))
            .expect(500);
        assert_eq!(seen(&scene), before);
        trouble.end(scene.disk())?;
        scene = scene.restart(libc::SIGKILL)?;
        assert_eq!(seen(&scene), before);
    }
    scene.windows.acknowledge(2, None)?.expect(204);
    assert_eq!(scene.windows.seqs(), [3]);
    scene.bystanders.finish()
}

/// A daemon that has started on a read-only disk shows the changes that it stores after the disk is
/// writable.
#[test]
fn what_is_stored_once_a_disk_can_be_written_is_there() -> Result<()> {
    let mut scene = Scene::new(&json!({}))?;
    let mut generator = scene.generator()?;
    let mut stored = Vec::new();
    for (round, signal) in (1..).zip(Trouble::ReadOnly.begins().iter().cycle().take(4)) {
        scene = scene.restart_after(*signal, Tmpfs::read_only)?;
        generator.send(round)?;
        Trouble::ReadOnly.check(scene.windows.try_close()?);
        scene.disk().read_write()?;
        let seq = scene.windows.close()["window"]["seq"]
            .as_u64()
            .expect("a number");
        // The window that could not be stored comes first.
        let first = stored.len() as u64 + 1;
        stored.extend((first..=seq).map(|seq| (seq, scene.windows.bytes(seq, "json"))));
        assert_eq!(scene.windows.seqs(), (1..=seq).collect::<Vec<_>>());
        for restarts in [false, true] {
            if restarts {
                scene = scene.restart(libc::SIGKILL)?;
            }
            for (seq, known) in &stored {
                assert!(
                    scene.windows.bytes(*seq, "json") == *known,
                    "window {seq} is another one"
                );
            }
        }
        let sum: u64 = scene
            .windows
            .seqs()
            .iter()
            .map(|seq| packets(&scene.windows.get(*seq)))
            .sum();
        assert_eq!(sum, (1..=round).sum::<u64>());
    }
    scene.bystanders.finish()
}

/// Some room is left for changes that free room: windows are acknowledged and probes are removed on
/// a full disk.
#[test]
fn acknowledgements_and_removals_have_room_on_a_full_disk() -> Result<()> {
    let mut scene = Scene::new(&json!({}))?;
    (0..8).for_each(|_| drop(scene.windows.close()));
    for seq in 1..=4 {
        // The log of the store is empty after a start, and must grow for the next change.
        scene = scene.restart(libc::SIGTERM)?;
        scene.disk().fill()?;
        Trouble::Full.check(scene.windows.try_close()?);
        scene.windows.acknowledge(seq, None)?.expect(204);
        scene = scene.restart(libc::SIGKILL)?;
        assert_eq!(scene.windows.seqs(), (seq + 1..=8).collect::<Vec<_>>());
        scene.disk().free()?;
    }
    scene = scene.restart(libc::SIGTERM)?;
    scene.disk().fill()?;
    scene.daemon.delete(PROBE).expect(204);
    scene = scene.restart(libc::SIGKILL)?;
    scene.daemon.get(PROBE).expect(404);
    scene.disk().free()?;
    scene.bystanders.finish()
}

/// Acknowledged windows make room on a disk that windows have filled.
#[test]
fn acknowledging_makes_room_on_a_full_disk() -> Result<()> {
    let scene = Scene::with_keys(&json!({ "interval": "10ms", "retain": 100_000 }), "192")?;
    let load = scene.generator()?.spawn(Load::default());
    let mut collector = Collector::new(scene.windows.clone(), None);
    let mut sum = 0;
    for _ in 0..3 {
        wait_for_status(&scene.daemon, "p", |status| {
            status["error"]
                .as_str()
                .is_some_and(|error| error.contains("No space left"))
        })?;
        let full = scene.windows.seqs().len();
        ensure!(full > 10, "{full} windows fill the disk");
        collector.round(0.0, |document| sum += packets(document))?;
        let list = scene
            .windows
            .try_list(&format!("after={}&wait=60", collector.taken))?;
        ensure!(!list.windows.is_empty(), "no window although there is room");
    }
    let sent = load.stop()?;
    // The disk may be full again at this moment.
    wait_for("the last packet", PATIENCE, || {
        collector.round(0.0, |document| sum += packets(document))?;
        ensure!(sum == sent, "{sum} of {sent}");
        Ok(())
    })?;
    // The windows of the bystanders need room as well.
    scene.daemon.delete(PROBE).expect(204);
    scene.bystanders.finish()
}
