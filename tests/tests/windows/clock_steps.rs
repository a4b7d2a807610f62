//! Steps of the wall clock while windows are open: times follow the new clock, and the windows say
//! so.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const PROBES: [&str; 3] = ["p", "q", "r"];
const HOUR: i64 = 3_600_000_000_000;
/// Two instants count as the same if they differ by at most this. Nothing here takes that long, and
/// the clock is set by much more.
const ABOUT: i64 = HOUR / 4;
/// The longest time for which a window may be open.
const LONGEST: Duration = Duration::from_nanos(ABOUT as u64);

/// Sets the offset of the daemon's wall clock from the machine's.
fn set_clock(file: &Path, nanoseconds: i64) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, nanoseconds.to_string())?;
    Ok(fs::rename(new, file)?)
}

/// Returns an instant as nanoseconds since 1970.
fn instant(text: &Value) -> i128 {
    let text = text.as_str().expect("an instant");
    text.parse::<jiff::Timestamp>()
        .expect("RFC 3339")
        .as_nanosecond()
}

fn now(offset: i64) -> i128 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    now.as_nanos() as i128 + i128::from(offset)
}

struct Scene {
    topology: Topology,
    clock: tempfile::TempDir,
}

impl Scene {
    fn new() -> Result<Self> {
        Ok(Self {
            topology: Topology::new()?,
            clock: tempfile::tempdir()?,
        })
    }

    fn file(&self) -> std::path::PathBuf {
        self.clock.path().join("offset")
    }

    fn options(&self) -> DaemonOptions {
        DaemonOptions::default().environment("TWINPROBE_CLOCK_OFFSET", self.file())
    }
}

/// Checks a window that was closed at this offset of the clock, after it had been open for a time
/// between `least` and `most`. Its times are those of the clock at its end.
fn check(document: &Value, offset: i64, [least, most]: [Duration; 2], step: Option<i64>) {
    let window = &document["window"];
    let (start, end) = (instant(&window["start"]), instant(&window["end"]));
    let duration = i128::from(window["duration_ns"].as_u64().expect("a duration"));
    assert!(
        duration >= least.as_nanos() as i128 && duration <= most.as_nanos() as i128,
        "{least:?} to {most:?}: {window}"
    );
    let away = (now(offset) - end).abs();
    assert!(
        away < i128::from(ABOUT),
        "it ended {away} ns from now: {window}"
    );
    assert!(start < end, "{window}");
    let found = window
        .get("clock_step_ns")
        .map(|step| step.as_i64().expect("a step"));
    match (step, found) {
        (None, None) => {
            assert!(
                (end - start - duration).abs() < 1_000_000 + duration / 1000,
                "{window}"
            );
        }
        (Some(step), Some(found)) => {
            assert!((found - step).abs() < ABOUT, "{step}: {window}");
            // A window that contains a step back must not end before it began.
            let expected = if step < 0 {
                duration
            } else {
                duration + i128::from(found)
            };
            assert!((end - start - expected).abs() < 2_000_000, "{window}");
        }
        _ => panic!("a step of {step:?}: {window}"),
    }
}

