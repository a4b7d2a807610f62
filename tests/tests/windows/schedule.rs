//! Scheduled windows: they are closed in time for as long as the probe exists.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::windows::{Windows, config};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, scaled, timed};

const PROBE: &str = "/v1/probes/p";
const INTERVAL_MS: f64 = 25.0;
/// The largest lateness of windows at the median.
const LATE_MS: f64 = 5.0;

/// Returns the milliseconds since 1970.
fn milliseconds(time: &str) -> Result<f64> {
    Ok(time.parse::<jiff::Timestamp>()?.as_nanosecond() as f64 / 1e6)
}

/// Returns the ends of the windows in milliseconds.
fn ends(windows: &Windows) -> Result<Vec<f64>> {
    windows
        .list("")
        .windows
        .iter()
        .map(|window| milliseconds(&window.end))
        .collect()
}

fn wait_for_windows(windows: &Windows, count: u64) -> Result<()> {
    let mut newest = 0;
    while newest < count {
        let list = windows.try_list(&format!("after={newest}&wait=60"))?;
        newest = list.seqs().last().copied().context("no window for 60 s")?;
    }
    Ok(())
}

/// Returns the lateness of each end after a multiple of the interval since `anchor`. More than half
/// an interval counts as too early for the next multiple.
fn lateness(ends: &[f64], anchor: f64) -> Sample {
    let late = |end: &f64| {
        let late = (end - anchor).rem_euclid(INTERVAL_MS);
        if late > INTERVAL_MS / 2.0 {
            late - INTERVAL_MS
        } else {
            late
        }
    };
    ends.iter().map(late).collect()
}

/// Checks that the numbers have no gaps, that windows follow each other, and that there are at most
/// as many windows as intervals. Returns the number of intervals without a window.
fn check_list(windows: &Windows, interval: f64) -> Result<f64> {
    let list = windows.list("");
    assert_eq!(
        (list.seqs(), list.lost),
        ((1..=list.windows.len() as u64).collect(), 0)
    );
    for pair in list.windows.windows(2) {
        assert_eq!(pair[0].end, pair[1].start);
    }
    let ends = ends(windows)?;
    let intervals = (ends[ends.len() - 1] - ends[0]) / interval;
    let missing = intervals - (ends.len() - 1) as f64;
    // The first window may be late by up to an interval.
    ensure!(
        missing > -1.5,
        "{} windows in the time of {intervals:.1}",
        ends.len()
    );
    Ok(missing)
}

/// The lateness of a window does not add up: the next one is shorter than the interval. With ends
/// counted from the previous end, no window would be shorter. However busy the machine is, some
/// windows are less late than those before them.
#[test]
fn windows_do_not_drift() -> Result<()> {
    const INTERVAL: f64 = 100.0;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let window = json!({ "interval": format!("{INTERVAL}ms"), "retain": 100_000 });
    daemon.put(PROBE, &config(&window, &[])).expect(201);
    let windows = Windows::of(&daemon, "p");
    wait_for_windows(&windows, scaled(50, 1_000))?;
    check_list(&windows, INTERVAL)?;
    let ends = ends(&windows)?;
    let shorter = ends
        .windows(2)
        .filter(|pair| pair[1] - pair[0] < INTERVAL)
        .count();
    println!(
        "{shorter} of {} windows are shorter than the interval",
        ends.len() - 1
    );
    ensure!(
        shorter >= ends.len() / 10,
        "{shorter} windows are shorter than the interval: {ends:?}"
    );
    bystanders.finish()
}

