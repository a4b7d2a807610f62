//! A daemon is killed at random instants while windows are closed by the clock and by requests,
//! read and acknowledged. The next daemon has the window or closes it: collectors get every packet
//! once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::random::Random;
use twinprobe_tests::sample::total;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::windows::{Collector, Windows, config, packets, values};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, scaled};

/// The number of entries for which a queue has room.
const QUEUED: &str = "262144";
/// The longest life of a daemon: long enough for some windows, short enough to hit each step of
/// closing one.
const LIFE_MS: u64 = 300;
/// The time in which a daemon starts, about.
const START_MS: u64 = 150;

/// Returns the packets per second, few enough for a queue to hold those that come while no daemon
/// runs.
fn rate() -> u64 {
    scaled(10_000, 20_000)
}

/// The totals of all windows so far.
#[derive(Debug, Default)]
struct Account {
    packets: u64,
    windows: u64,
    /// The end of the last window.
    end: Value,
    /// True for each packet number that the queue has given.
    serials: Vec<bool>,
    twice: u64,
}

impl Account {
    fn add(&mut self, window: &Value) {
        let Value::Object(times) = &window["window"] else {
            panic!("no window in {window}")
        };
        assert!(
            self.windows == 0 || self.end == times["start"],
            "{times:?} follows on {}",
            self.end
        );
        self.end = times["end"].clone();
        self.windows += 1;
        self.packets += packets(window);
        assert_eq!(
            total(window, "ingress", "total"),
            self.packets,
            "cumulative in window {}",
            window["window"]
        );
        for serial in values(window, "serials") {
            let serial = serial as usize;
            self.serials
                .resize(self.serials.len().max(serial + 1), false);
            self.twice += u64::from(self.serials[serial]);
            self.serials[serial] = true;
        }
    }

    fn check(&self, sent: u64) -> Result<()> {
        let missing = self.serials.iter().filter(|seen| !**seen).count();
        let queued = self.serials.len();
        println!("{} packets in {} windows", self.packets, self.windows);
        ensure!(
            self.packets == sent,
            "{} of {sent} packets, {queued} in the queue",
            self.packets
        );
        ensure!(
            queued as u64 == sent && missing == 0,
            "of {queued} in the queue {missing} are missing"
        );
        ensure!(self.twice == 0, "{} came twice", self.twice);
        Ok(())
    }
}

/// Takes windows, from one daemon after another, up to the window `last`.
fn collect(collector: &mut Collector, account: &Mutex<Account>, last: &AtomicU64) -> Result<()> {
    let mut progress = Instant::now();
    while collector.taken < last.load(Ordering::Acquire) {
        let taken = collector.taken;
        // The round fails while no daemon runs.
        let result = collector.round(0.05, |window| account.lock().expect("no panic").add(window));
        if collector.taken > taken {
            progress = Instant::now();
        }
        if let Err(error) = result {
            ensure!(
                progress.elapsed() < PATIENCE,
                "no window for {PATIENCE:?}: {error:#}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

/// Closes windows, sometimes with a connection that hangs up, and reads metrics, which closes a
/// window without interval.
fn disturb(windows: &Windows, ended: &AtomicBool, mut random: Random) -> Result<()> {
    while !ended.load(Ordering::Acquire) {
        let bytes = random.below(4000) as usize;
        let right: &[u16] = match random.below(4) {
            0 => &[],
            1 => &[200],
            _ => &[201],
        };
        let answer = match right {
            // The answer may be cut off, by the daemon's end or by this client.
            [] => windows.read_and_hang_up("POST", None, bytes).map(|_| None),
            [200] => windows.request("GET", "/v1/probes/p/metrics").map(Some),
            _ => windows.try_close().map(Some),
        };
        match answer {
            Ok(Some(answer)) => {
                ensure!(
                    right.contains(&answer.status),
                    "{}: {}",
                    answer.status,
                    answer.text()
                );
            }
            Ok(None) => {}
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
        thread::sleep(Duration::from_millis(random.below(30)));
    }
    Ok(())
}

fn kill_and_collect(window: &Value, kills: u64) -> Result<()> {
    let topology = Topology::new()?;
    let mut random = Random::new();
    let options = DaemonOptions::default();
    let mut daemon = Daemon::start(topology.monitor())?;
    let mut bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/p", &config(window, &[("QUEUED", QUEUED)]))
        .expect(201);
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let load = generator.spawn(Load {
        rate: Some(rate()),
        ..Load::default()
    });
    let windows = Windows::of(&daemon, "p");
    let (account, last, ended) = (
        Mutex::default(),
        AtomicU64::new(u64::MAX),
        AtomicBool::new(false),
    );
    let sent = thread::scope(|scope| {
        let mut collector = Collector::new(windows.clone(), None);
        let collecting = scope.spawn({
            let (account, last) = (&account, &last);
            move || collect(&mut collector, account, last)
        });
        let disturbing = scope.spawn({
            let (windows, ended, random) = (&windows, &ended, random.fork());
            move || disturb(windows, ended, random)
        });
        let run = || -> Result<(Daemon, u64)> {
            for kill in 1..=kills {
                thread::sleep(Duration::from_millis(random.below(LIFE_MS)));
                let mut directories = daemon.kill()?;
                // Sometimes the next daemon is killed as well, while it starts.
                while random.below(4) == 0 {
                    let starting = Daemon::spawn_in(topology.monitor(), &options, directories)?;
                    thread::sleep(Duration::from_millis(random.below(START_MS)));
                    directories = starting.kill()?;
                }
                daemon = Daemon::start_in(topology.monitor(), &options, directories)
                    .with_context(|| format!("after kill {kill}"))?;
                ensure!(
                    !collecting.is_finished() && !disturbing.is_finished(),
                    "a client failed before kill {kill}"
                );
            }
            let sent = load.stop()?;
            let document = windows.close();
            ensure!(
                total(&document, "ingress", "live") == sent,
                "{sent} sent, {}",
                document["ingress"]["live"]
            );
            ensure!(
                values(&document, "unqueued") == [0],
                "the queue was too small"
            );
            last.store(
                document["window"]["seq"].as_u64().context("seq")?,
                Ordering::Release,
            );
            let windows = daemon.json("/v1/probes/p")["windows"].clone();
            ensure!(windows["damaged"] == 0 && windows["lost"] == 0, "{windows}");
            bystanders.check()?;
            Ok((daemon, sent))
        };
        // A panic must not keep the other threads waiting.
        let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        ended.store(true, Ordering::Release);
        if !matches!(sent, Ok(Ok(_))) {
            last.store(0, Ordering::Release);
        }
        let clients = [collecting.join(), disturbing.join()];
        let sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for client in clients {
            let client = client.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // If a client failed, its error is the reason for the other failures, or a consequence
            // of them.
            if let Err(error) = client {
                let text = format!("{error:#}");
                return Err(sent.err().map_or(error, |first| first.context(text)));
            }
        }
        // The daemon is dropped last because the other threads send requests to it.
        sent.map(|(_daemon, sent)| sent)
    })?;
    account.into_inner().expect("no panic").check(sent)
}

#[test]
fn kills_under_a_schedule_cost_no_packet() -> Result<()> {
    kill_and_collect(
        &json!({ "interval": "8ms", "retain": 100_000 }),
        scaled(15, 200),
    )
}

#[test]
fn kills_between_requests_cost_no_packet() -> Result<()> {
    kill_and_collect(&json!({ "retain": 100_000 }), scaled(10, 100))
}