#[test]
fn windows_begin_anew_when_the_clock_is_set() -> Result<()> {
    let scene = Scene::new()?;
    set_clock(&scene.file(), HOUR)?;
    let mut daemon = Daemon::start_with(scene.topology.monitor(), &scene.options())?;
    // The open window of each probe began between these two instants.
    let mut opened = Vec::new();
    for probe in PROBES {
        let before = Instant::now();
        daemon
            .put(
                &format!("/v1/probes/{probe}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
        opened.push([before, Instant::now()]);
    }
    let mut generator = Generator::new(
        scene.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?;
    // The offset of the clock, its step since the last window, and whether the daemon is killed in
    // between.
    let steps = [
        (HOUR, None, false),
        (0, Some(-HOUR), false),
        (0, None, false),
        (2 * HOUR, Some(2 * HOUR), true),
        (2 * HOUR, None, true),
        (-HOUR, Some(-3 * HOUR), true),
        (-HOUR, None, false),
    ];
    for (offset, step, killed) in steps {
        generator.send(100)?;
        set_clock(&scene.file(), offset)?;
        if killed {
            daemon = daemon.restart(libc::SIGKILL, &scene.options())?;
        }
        for (probe, opened) in PROBES.iter().zip(&mut opened) {
            let windows = Windows::of(&daemon, probe);
            let [earliest, latest] = std::mem::replace(opened, [Instant::now(); 2]);
            let document = windows.close();
            let least = opened[0].duration_since(latest);
            opened[1] = Instant::now();
            check(
                &document,
                offset,
                [least, opened[1].duration_since(earliest)],
                step,
            );
            assert_eq!(total(&document, "ingress", "packets"), 100, "{probe}");
            let seq = document["window"]["seq"].as_u64().expect("a number");
            let xml = String::from_utf8(windows.bytes(seq, "xml"))?;
            let attribute = format!("duration_ns=\"{}\"", document["window"]["duration_ns"]);
            assert!(xml.contains(&attribute), "{xml}");
            assert_eq!(xml.contains("clock_step_ns="), step.is_some(), "{xml}");
            // A retained window does not change with the clock.
            assert_eq!(windows.get(seq), document);
        }
    }
    Ok(())
}

/// A daemon is killed between the flip and the window's file: the window ended when the clock was
/// still ahead.
#[test]
fn a_window_that_an_earlier_daemon_has_ended() -> Result<()> {
    let scene = Scene::new()?;
    set_clock(&scene.file(), HOUR)?;
    let dying = scene.options().environment("TWINPROBE_CRASH_AT", "flipped");
    let daemon = Daemon::start_with(scene.topology.monitor(), &dying)?;
    for probe in PROBES {
        daemon
            .put(
                &format!("/v1/probes/{probe}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
    }
    let closed = Windows::of(&daemon, PROBES[0]).try_close();
    assert!(closed.is_err(), "the step was not reached");
    set_clock(&scene.file(), 0)?;
    let daemon = daemon.restart(libc::SIGKILL, &scene.options())?;
    let windows = Windows::of(&daemon, PROBES[0]);
    let document = windows.get(1);
    let (start, end) = (
        instant(&document["window"]["start"]),
        instant(&document["window"]["end"]),
    );
    assert!(
        start < end && (now(HOUR) - end).abs() < i128::from(ABOUT),
        "{document}"
    );
    assert_eq!(document["window"].get("clock_step_ns"), None, "{document}");
    // The next window reports the step.
    let next = windows.close();
    check(&next, 0, [Duration::ZERO, LONGEST], Some(-HOUR));
    Ok(())
}

/// With an interval of an hour, one window ends each time that the clock passes a full hour, from
/// one daemon to the next.
#[test]
fn aligned_windows_end_when_the_clock_passes_a_multiple() -> Result<()> {
    let scene = Scene::new()?;
    // The daemon's clock is between two full hours, except at the moments when the test lets it
    // pass one.
    let mut hour = now(0) / i128::from(HOUR) * i128::from(HOUR);
    let set = |time: i128| set_clock(&scene.file(), i64::try_from(time - now(0))?);
    set(hour + i128::from(HOUR / 8))?;
    let mut daemon = Daemon::start_with(scene.topology.monitor(), &scene.options())?;
    for probe in PROBES {
        let mut config = counter_config("mon0", "XDP_PASS");
        config["window"] = json!({ "interval": "1h", "align": true });
        daemon
            .put(&format!("/v1/probes/{probe}"), &config)
            .expect(201);
    }
    for (seq, signal) in (1..).zip([0, libc::SIGTERM, libc::SIGKILL]) {
        if signal != 0 {
            daemon = daemon.restart(signal, &scene.options())?;
        }
        hour += i128::from(HOUR);
        set(hour - 1_000_000_000)?;
        for probe in PROBES {
            let windows = Windows::of(&daemon, probe);
            let list = windows.try_list(&format!("after={}&wait=60", seq - 1))?;
            assert_eq!(list.seqs(), [seq], "{probe}");
            let late = instant(&json!(list.windows[0].end)) - hour;
            assert!(
                (0..i128::from(ABOUT)).contains(&late),
                "{probe}: window {seq} is late by {late} ns"
            );
        }
    }
    for probe in PROBES {
        assert_eq!(Windows::of(&daemon, probe).seqs(), [1, 2, 3], "{probe}");
    }
    Ok(())
}

/// Scheduled windows end at multiples of the interval on the new clock.
#[test]
fn scheduled_windows_follow_a_clock_that_is_set() -> Result<()> {
    let scene = Scene::new()?;
    set_clock(&scene.file(), HOUR)?;
    let daemon = Daemon::start_with(scene.topology.monitor(), &scene.options())?;
    for (probe, align) in PROBES.iter().zip([false, true, false]) {
        let mut config = counter_config("mon0", "XDP_PASS");
        config["window"] = json!({ "interval": "200ms", "align": align, "retain": 100_000 });
        daemon
            .put(&format!("/v1/probes/{probe}"), &config)
            .expect(201);
    }
    let wait = |probe: &str, after: u64| -> Result<u64> {
        let windows = Windows::of(&daemon, probe);
        let list = windows.try_list(&format!("after={after}&wait=60"))?;
        assert!(
            !list.windows.is_empty(),
            "{probe} has no window after {after}"
        );
        Ok(*list.seqs().last().expect("a window"))
    };
    for offset in [HOUR, 0, 2 * HOUR] {
        set_clock(&scene.file(), offset)?;
        for probe in PROBES {
            let seq = wait(probe, 0)?;
            // A window that had ended before the step may not be listed yet: the third window from
            // now began after it.
            let seq = wait(probe, wait(probe, wait(probe, seq)?)?)?;
            let document = Windows::of(&daemon, probe).get(seq);
            check(&document, offset, [Duration::ZERO, LONGEST], None);
        }
    }
    // One window for each of the two steps reports it.
    let windows = Windows::of(&daemon, PROBES[0]);
    let steps = windows
        .seqs()
        .into_iter()
        .filter(|seq| windows.get(*seq)["window"].get("clock_step_ns").is_some());
    assert_eq!(steps.count(), 2);
    Ok(())
}