#[timed("it measures how late windows end, at first and in the end")]
fn windows_do_not_get_later() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let window = json!({ "interval": format!("{INTERVAL_MS}ms"), "retain": 100_000 });
    daemon.put(PROBE, &config(&window, &[])).expect(201);
    let windows = Windows::of(&daemon, "p");
    let count = scaled(200, 10_000);
    wait_for_windows(&windows, count)?;
    let anchor = milliseconds(&windows.list("").windows[0].start)?;
    let ends = ends(&windows)?;
    let quarter = ends.len() / 4;
    let early = lateness(&ends[..quarter], anchor);
    let later = lateness(&ends[ends.len() - quarter..], anchor);
    println!(
        "late by {} ms at first, {} ms in the end",
        early.summary(2),
        later.summary(2)
    );
    ensure!(early.median() > -1.0 && early.median() < LATE_MS);
    // The lateness of the windows does not add up: its sum would be much larger.
    ensure!((later.median() - early.median()).abs() < 2.0);
    ensure!(check_list(&windows, INTERVAL_MS)? < ends.len() as f64 / 10.0);
    bystanders.finish()
}

/// Windows are aligned to the wall clock, from one daemon to the next; `clock_steps` shows it
/// without measuring.
#[timed("it measures how late windows end after multiples of the interval")]
fn windows_are_aligned_to_the_clock() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let window =
        json!({ "interval": format!("{INTERVAL_MS}ms"), "align": true, "retain": 100_000 });
    daemon.put(PROBE, &config(&window, &[])).expect(201);
    let windows = Windows::of(&daemon, "p");
    let count = scaled(100, 2_000);
    let mut checked = 0;
    for signal in [0, libc::SIGTERM, libc::SIGKILL] {
        if signal != 0 {
            daemon = daemon.restart(signal, &DaemonOptions::default())?;
        }
        let before = windows.seqs().len();
        wait_for_windows(&windows, before as u64 + count)?;
        // A daemon closes its first window as soon as it can.
        let ends = &ends(&windows)?[before + 1..];
        let late = lateness(ends, 0.0);
        println!("late by {} ms", late.summary(2));
        ensure!(late.median() < LATE_MS, "late by {} ms", late.summary(2));
        // An end shortly before a multiple is slightly early, or almost an interval late, which may
        // happen at times.
        let early = ends
            .iter()
            .filter(|end| end.rem_euclid(INTERVAL_MS) > INTERVAL_MS - 2.0)
            .count();
        ensure!(
            early < ends.len() / 20,
            "{early} of {} are too early",
            ends.len()
        );
        checked += late.len();
    }
    ensure!(checked as u64 >= 3 * (count - 1));
    // The two restarts take up to a second each.
    ensure!(check_list(&windows, INTERVAL_MS)? < checked as f64 / 10.0 + 80.0);
    bystanders.finish()
}

#[test]
fn a_schedule_goes_on_after_restarts_and_replacements() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let window = |interval: &str| config(&json!({ "interval": interval, "retain": 100_000 }), &[]);
    daemon.put(PROBE, &window("25ms")).expect(201);
    let windows = Windows::of(&daemon, "p");
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        wait_for_windows(&windows, windows.seqs().len() as u64 + 20)?;
        daemon = daemon.restart(signal, &DaemonOptions::default())?;
    }
    wait_for_windows(&windows, windows.seqs().len() as u64 + 20)?;
    check_list(&windows, INTERVAL_MS)?;
    // A replacement changes the interval at once, or ends the schedule.
    daemon.put(PROBE, &window("1h")).expect(200);
    let newest = windows.seqs().len();
    let list = windows.list(&format!("after={newest}&wait=0.5"));
    assert_eq!(list.windows, [], "closed before the hour was over");
    daemon.put(PROBE, &window("5ms")).expect(200);
    wait_for_windows(&windows, newest as u64 + 50)?;
    daemon
        .put(PROBE, &config(&json!({ "retain": 100_000 }), &[]))
        .expect(200);
    let newest = windows.seqs().len();
    let list = windows.list(&format!("after={newest}&wait=0.5"));
    assert_eq!(list.windows, [], "closed without an interval");
    // If a request closes a window in between, the clock continues as before.
    daemon.put(PROBE, &window("1h")).expect(200);
    windows.close();
    windows.close();
    assert_eq!(windows.seqs().len(), newest + 2);
    bystanders.finish()
}

