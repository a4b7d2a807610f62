//! Grace periods while a real-time task keeps a CPU busy: no window waits for that CPU, and
//! capabilities report it.
//!
//! The kernel leaves ordinary tasks 50 ms of each second of such a CPU, so a visit may take 950 ms.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;
use twinprobe_tests::hog::Hog;
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology, alone, timed};

const PROBES: [&str; 3] = ["p", "q", "r"];
/// The number of rounds of windows that are closed while a visit is late.
const ROUNDS: u64 = 1;
/// The least number of seconds between two messages in the log that the sweep is late.
const SAID_EVERY: u64 = 60;
/// The longest grace period at the median.
const LIMIT: Duration = Duration::from_millis(500);

/// Returns options with a script that moves to the first CPU and becomes the daemon, so that
/// neither the busy CPU nor other tests delay it.
fn on_first_cpu(directory: &Path) -> Result<DaemonOptions> {
    let path = directory.join("wrapper");
    let daemon = twinprobe_tests::binary()?;
    fs::write(
        &path,
        format!(
            "#!/bin/sh\nexec nice -n -15 taskset -c 0 '{}' \"$@\"\n",
            daemon.display()
        ),
    )?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(DaemonOptions {
        binary: Some(path),
        ..DaemonOptions::default()
    })
}

fn sweep(capabilities: &Value) -> Value {
    capabilities["kernel"]["quiesce_methods"][0].clone()
}

/// Tells whether capabilities say that the sweep is late and that another method takes its place.
fn is_late(capabilities: &Value) -> bool {
    sweep(capabilities)["available"] == false && capabilities["kernel"]["quiesce"] == "membarrier"
}

/// Closes windows of all probes at once, in rounds, with a real-time task on the second CPU. A
/// round counts if the sweep is still late after it; the function ends after this many. Returns the
/// grace periods of all windows in microseconds.
fn close_while_late(rounds: u64) -> Result<Vec<u64>> {
    if thread::available_parallelism()?.get() < 2 {
        println!("a single CPU: nothing was tested");
        return Ok(vec![0]);
    }
    pin_to_cpu(0)?;
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let daemon = Daemon::start_with(topology.monitor(), &on_first_cpu(temporary.path())?)?;
    for probe in PROBES {
        daemon
            .put(
                &format!("/v1/probes/{probe}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
    }
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    assert_eq!(sweep(&daemon.json("/v1/capabilities"))["available"], true);

    let (mut counted, mut sent) = ([0; PROBES.len()], 0);
    let (mut waited, mut done) = (Vec::new(), 0);
    let hog = Hog::start(1, PATIENCE)?;
    let begun = Instant::now();
    while done < rounds {
        ensure!(
            begun.elapsed() < PATIENCE,
            "{done} of {rounds} times: {waited:?} us"
        );
        generator.send(100)?;
        sent += 100;
        let close = |(probe, counted): (&&str, &mut u64)| {
            let document = Windows::of(&daemon, probe).close();
            let quiesce = document["window"]["quiesce_us"].as_u64().expect("a number");
            *counted += total(&document, "ingress", "packets");
            quiesce
        };
        let close = &close;
        let closed: Vec<u64> = thread::scope(|scope| {
            let closings = PROBES
                .iter()
                .zip(&mut counted)
                .map(|probe| scope.spawn(move || close(probe)));
            let closings: Vec<_> = closings.collect();
            closings
                .into_iter()
                .map(|closing| closing.join().expect("no panic"))
                .collect()
        });
        waited.extend(closed);
        // The sweep is reported as late only until it ends.
        let capabilities = daemon.json("/v1/capabilities");
        if is_late(&capabilities) {
            let reason = sweep(&capabilities)["reason"].to_string();
            assert!(reason.contains("CPU 1"), "{reason}");
            done += 1;
        }
    }
    drop(hog);
    assert_eq!(counted, [sent; PROBES.len()]);
    let log = daemon.log();
    let late =
        |line: &&str| line.contains("another method waits as well") && line.contains("Sweep");
    let said = log.lines().filter(late).count() as u64;
    assert!(
        said >= 1 && said <= 1 + begun.elapsed().as_secs() / SAID_EVERY,
        "said {said} times"
    );

    // The sweep is used again after its end.
    wait_for("the sweep", PATIENCE, || {
        Windows::of(&daemon, PROBES[0]).close();
        let capabilities = daemon.json("/v1/capabilities");
        let sweeps = sweep(&capabilities)["available"] == true
            && capabilities["kernel"]["quiesce"] == "sweep";
        ensure!(sweeps, "{capabilities}");
        Ok(())
    })?;
    Ok(waited)
}

#[alone("a real-time task keeps a CPU to itself")]
fn a_real_time_task_does_not_hold_up_windows() -> Result<()> {
    close_while_late(ROUNDS).map(drop)
}

#[timed("it measures grace periods while a real-time task keeps a CPU to itself")]
fn grace_periods_beside_a_real_time_task_are_short() -> Result<()> {
    let mut waited = close_while_late(15)?;
    // The test takes the median because the kernel's own thread for grace periods may be on the
    // busy CPU at times.
    waited.sort_unstable();
    let median = waited[waited.len() / 2];
    println!("{median} us at the median, {:?} us at most", waited.last());
    assert!(u128::from(median) < LIMIT.as_micros(), "{waited:?} us");
    Ok(())
}