/// Returns how often the threads of a process have waited for something.
fn waits(pid: u32) -> Result<u64> {
    let mut waits = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // The thread may have ended since it was listed.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else {
            continue;
        };
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits += count.context("a number of waits")?.trim().parse::<u64>()?;
    }
    Ok(waits)
}

/// A schedule of a probe without packets costs no processor time: the daemon does not poll.
#[test]
fn an_idle_schedule_is_no_load() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put(
            PROBE,
            &config(&json!({ "interval": "24h", "align": true }), &[]),
        )
        .expect(201);
    let started = SystemTime::now();
    let before = waits(daemon.pid())?;
    let list = Windows::of(&daemon, "p").list("wait=2");
    let waited = waits(daemon.pid())?.saturating_sub(before);
    println!("{waited} waits");
    // A window may end at midnight.
    let day = Duration::from_secs(24 * 60 * 60).as_secs();
    let midnight = started.duration_since(UNIX_EPOCH)?.as_secs() % day > day - 10;
    ensure!(midnight || list.windows.is_empty(), "{list:?}");
    // A daemon that looks every 10 ms would wake 200 times.
    ensure!(waited < 100, "{waited} waits in 2 s");
    bystanders.finish()
}

#[test]
fn mistakes_are_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put(PROBE, &config(&json!({ "interval": "10s" }), &[]))
        .expect(201);
    let before = daemon.json(PROBE);
    let refuse = |config: &Value, field: &str| -> Result<()> {
        let problem = daemon.put(PROBE, config).expect(422).json();
        let fields: Vec<&str> = problem["errors"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|e| e["field"].as_str())
            .collect();
        ensure!(fields == [field], "{}: {problem}", config["window"]);
        Ok(())
    };
    for (window, field) in [
        (json!({ "interval": "10" }), "window.interval"),
        (json!({ "interval": "" }), "window.interval"),
        (json!({ "interval": "10 parsecs" }), "window.interval"),
        (json!({ "interval": "-1s" }), "window.interval"),
        (json!({ "interval": "0s" }), "window.interval"),
        (json!({ "interval": "999us" }), "window.interval"),
        (json!({ "interval": "24h1s" }), "window.interval"),
        (json!({ "align": true }), "window.align"),
        (json!({ "retain": 0 }), "window.retain"),
        (json!({ "retain": 100_001 }), "window.retain"),
        (json!({ "retain_bytes": 0 }), "window.retain_bytes"),
        (json!({ "collectors": ["a", "a"] }), "window.collectors[1]"),
        (
            json!({ "collectors": ["a", "b c"] }),
            "window.collectors[1]",
        ),
        (json!({ "interval": 10 }), "window.interval"),
        (json!({ "retain": -1 }), "window.retain"),
        (json!({ "collectors": "a" }), "window.collectors"),
        (json!({ "every": "10s" }), "window.every"),
        (json!(null), "window"),
    ] {
        refuse(&config(&window, &[]), field).with_context(|| window.to_string())?;
    }
    let mut live = counter_config("mon0", "XDP_PASS");
    live["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    live["window"] = json!({ "interval": "1s" });
    refuse(&live, "window.interval")?;
    assert_eq!(
        daemon.json(PROBE),
        before,
        "a refused replacement changes nothing"
    );
    for interval in ["1ms", "250ms", "10s", "5m", "1h", "24h"] {
        daemon
            .put(
                PROBE,
                &config(&json!({ "interval": interval, "align": true }), &[]),
            )
            .expect(200);
    }
    bystanders.finish()
}

/// The end of a probe may overtake the closing of a window.
#[test]
fn a_deleted_probe_leaves_no_error() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for _ in 0..30 {
        daemon
            .put(PROBE, &config(&json!({ "interval": "1ms" }), &[]))
            .expect(201);
        wait_for_windows(&Windows::of(&daemon, "p"), 1)?;
        daemon.delete(PROBE).expect(204);
    }
    ensure!(!daemon.log().contains("ERROR"), "{}", daemon.log());
    Ok(())
}
